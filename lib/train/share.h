/* What of a training run each of several ranks does: data parallelism. All ranks read the same data and make the same rows of a step. Each
 * runs the rows of its own gradient shards (train/shards.h) and sends the sums of its nodes of the tree to the owners of the elements, who add
 * them in the tree's order. So the parameters have the same bits at every step for any number of ranks.
 *
 * The elements are divided into cells: 64 Ki elements of a parameter (the blocks of gradient norms), or a whole parameter where its update looks
 * at all of it. Cells that travel together are a unit: those of a layer, or a few Mi elements of them; the units of a layer form its group, those of
 * all other parameters the last group. Every rank owns about the same number of elements of each
 * group; those of one parameter follow one another.
 *
 * What each rank keeps whole depends on `zero`:
 * 0: everything. Every rank gets the whole gradient and updates all parameters.
 * 1: weights and gradients. A rank has moments of its own cells alone and updates these; then every rank gets the updated parameters, those of a
 *    layer by the time that the next step's first forward pass enters it, or that anything else reads them (llm_share_wait_weights).
 * 2: weights. Gradients of layers have memory for two groups; a rank keeps the gradient of its own cells.
 * 3: what is in no layer. Weights of layers have memory for two groups, too. With 1, 2 and 3 they come from their owners one group ahead, with 3 in
 *    every pass.
 * What every op reads rounded to BF16 (matrices, in a run with --precision bf16) comes so: only its owner has the exact value.
 * With 1 and 2 ranks of one machine have one copy of the weights, which the owners among them write; what comes from other machines its first rank
 * receives (share_node.c).
 *
 * The gradients of a layer travel while the backward pass goes on (share_exchange.c): with zero 0 and 1 in the last pass of the rank's rows, with
 * zero 2 and 3 after each shard, which therefore must be one pass. Messages make progress between jobs of the thread pool. Many ranks, if their
 * number is a power of two, exchange gradients and weights with one partner after the other (share_halving.c).
 *
 * With stages (`pp`, pipeline parallelism) the ranks of a replica run the layers one after another, and what follows holds among the ranks of one
 * stage: each keeps the parameters of its stage alone, and owns a part of them. Rank d·pp + k is stage k of replica d, which has a run of shards. A
 * tied embedding is at home in the first stage; the last one, which has a copy, sends the head's gradient there shard by shard (train/stages.h). A
 * stage may have several chunks of layers (`vp`), between which lie those of the other stages. With zero 2 and 3 each forward and each backward pass
 * of a chunk goes through the groups of its layers by itself; all replicas make as many passes as the one with most, some of them of no rows.
 *
 * With tensor parallelism (`tp`) the ranks of a replica have the slices of the cut matrices (tensor/slices.h), each a run of them, and all other
 * parameters whole. Rank d·tp + k is member k of replica d; with stages, rank (d·pp + stage)·tp + k is member k of that stage. What follows holds
 * among the ranks of one member of one stage: a lane. Gradients of whole parameters have the same bits in all members, and each moves its own copy;
 * what is known to all ranks, as norms and files, is read from the first member's.
 *
 * With expert parallelism (`ep`) each run of ep replicas is a group that divides the experts of each layer: replica d has those of member d mod ep. A
 * rank exchanges hidden states with those of its lane in the group; with tensor parallelism these have the same slices of their experts. The
 * gradients of an expert travel among the ranks of its member and lane. Each of these has the gradients by the rows of all members of its group,
 * apart (tensor/experts.h), and so the nodes of all of these replicas. Where ranks divide rows, these count as replicas here, too: a group has all
 * ranks of several rows, or some of the ranks of one row.
 *
 * With --seq-parts Q (tensor/sequence.h) the tree has Q·S terms: shard s by part q of the rows is term q·S + s. A rank keeps the gradients of its
 * parts apart, and what the tree adds of them it adds before they travel. With sequence parallelism (`cp`) rank d·cp + k has the k-th run of parts of
 * the rows of replica d; with stages and members it is one of the ranks (d·cp + k)·lanes and on, which have these parts. What concerns the exchange
 * is among all ranks of a lane, as in data parallelism: to it, these are dp·cp replicas.
 *
 * With --gradients int8 shards are not added in the tree (share_int8.c). Of each 256 elements of a parameter the largest magnitude in any shard is
 * agreed upon, each shard is rounded to 127ths of it, and the integers are added, which has the same result in any order. They travel when the
 * backward pass is over. What a rank has added is never rounded. */
