/* What the files of train/share.h share. Each calls those before it only: share_parts.c, share_experts.c, share_cells.c (who owns what),
 * share_messages.c, share_halving.c, share_exchange.c (gradients), share_node.c, share_int8.c, share_bf16.c, share_layers.c (memory of layers),
 * share.c, share_sent.c. */
#ifndef LLM_TRAIN_SHARE_INTERNAL_H
#define LLM_TRAIN_SHARE_INTERNAL_H

#include "train/share.h"

/* ---- share_parts.c ---- */
/* The terms of the tree where rows have parts: `ranks` of a lane, cp of which divide a row, each with `parts`; shards of a step. */
struct llm_terms { int64_t ranks, cp, parts, shards; };
struct llm_terms llm_share_terms(const struct llm_share *s);
/* The terms of a part of rank q of a lane: its shards. */
struct llm_shard_run llm_terms_run(const struct llm_terms *k, int q, int64_t part);
/* The nodes that rank q sends, where they are, and the sums that make them (NULL: not wanted). nodes NULL: for how many there must be room. */
int64_t llm_terms_nodes(const struct llm_terms *k, int q, struct llm_tree_node *nodes, struct llm_share_place *places, struct llm_share_joins *joins);
int llm_share_parts_init(struct llm_share *s, struct llm_err *e) LLM_MUST_CHECK;
void llm_share_parts_release(struct llm_share *s);
/* The nodes and buffers of a rank with parts of rows go to *c, at most; returns the nodes of all ranks. */
double llm_share_cost_of_parts(int64_t n_ranks, const struct llm_layout *l, const struct llm_train_options *o, struct llm_share_cost *c);
/* The gradient of parameter number i in a node of member m. */
float *llm_share_node_at(const struct llm_share *s, size_t i, int m, struct llm_share_place at);
/* llm_shard_end of parameter number i for a shard of each part of the rows of member m; after the last one the member's nodes are at
 * llm_share.members, or, of one process, the gradient of the step is llm_param.grad. */
void llm_share_end_parts(const struct llm_share *s, size_t i, int m, int64_t shard);
/* llm_grad_join of parameter number i for each part. */
void llm_share_join_uses(const struct llm_share *s, size_t i);

/* ---- share_experts.c ---- */
/* With experts that ranks divide: how many buffers each member's rows take. */
void llm_share_members_init(struct llm_share *s);
/* Buffers of parameter number i, an expert, for the rows of member m. */
float *llm_share_member_buffers(const struct llm_share *s, size_t i, int m);
/* llm_shard_end of parameter number i. Of an expert, for each member's last shard. */
void llm_share_end_shard(struct llm_share *s, size_t i, int64_t shard);
/* Gradients that are kept apart become zero, but the first, which llm_params_update clears. */
void llm_share_clear_apart(struct llm_share *s);

/* Bytes that a rank sends of weights of layers, `elements` without those of the first group, which the next forward pass waits for as it enters
 * them. */
double llm_share_ahead(const struct llm_layout *l, const struct llm_train_options *o, double elements, int64_t n_ranks);

