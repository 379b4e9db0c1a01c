/* What of a training run each of several ranks does: data parallelism. All ranks read the same data and make the same rows of a step. Each
 * runs the rows of its own gradient shards (train/shards.h) and sends the sums of its nodes of the tree to the owners of the elements, who add
 * them in the tree's order. So the parameters have the same bits at every step for any number of ranks.
 *
 * The elements are divided into cells: 64 Ki elements of a parameter (the blocks of gradient norms), or a whole parameter where its update looks
 * at all of it. Each rank owns a run of cells of about the same number of elements.
 *
 * zero 0: every rank gets the whole gradient and updates all parameters. zero 1 (ZeRO-1): a rank keeps moments of its own cells alone and
 * updates these; then every rank gets the updated parameters. */
#ifndef LLM_TRAIN_SHARE_H
#define LLM_TRAIN_SHARE_H

#include "dist/comm.h"
#include "train/optim.h"
#include "train/shards.h"

/* How a run is divided among ranks: what --shard says. */
struct llm_layout { int64_t dp, zero; }; /* dp 0: as many as there are ranks */
/* "dp=4,zero=1". -1: `e` names what is not understood, or not built. */
int llm_layout_read(struct llm_layout *l, const char *text, struct llm_err *e) LLM_MUST_CHECK;
/* Whether the layout fits n_ranks ranks. 0 or -1 (LLM_EX_USAGE). */
int llm_layout_check(const struct llm_layout *l, int n_ranks, struct llm_err *e) LLM_MUST_CHECK;

/* Whether there are enough shards for n_ranks ranks. 0 or -1 (LLM_EX_USAGE). */
int llm_share_check(int64_t n_ranks, int64_t n_shards, struct llm_err *e) LLM_MUST_CHECK;
/* What a rank sends in a step, and takes for messages, at most, with n_params trained elements, by formula. */
struct llm_share_cost { int64_t nodes, buffers; double sent, staging; };
struct llm_share_cost llm_share_cost(int64_t n_ranks, int64_t n_shards, double n_params);

struct llm_share {
    struct llm_comm *comm;          /* borrowed; NULL: one rank */
    int rank, n, zero;
    struct llm_shard_run run;       /* of this rank */
    struct llm_share_cell { size_t param, from, n; } *cells; /* owned, as all below */
    size_t n_cells, *first_cell;    /* [n + 1] first cell of each rank's */
    struct llm_shard_node *nodes;   /* of all ranks, in order */
    size_t n_nodes, *first_node;    /* [n + 1] */
    size_t bucket;                  /* elements of an owner that travel at a time; a larger cell travels alone */
    float *send, *receive;          /* staging: what leaves, and what arrives */
    double *squares;                /* [n_cells] */
    void **parts;                   /* [n] arguments of collective calls, as the next */
    const void **out;
    size_t *bytes, *out_bytes;
};

/* Divides the parameters, whose optimizers are set, and says in each which elements this rank updates. More ranks than shards: -1 (LLM_EX_USAGE).
 * Zero-initialise; release either way. */
int llm_share_init(struct llm_share *s, struct llm_comm *comm, const struct llm_layout *l, struct llm_trainable *t, size_t n_params, int64_t n_shards,
                   struct llm_err *e) LLM_MUST_CHECK;
void llm_share_release(struct llm_share *s);

/* After the last shard of the run: the step's gradient. With zero 0 all of llm_param.grad, else that of the rank's own cells. */
int llm_share_reduce(struct llm_share *s, struct llm_trainable *t, struct llm_err *e) LLM_MUST_CHECK;
/* Every rank gets the owners' elements of all gradients, or of all masters. */
enum llm_share_what { LLM_SHARE_GRADIENTS, LLM_SHARE_MASTERS };
int llm_share_gather(struct llm_share *s, struct llm_trainable *t, enum llm_share_what what, struct llm_err *e) LLM_MUST_CHECK;
/* llm_grad_norm of gradients that the owners have: the same bits. */
int llm_share_norm(struct llm_share *s, struct llm_trainable *t, size_t n_params, double *norm, const struct llm_param **bad, struct llm_err *e)
    LLM_MUST_CHECK;
/* A moment of parameter number `param`, of which `mine` has this rank's elements: rank 0 gets all of them in `all`. */
int llm_share_collect(struct llm_share *s, size_t param, const float *mine, float *all, struct llm_err *e) LLM_MUST_CHECK;
/* x [rows, width]: every rank gets the rows that others ran. */
int llm_share_rows(struct llm_share *s, float *x, int64_t rows, int64_t width, struct llm_err *e) LLM_MUST_CHECK;

#endif