#ifndef LLM_TRAIN_SHARE_H
#define LLM_TRAIN_SHARE_H

#include "dist/memory.h"
#include "model/model.h"
#include "train/optim.h"
#include "train/shards.h"

/* What "auto" reckons with; 0, or of latency -1: not given. */
struct llm_layout_costs {
    double memory;                  /* bytes that a rank may take */
    double flops, bandwidth, latency; /* FLOP/s of a rank; bytes a second that it sends; seconds of a message */
};
/* How a run is divided among ranks: what --shard says. */
struct llm_layout {
    int64_t dp, zero;               /* dp 0: as many replicas as the ranks make */
    int64_t pp;                     /* stages of the pipeline; 0 or 1: one */
    int64_t vp;                     /* chunks of layers of each stage; 0 or 1: one */
    int64_t tp;                     /* ranks that have the slices of cut matrices; 0 or 1: one has all */
    int64_t ep;                     /* ranks, of those of dp, that divide the experts of mixtures; 0 or 1: each has all */
    int64_t cp;                     /* ranks of a replica that divide the parts of its rows (--seq-parts); 0 or 1: one has all */
    bool gpipe;                     /* all forward passes of a step before the first backward pass; else 1F1B */
    bool interleaved;               /* 1F1B of several chunks */
    bool automatic;                 /* "auto": llm_layout_choose (train/plan.h) finds what is above */
    int64_t ranks;                  /* with it: how many there are; 0: those of the launcher */
    struct llm_layout_costs costs;
};
static inline int64_t llm_layout_stages(const struct llm_layout *l) { return l->pp > 1 ? l->pp : 1; }
static inline int64_t llm_layout_chunks(const struct llm_layout *l) { return l->vp > 1 ? l->vp : 1; }
static inline int64_t llm_layout_members(const struct llm_layout *l) { return l->tp > 1 ? l->tp : 1; }
static inline int64_t llm_layout_experts(const struct llm_layout *l) { return l->ep > 1 ? l->ep : 1; }
static inline int64_t llm_layout_rows(const struct llm_layout *l) { return l->cp > 1 ? l->cp : 1; }
/* Ranks of a replica that compute with the same tokens. */
static inline int64_t llm_layout_lanes(const struct llm_layout *l) { return llm_layout_stages(l) * llm_layout_members(l); }
/* "dp=4,zero=1". -1: `e` names what is not understood, or not built. */
int llm_layout_read(struct llm_layout *l, const char *text, struct llm_err *e) LLM_MUST_CHECK;
/* Whether the replicas, or the ranks that divide their rows, make groups of ep. 0 or -1 (LLM_EX_USAGE). */
int llm_layout_check_groups(const struct llm_layout *l, struct llm_err *e) LLM_MUST_CHECK;
/* What llm_layout_read reads, of a layout that is not automatic. */
enum { LLM_LAYOUT_TEXT = 100 };
void llm_layout_text(const struct llm_layout *l, char text[LLM_LAYOUT_TEXT]);
/* Whether the layout fits n_ranks ranks. 0 or -1 (LLM_EX_USAGE). */
int llm_layout_check(const struct llm_layout *l, int n_ranks, struct llm_err *e) LLM_MUST_CHECK;

/* Divides the layers of the main stack into pp · vp chunks of about the same cost: the FLOPs of texts of `context` tokens, the last one's with the
 * head. Chunk j is of stage j mod pp. Layers that must run together stay together. first [pp · vp + 1]: the first layer of each chunk, then the
 * number of layers. 0 or -1 (LLM_EX_USAGE). */