/* ---- share_cells.c ---- */
/* Divides the parameters, which are set. */
int llm_share_cells_init(struct llm_share *s, const struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
/* A run of elements of one parameter that a rank owns within a unit. */
struct llm_share_run { size_t param, from, n; int owner; };
/* The next run of `owner` in the unit, from entry *at of llm_share.listed on, which moves past it. False: there is none. */
bool llm_share_next_run(const struct llm_share *s, const struct llm_share_unit *u, int owner, size_t *at, struct llm_share_run *run);

/* In which of so many parts of a group's `total` elements the middle of a cell of n lies, with so many before it. */
int llm_share_part_of(int owners, size_t before, size_t n, size_t total);
/* The owner of a part of a group: the next one in each group, so that the same ranks do not have the larger parts of all layers. */
int llm_share_owner_of(int owners, int part, int64_t group);
/* The rank that moves a cell in this rank's lane. */
int llm_share_owner(const struct llm_share *s, const struct llm_share_cell *c);
/* The ranks among which the gradients of a unit travel, as this rank takes part in it: first, first + step, … */
struct llm_share_peers { int first, step; };
struct llm_share_peers llm_share_peers(const struct llm_share *s, const struct llm_share_unit *u);
/* Whether rank q and this rank exchange parameters of a unit: q computes with them, in this rank's lane where every lane does. */
bool llm_share_keeps(const struct llm_share *s, const struct llm_share_unit *u, int q);

/* ---- share_messages.c ---- */
/* Messages of so many bytes at p, in pieces, to or from `peer`: appended to the list. */
struct llm_transfers { struct llm_transfer **v; size_t *n, *room; };
int llm_share_post(struct llm_comm *c, const struct llm_transfers *l, int peer, void *p, size_t bytes, bool receives, struct llm_err *e)
    LLM_MUST_CHECK;
/* One more, or one less, exchange is under way. */
void llm_share_count(struct llm_share *s, int change);
/* Waits for a list; the time counts as blocked. */
int llm_share_wait(struct llm_share *s, struct llm_comm *c, struct llm_transfer *t, size_t n, struct llm_err *e) LLM_MUST_CHECK;

/* ---- share_halving.c ---- */
/* Whether the gradients of a unit do, and the updated weights, or with zero 0 the gradients, that come from their owners. */
bool llm_share_halves(const struct llm_share *s, const struct llm_share_unit *u);
bool llm_share_doubles(const struct llm_share *s, const struct llm_share_unit *u);
/* Elements of a unit that arrive in the first stage. */
size_t llm_share_halving_floats(const struct llm_share *s, const struct llm_share_unit *u);
int llm_share_begin_halving(struct llm_share *s, struct llm_share_unit *u, struct llm_err *e) LLM_MUST_CHECK;
/* Of all units under way: what has arrived is added, and next stages begin. */
int llm_share_poll_halving(struct llm_share *s, struct llm_err *e) LLM_MUST_CHECK;
/* Waits until the unit's owners have its sums in llm_param.grad. */
int llm_share_finish_halving(struct llm_share *s, struct llm_share_unit *u, struct llm_err *e) LLM_MUST_CHECK;
/* A stage of what comes from owners: whom this rank exchanges with. The runs that it sends then, and those that it receives, in an order that both
 * have; *at as of llm_share_next_run. */
struct llm_share_double { int peer, partner, mask; };
struct llm_share_double llm_share_double(const struct llm_share *s, const struct llm_share_unit *u, int stage);
bool llm_share_next_sent(const struct llm_share *s, const struct llm_share_unit *u, struct llm_share_double w, size_t *at, struct llm_share_run *r);
bool llm_share_next_received(const struct llm_share *s, const struct llm_share_unit *u, struct llm_share_double w, size_t *at,
                             struct llm_share_run *r);

/* ---- share_exchange.c ---- */
int llm_share_exchange_init(struct llm_share *s, struct llm_err *e) LLM_MUST_CHECK;
/* Begins the exchange of the gradients of a group, which are complete. */
int llm_share_send_group(struct llm_share *s, int64_t group, struct llm_err *e) LLM_MUST_CHECK;
/* Waits until the exchanges of a group that have begun are done and added. */
int llm_share_finish_group(struct llm_share *s, int64_t group, struct llm_err *e) LLM_MUST_CHECK;

/* ---- share_int8.c ---- */
/* Bytes that the sum of a unit of n elements takes while it is made. */
double llm_share_int8_memory(int64_t n_ranks, const struct llm_train_options *o, double n);
/* Bytes that a rank sends in a step, with an update of `params` parameters, at most; `rounded` of them travel in BF16. */
double llm_share_int8_sent(int64_t n_ranks, const struct llm_layout *l, const struct llm_train_options *o, double params, double rounded);
/* Adds the shards that llm_shard_keep has kept: the owners, or with zero 0 all ranks, have the gradient in llm_param.grad. Collective. */
int llm_share_add_int8(struct llm_share *s, struct llm_err *e) LLM_MUST_CHECK;

/* ---- share_bf16.c ---- */
/* Before the messages of b->group: room for what this rank rounds. */
int llm_share_make_rounded(struct llm_share *s, struct llm_share_brought *b, struct llm_err *e) LLM_MUST_CHECK;
/* x, what this rank owns of a run, rounded, in memory of b's until the group is brought anew. */
uint16_t *llm_share_round(struct llm_share_brought *b, const struct llm_share_run *r, const float *x);
/* Where n elements in BF16 arrive that x will have, and their entry among those that llm_share_widen widens when all have arrived. */
void *llm_share_place_rounded(float *x, size_t n);
int llm_share_add_widened(struct llm_share_brought *b, float *x, size_t n, struct llm_err *e) LLM_MUST_CHECK;
void llm_share_widen(struct llm_share_brought *b);

/* ---- share_node.c ---- */
/* Collective: memory for the weights of all parameters, where ranks of a machine can have them once. */
int llm_share_node_init(struct llm_share *s, const struct llm_train_options *o, bool adapted, struct llm_err *e) LLM_MUST_CHECK;
/* Moves the weights of parameter number i to the shared memory, if there is any; every rank has the same. */
void llm_share_node_place(struct llm_share *s, size_t i);
void llm_share_node_forget(struct llm_share *s);
/* Whether rank q has the same copy of the weights, and whether it is the one that receives for its machine. */
bool llm_share_near(const struct llm_share *s, int q);
bool llm_share_receives(const struct llm_share *s, int q);
/* Whether rank q owns something of a group. Of ranks that have weights together. */
bool llm_share_owns_of(const struct llm_share *s, int64_t group, int q);

/* ---- share_layers.c ---- */
/* The group of a layer, or of the number of layers (llm_share_group_of). */
static inline int64_t llm_share_group(const struct llm_share *s, int64_t layer)
{
    return llm_share_group_of(s->first_layer, s->pp * s->vp, s->group_layers, layer);
}
int llm_share_layers_init(struct llm_share *s, const struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
void llm_share_layers_release(struct llm_share *s);
/* Does what the pass at hand has not come to: brings and sends the groups that are left, as the other ranks do. */
int llm_share_end_pass(struct llm_share *s, struct llm_err *e) LLM_MUST_CHECK;
/* Tests messages under way. */
void llm_share_poll(void *share);

#endif