int llm_stages_cut(const struct llm_config *c, int64_t context, int64_t pp, int64_t vp, int64_t *first, struct llm_err *e) LLM_MUST_CHECK;
/* The share of the model's FLOPs that the most expensive of these stages has. 0 or -1. */
int llm_stages_most(const struct llm_config *c, int64_t context, int64_t pp, int64_t vp, const int64_t *first, double *share, struct llm_err *e)
    LLM_MUST_CHECK;

/* ---- the order of a stage's passes (stages_order.c) ---- */
/* Stage `stage` of n, each of which has so many chunks of layers, in a step of so many passes. */
struct llm_stage_order { int64_t stage, n, chunks, passes; bool gpipe; };
struct llm_stage_act { bool forward; int64_t chunk, pass; }; /* pass -1: a gap, in which nothing is done */
/* How many there are. */
int64_t llm_stages_acts(const struct llm_stage_order *o);
/* Passes of chunks that are under way at a time, at most. */
int64_t llm_stages_flying(const struct llm_stage_order *o);
/* Number i. All stages run forward passes in one order and backward passes in one order; those of a chunk ascend. In the last stage the backward pass
 * of the last chunk follows its forward pass, in which the gradient of the head is computed. */
struct llm_stage_act llm_stages_act(const struct llm_stage_order *o, int64_t i);

/* Whether the members of a tensor-parallel group can divide the run's slices. 0 or -1 (LLM_EX_USAGE). */
int llm_share_check_members(const struct llm_layout *l, const struct llm_train_options *o, struct llm_err *e) LLM_MUST_CHECK;
/* Whether the run and the model serve expert parallelism, if the layout has it. 0 or -1 (LLM_EX_USAGE). */
struct llm_objective;
int llm_share_check_experts(const struct llm_layout *l, const struct llm_train_options *o, const struct llm_config *c, bool adapted,
                            const struct llm_objective *objective, struct llm_err *e) LLM_MUST_CHECK;
/* Whether the run, the model and the layout serve parts of rows, if the run has them. 0 or -1 (LLM_EX_USAGE). */
int llm_share_check_parts(const struct llm_layout *l, const struct llm_train_options *o, const struct llm_config *c, bool adapted,
                          const struct llm_objective *objective, struct llm_err *e) LLM_MUST_CHECK;
/* Whether ranks divide the parameter: it is one of the experts of the main stack. */
bool llm_share_divides(const struct llm_param_spec *s);
/* Whether the weights of matrices travel in BF16. adapted: an adapter is trained. */
bool llm_share_rounds(const struct llm_layout *l, const struct llm_train_options *o, bool adapted);
/* Whether there are enough shards for n_ranks replicas, and what the layout asks of the options. 0 or -1 (LLM_EX_USAGE). */
int llm_share_check(int64_t n_ranks, const struct llm_layout *l, const struct llm_train_options *o, struct llm_err *e) LLM_MUST_CHECK;
/* What one of n_ranks ranks takes for messages and in memory, at most, by formula. `params` elements are trained: `in_layers` of
 * them in layers, `largest` in the largest group. `ahead`: bytes of updated weights that it sends under the next step's forward pass. `behind`:
 * bytes of a node's gradients that it sends under backward passes: of layers, but those of the group that is left last. `rounded`: memory of weights
 * on their way in BF16. `passing`: memory that the sum of --gradients int8 takes, which the next save finds free. */
struct llm_share_size { double params, in_layers, largest; };
struct llm_share_cost { int64_t nodes, buffers; double ahead, behind, staging, rounded, passing, gradients, weights; };
struct llm_share_cost llm_share_cost(int64_t n_ranks, const struct llm_layout *l, const struct llm_train_options *o,
                                     const struct llm_share_size *size);
/* Adds what experts that the replicas of a group divide take: `size`, of all experts. */
void llm_share_add_experts(int64_t replicas, const struct llm_layout *l, const struct llm_train_options *o, const struct llm_share_size *size,
                           struct llm_share_cost *c);
/* A parameter that is trained, as a rank has it: of so many elements, that one rank updates whole or many in parts. In the order of parameters. */
struct llm_share_part { int64_t group; int copies; size_t n; bool whole, rounded; }; /* copies: enum llm_share_copies */
/* What a rank's passes go through: groups of layers, of so many chunks that begin at first [chunks + 1]; stage `stage` of `stages`. */
struct llm_share_walk { const int64_t *first; int64_t chunks, group_layers, stage, stages; };
/* Bytes of gradients and weights that one of n_ranks ranks of a lane sends in a step, the one that sends most. 0 or -1. */
int llm_share_sent(double *bytes, const struct llm_share_part *parts, size_t n_parts, const struct llm_share_walk *walk, int64_t n_ranks,
                   const struct llm_layout *l, const struct llm_train_options *o, struct llm_err *e) LLM_MUST_CHECK;
/* The stages in which n_ranks ranks exchange what each would send to all others; 0: they do send it to all others. */
int llm_share_stages_of(int64_t n_ranks);
/* Whether the gradients of n_ranks ranks travel so: each has one node of the tree, and these are siblings up to the root. */
bool llm_share_halves_nodes(int64_t n_ranks, const struct llm_layout *l, const struct llm_train_options *o);
/* Layers of a group: one, or those that the backward pass recomputes together. */
int64_t llm_share_group_layers(const struct llm_config *c, const struct llm_train_options *o);
/* The group of a layer if groups have so many layers, from the first one of each of the chunks, which begin at first [chunks + 1]; of the number of
 * layers: how many groups there are. */
int64_t llm_share_group_of(const int64_t *first, int64_t chunks, int64_t group_layers, int64_t layer);

/* Units whose gradients travel at the same time, with zero 0 and 1; with zero 2 and 3, whose layers have memory for two groups anyway. */
enum { LLM_SHARE_SLOTS = 4, LLM_SHARE_FEW_SLOTS = 2 };
enum { LLM_SHARE_UNIT_ELEMENTS = 4 << 20 }; /* of a unit that has more than one cell */

/* Where a rank has a node of the tree: in the gradient of one of its parts, or in buffer `index` of those of the part. */
struct llm_share_place { int64_t part, index; bool last; };
struct llm_share_joins { struct llm_share_join { struct llm_share_place to, from; } *v; size_t n; };

struct llm_share {
    struct llm_comm *comm;          /* borrowed; NULL: one rank. Agreements, norms and what travels between steps */
    struct llm_comm *exchange, *bring; /* of the same ranks: gradients; weights of layers. NULL: one rank */
    struct llm_comm *halving, *doubling; /* the same in stages, with n_stages; doubling with `apart`, too: what has arrived for a machine */
    int n_stages;                   /* of exchanges of many ranks (share_halving.c); 0: each rank sends to all others at once */
    bool halves_nodes;              /* gradients travel in stages: llm_share_halves_nodes */
    struct llm_node_memory together; /* weights that the ranks of a machine have once, with zero 1 and 2 (share_node.c) */
    bool *owns;                     /* [n_groups + 1, n] with them: whether a rank owns something of a group; owned */
    bool apart;                     /* there are several machines, and some have weights once */
    bool polls;                     /* llm_share_poll is at work, or must not be */
    uint64_t turn;                  /* exchanges in stages that have begun */
    int rank, n, zero;
    int pp, tp;                     /* stages; members of a tensor-parallel group, which each stage has */
    int vp;                         /* chunks of layers of a stage */
    int ep;                         /* replicas of a group that divides experts; 1: there are none. Of them this rank's is replica % ep */
    float **aside;                  /* [n_params] ep > 1: gradients to which an idle pass must not add, until their layer is left; else NULL; owned */
    int64_t *member_ends, n_passes; /* ep > 1: [ep, n_passes] the shard that a pass of a member ends; -1: none; owned */
    int64_t member_buffers;         /* ep > 1, or with parts: buffers (llm_shard_buffers) of each gradient that is kept apart, at most */
    int cp;                         /* ranks that divide a row; this one is number replica % cp of them */
    int64_t parts;                  /* of a row that this rank has, whose gradients are apart; 1: there is one */
    /* With parts and zero 0 or 1, of each member of this rank's group [ep]: where its nodes are, and the sums that lead to them, in order. What is no
     * expert has those of this rank's member. Owned. */
    struct llm_share_member { struct llm_share_place *places; struct llm_share_joins joins; } *members;
    int lanes, lane, stage;         /* ranks of a replica, and which of them this one is: stage·tp + member */
    int dp, replica;                /* replicas, cp of which divide the same rows, and this rank's. rank = replica·lanes + lane */
    int64_t *first_layer;           /* [pp · vp + 1] of the chunks; owned */
    bool int8;                      /* --gradients int8 */
    bool rounded;                   /* matrices' weights travel in BF16: llm_share_rounds */
    struct llm_shard_run run;       /* of this rank */
    int64_t rounds;                 /* exchanges of a unit in a step: zero 2 and 3 have one for each shard of the rank with most */
    struct llm_trainable *t;        /* [n_params] borrowed */
    size_t n_params;
    int64_t n_layers, group_layers, n_groups; /* groups of layers; group n_groups: all other parameters */
    struct llm_share_param {
        int64_t group, chunk;
        size_t first, end;          /* its cells */
        int home;                   /* the lane that has it; LLM_SHARE_EXPERT: the rank of the group's replicas, member·lanes + lane */
        enum llm_share_copies {
            LLM_SHARE_ONE,          /* no other lane has it */
            LLM_SHARE_TIED,         /* the same member of the last stage has it, too */
            LLM_SHARE_EVERYWHERE,   /* every member of the stage has it, of which `home` is the first */
            LLM_SHARE_EXPERT        /* of each group that divides experts one member has it */
        } copies;
    } *params;                      /* [n_params]; owned, as all below */
    struct llm_share_cell { size_t param, from, n; int owner; } *cells; /* by group, then by parameter. owner: in the home lane; llm_share_owner */
    size_t n_cells, *listed;        /* listed [n_cells]: cells by unit */
    struct llm_share_unit {
        size_t first, end;          /* its cells: listed[first] and on */
        int64_t group;
        int home;                   /* of its parameters, as `copies` */
        enum llm_share_copies copies;
        size_t own;                 /* elements of this rank's cells */
        float *kept;                /* [shards, own] with several rounds; else NULL */
        struct llm_transfer *transfers;
        size_t n_transfers, room;
        float *staging;             /* what arrives, node by node in the order of ranks */
        bool begun, arrived;
        bool halves, waits;         /* it travels in stages; the messages of `stage` are under way */
        int stage;
        uint64_t turn;              /* among exchanges in stages */
    } *units;
    size_t n_units;
    struct llm_tree_node *nodes;   /* of all ranks, in order */
    size_t n_nodes, *first_node;    /* [dp + 1] */
    size_t *order;                  /* [n_nodes]: nodes in the order of the tree, which is not that of ranks if these divide rows */
    struct llm_share_slot { float *p; struct llm_share_unit *user; } slots[LLM_SHARE_SLOTS];
    size_t n_slots, next_slot;
    double *squares;                /* [n_cells] */
    /* Weights that come from their owners: of group g at g, or, of layers with zero 3, at g % 2. group -1: none */
    struct llm_share_brought {
        int64_t group;
        bool arrived;
        bool doubles, waits;        /* some of it travels in stages, or `apart`; the messages of `stage` are under way */
        int stage;
        uint64_t turn;
        struct llm_transfer *transfers;
        size_t n, room;
        uint16_t *rounded;          /* [rounded_room] what this rank sends in BF16; n_rounded so far */
        size_t n_rounded, rounded_room;
        struct llm_share_widened { float *x; size_t n; } *widened; /* what arrives in BF16, and is widened then */
        size_t n_widened, widened_room;
    } *brought;                     /* [n_groups + 1] */
    int64_t posted;                 /* groups of layers whose messages have begun since the last update, with zero 1 and 2 */
    /* zero 2 and 3 */
    float *gradients[2], *weights[2]; /* memory of two groups; NULL: parameters have their own */
    size_t *gradient_offset, *weight_offset; /* [n_params] of a parameter in its group's memory */
    /* the pass at hand */
    struct llm_between between, eval_between; /* of the contexts of training and of evaluation */
    bool overlap;                   /* gradients travel as layers are left */
    bool sends;                     /* this rank has a shard in the round at hand */
    int64_t round, position, eval_position; /* share_layers.c */
    int64_t first_group, end_group; /* groups that a pass goes through: all, or, with stages and zero 2 and 3, those of a chunk */
    struct llm_err err;             /* of messages that failed within a pass */
    size_t under_way;               /* exchanges that have begun and not arrived */
    double since, busy, blocked;    /* seconds: since when some are under way; that some were; that the rank waited for them */
};

/* Divides the parameters, whose optimizers are set, and says in each which elements this rank updates. Zero-initialise; release either way. */
int llm_share_init(struct llm_share *s, struct llm_comm *comm, const struct llm_layout *l, const struct llm_model *m, struct llm_trainable *t,
                   size_t n_params, const struct llm_train_options *o, struct llm_err *e) LLM_MUST_CHECK;
void llm_share_release(struct llm_share *s);

/* Whether this rank computes with parameter number i: it belongs to the rank's stage, or to its slices. */
bool llm_share_has(const struct llm_share *s, size_t i);
/* Gradients of parameter number i that this rank keeps apart: one for each part of a row; of an expert that ranks divide, so many for each member of
 * the group. */
int llm_share_gradients(const struct llm_share *s, size_t i);
/* Floats of these gradients, one after the other. */
size_t llm_share_gradient_floats(const struct llm_share *s, size_t i);
/* Whether rank 0 lacks elements of the weights of parameter number i, which it collects to hash and to save them. */
bool llm_share_collects(const struct llm_share *s, size_t i);
/* Whether that holds of some parameter. */
bool llm_share_scatters(const struct llm_share *s);
/* Whether the weights of parameter number i travel in BF16. Then a rank has exact values of the elements that it owns alone. */
bool llm_share_rounded(const struct llm_share *s, size_t i);
/* Whether there is no rank that has all exact values of all parameters. */
bool llm_share_divides_masters(const struct llm_share *s);
/* Whether ranks hash the weights that each has read before they place them, since what is in their places may be another rank's. */
bool llm_share_hashes_own(const struct llm_share *s);
/* The elements of parameter number i's master that this rank owns; NULL: it owns none. */
float *llm_share_own_master(const struct llm_share *s, size_t i);

/* ---- memory of layers (share_layers.c) ---- */
/* Whether parameter number i has its gradient, or its weights, in memory that groups of layers share. */
bool llm_share_pools_gradient(const struct llm_share *s, size_t i);
bool llm_share_pools_weights(const struct llm_share *s, size_t i);
/* Gives parameter number i that memory; what its master had is kept by its owners. 0 or -1. */
int llm_share_place(struct llm_share *s, size_t i, struct llm_err *e) LLM_MUST_CHECK;
/* Before parameters are freed: those that have shared memory forget it. */
void llm_share_forget_places(struct llm_share *s);
/* Owners' weights have changed: groups are brought anew. The messages of what is in no layer, and with zero 1 and 2 those of the first group, begin.
 * Until llm_share_wait_weights an owner must not write its weights. 0 or -1. */
int llm_share_changed(struct llm_share *s, struct llm_err *e) LLM_MUST_CHECK;
/* Waits for the weights that are in no layer, before a forward pass; those of layers are waited for as the pass enters them. 0 or -1. */
int llm_share_begin_forward(struct llm_share *s, struct llm_err *e) LLM_MUST_CHECK;
/* Begins the messages of all weights, which other ranks may wait for in passes that this rank does not make. 0 or -1. */
int llm_share_post_weights(struct llm_share *s, struct llm_err *e) LLM_MUST_CHECK;
/* Waits until this rank has all weights that it keeps whole, and the others have its own: collective. Nothing if that is so. 0 or -1. */
int llm_share_wait_weights(struct llm_share *s, struct llm_err *e) LLM_MUST_CHECK;

/* ---- a step: each rank calls these in this order, also if its rows have failed ---- */
/* Before the passes of shard `shard` of the rank's. `last`: gradients of its coming pass are complete. */
void llm_share_begin(struct llm_share *s, int64_t shard, bool last);
/* Before the backward pass of an idle pass: what would count its tokens, of no rows of this rank, has no gradient to add to. After it: it has. */
void llm_share_set_aside(struct llm_share *s);
void llm_share_take_back(struct llm_share *s);
/* After the passes of the shard: its gradient, of the parameters of chunk `chunk` (-1: of all), goes to its place in the tree, and to its owners
 * where the layout says so. */
int llm_share_end(struct llm_share *s, int64_t shard, int64_t chunk, struct llm_err *e) LLM_MUST_CHECK;
/* With stages and zero 2 and 3, around each forward and each backward pass of a chunk, which all replicas make in the same order, those that have no
 * rows left too: the weights of its layers come, and their gradients travel. round: the number of the pass. */
void llm_share_begin_act(struct llm_share *s, int64_t chunk, int64_t round, bool forward);
int llm_share_end_act(struct llm_share *s, int64_t chunk, bool forward, struct llm_err *e) LLM_MUST_CHECK;
/* With expert parallelism, after each pass and before llm_share_end: the gradients of experts by the rows of those members whose shard ends with this
 * pass go to their places in the tree. */
void llm_share_end_members(struct llm_share *s, int64_t pass, int64_t chunk);
/* The shards of member m of this rank's group. In a process whose group is not there, for estimates: its own. */
struct llm_shard_run llm_share_member_run(const struct llm_share *s, int m);
/* After the rank's rows: does what is left of the exchanges, and waits for them. Then the owners have the gradient of the step
 * (llm_trainable_grad), with zero 0 and int8 all ranks llm_param.grad, and every rank has the weights. */
int llm_share_finish(struct llm_share *s, struct llm_err *e) LLM_MUST_CHECK;
/* Around a pass of evaluation, with zero 3: a rank whose pass has failed goes through the rest of it, as the others do. */
void llm_share_begin_eval(struct llm_share *s);
int llm_share_end_eval(struct llm_share *s, struct llm_err *e) LLM_MUST_CHECK;
/* The share of the time of exchanges in which this rank did not wait, since the last call; NaN: there were none. */
double llm_share_hidden(struct llm_share *s);

/* Every rank gets the owners' elements of all gradients that it keeps whole. */
int llm_share_gather(struct llm_share *s, struct llm_err *e) LLM_MUST_CHECK;
/* llm_grad_norm of gradients that the owners have: the same bits. */
int llm_share_norm(struct llm_share *s, double *norm, const struct llm_param **bad, struct llm_err *e) LLM_MUST_CHECK;
/* Numbers of parameter number `param`, of which `mine` has this rank's elements: rank 0 gets all of them in `all`, in
 * which it may have its own already. */
int llm_share_collect(struct llm_share *s, size_t param, const float *mine, float *all, struct llm_err *e) LLM_MUST_CHECK;
/* x [rows], of `width` bytes each: every rank gets those of the others' shards, which the last lane of each replica has. */
int llm_share_rows(struct llm_share *s, void *x, int64_t rows, size_t width, struct llm_err *e) LLM_MUST_CHECK;
/* llm_share_rows of a float for each token, x [rows, row_len], where ranks divide rows. */
int llm_share_tokens(struct llm_share *s, float *x, int64_t rows, int64_t row_len, struct llm_err *e) LLM_MUST_CHECK;

#endif
