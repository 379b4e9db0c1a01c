/* Tensors, parameters and the context in which operations run: eager, recorded on a tape when gradients are wanted
 * (lib/README.md, Memory: who owns what).
 *
 * Activations are matrices [tokens, width] of F32. Memory is last-in-first-out: outputs and what a backward needs lie on the arena `acts`
 * in the order of the forward; backward walks the tape and pops as it goes; gradients of activations live on `grads`.
 * Errors are sticky: an op that fails records the first error in the context and every later op returns quietly, so a forward
 * function is plain C that reads like the formula, and its caller checks llm_ctx_failed once. */
#ifndef LLM_TENSOR_TENSOR_H
#define LLM_TENSOR_TENSOR_H

#include <stdbool.h>
#include <stdint.h>
#include "base/arena.h"
#include "cpu/matmul.h"

/* What a parameter does, for optimizers that treat kinds of them differently. */
enum llm_role {
    LLM_ROLE_VECTOR,          /* gains, biases */
    LLM_ROLE_TABLE,           /* rows are looked up; also a head when tied */
    LLM_ROLE_HIDDEN,          /* a matrix within the layers */
    LLM_ROLE_HEAD             /* onto the vocabulary */
};
enum { LLM_MOST_PARTS = 3 };

struct llm_param;
/* What is added to a matrix w [n, k] at low rank (LoRA, Hu et al. 2021): products with it become x·wᵀ + scale·(x·aᵀ)·bᵀ. a [rank, k] and b [n, rank]
 * are parameters of their own, in floating point; w may be frozen and of any stored type. A matrix may have several, which are added in order. */
struct llm_adapter {
    struct llm_param *a, *b;
    float scale;
    float dropout;            /* in training: the probability with which elements of the x that a multiplies are dropped */
    uint32_t number;          /* of the matrix in the model: the mask of dropout depends on it */
    int id;                   /* of the model's adapter that this is a part of (llm_adapter_rows.factors) */
    const struct llm_adapter *next; /* NULL: the last of the matrix */
};

struct llm_param_spec;
/* A parameter: named, persistent, shared by training, inference and files. */
struct llm_param {
    const char *name;         /* Hugging Face name; the declaration's */
    const struct llm_param_spec *spec; /* its declaration (model/spec/declare.h), owned by the model; NULL outside of models */
    int n_dims;
    int64_t shape[4];
    struct llm_weight weight; /* what ops read: F32, BF16, F16 or quantised; [shape[0], rest] */
    const struct llm_adapter *adapter; /* the first, of matrices of llm_linear, llm_mixture and llm_cross_entropy; borrowed; NULL: none */
    float *master;            /* F32 values while training (weight.data, which training in BF16 reads rounded); NULL otherwise */
    float *grad;              /* F32, accumulated over the step; NULL: frozen. A frozen parameter has none of what follows, and its weight may be
                               * of any stored type: gradients of activations pass through its decoded values */
    float *grad_lookup;       /* tied embeddings: the lookup's gradient has its own accumulator, added to grad at the step's end */
    int32_t *lookup_place;    /* [shape[0]]: which row of grad_lookup is that of row i, -1: none yet, it is zero; NULL: row i of all. So a step, which
                               * looks few rows up, goes over no more of them */
    int32_t lookup_rows;      /* how many have a place */
    enum llm_role role;
    int64_t parts[LLM_MOST_PARTS]; /* rows of the matrices that lie one below the other in this one (q, k, v); 0: no more */
    float **grad_use;         /* [n_grad_uses] likewise of further uses, NULL where there is none: of llm_ctx.use u the lookup's at 2(u - 1), the
                               * head's behind it; of attention's biases that layers share (llm_attn.rel_use) each layer's. Owned */
    int n_grad_uses;
    int sharers;              /* layers that add to its gradient one behind the other, each through an accumulator of its own; 0: one use */
    bool decay;               /* weight decay applies (matrices only) */
    bool balances;            /* a router's bias (DeepSeek-V3): it has no gradient. Its `grad` counts the tokens that chose each expert; each step
                               * moves elements whose count is below the mean up by balance_rate, those above it down */
    float balance_rate;       /* 0: the bias stays as it is */
    bool running;             /* no gradient: running statistics, which follow the mean of those that a step's passes added to grad (BatchNorm) */
    bool owned;               /* weight.data was malloced by the model */
};
static inline int64_t llm_param_count(const struct llm_param *p)
{
    int64_t n = 1;
    for (int i = 0; i < p->n_dims; i++) n *= p->shape[i];
    return n;
}
/* No row has a place any more: all of grad_lookup is zero. */
static inline void llm_lookups_forget(struct llm_param *p)
{
    for (int64_t i = 0; p->lookup_place && i < p->shape[0]; i++) p->lookup_place[i] = -1;
    p->lookup_rows = 0;
}
/* The accumulator of use `at` of grad_use, where that use has one; else NULL. */
static inline float *llm_param_use(const struct llm_param *p, int64_t at)
{
    return at >= 0 && at < p->n_grad_uses ? p->grad_use[at] : NULL;
}

/* Which of a model's adapters act on which rows of a pass. Zeroed: all on all, with their scales. */
struct llm_adapter_rows {
    const float *const *factors; /* [n_tokens]: factors[t][id] multiplies the scale of adapter `id` for token t, 0: it does not act. An entry NULL:
                                  * all are 1. NULL: all entries are NULL. Borrowed */
    int64_t n_tokens;
    /* What an operation says of the rows of a product that are not all tokens in order; it resets them to 0. */
    const int32_t *slot;      /* row i is token slot[i] / per (experts); NULL: token first + i */
    int64_t per, first;
    int64_t row_len;          /* tokens in a row of the batch; 0: the rows of the product are those of the batch */
};

/* Memory that passing values take turns in (llm_ctx.passing). */
struct llm_passing_place { float *data; size_t count; uint64_t holds; /* whose turn it is */ };

struct llm_ctx;
struct llm_inner;
/* An activation. Columns are contiguous; `stride` is the distance between rows, so a run of columns is a view. */
struct llm_tensor {
    int64_t rows, cols, stride;
    float *data;
    float *grad;              /* during backward: same rows, cols; stride grad_stride; NULL until something was added */
    int64_t grad_stride;
    struct llm_tensor *base;  /* a view's whole; its gradient lies in the base's */
    int64_t column;           /* where the view begins */
    bool needs_grad;
    bool spare;               /* the way back of the op that made it does not read its values */
    struct llm_passing_place *place; /* of passing values: where they lie while it is their turn; NULL: they stay */
    uint64_t turn;
    struct llm_node *maker;   /* what can write them again */
    const struct llm_tensor *copied; /* of an editor's copy (llm_edit): what it was copied from; NULL */
    const struct llm_inner *edited; /* what writes over recomputed values (llm_edit); NULL */
};

static inline double llm_tensor_bytes(const struct llm_tensor *t) { return (double)t->rows * (double)t->cols * sizeof(float); }

struct llm_node;
struct llm_tape;
struct llm_rope_tables;
struct llm_watch;

/* Looks at rows [first, first + rows) of a value that an op has made, and may write over them. `again`: the values are recomputed for the backward
 * pass. A failure is the context's. Lives until the backward pass. */
struct llm_inner {
    void (*look)(const struct llm_inner *inner, struct llm_ctx *c, int64_t first, float *x, int64_t rows, int64_t cols, int64_t stride, bool again);
    void *arg;
};

/* The loads of all routers of a forward pass, which the loss for an even load needs (op/route.c). Owned by the context; llm_ctx_reset empties it. */
struct llm_router_loads {
    int64_t *sum;             /* [rows, experts]: how many tokens of a row chose an expert, over the layers that have run */
    bool *seen;               /* [n_seen], by llm_ctx.layer: the layer's load is in `sum`, so that recomputing the layer does not add it again */
    size_t room, n_seen, seen_room;
    int64_t rows, experts, n_layers; /* n_layers 0: nothing was added since the reset */
};

/* The choices of all routers of a forward pass, kept to be made again whatever the logits: for differences of a loss, which must not see the jumps
 * between one choice and another. */
struct llm_choices { int32_t *ids; size_t n, room, at; bool replay; };

/* How what a block computed is kept until its way back. */
enum llm_stored { LLM_STORED_F32, LLM_STORED_BF16, LLM_STORED_INT8 /* in blocks of 32 with a scale */ };

/* Values that cost little to make again need not stay until the way back. Those of each kind lie in one place, one after another: who asks for
 * them makes sure that everything that reads them has run before the next of the kind is made. Unless recording they stay. */
enum llm_passing { LLM_STAYS, LLM_PASSING_NORM, LLM_PASSING_INNER, LLM_PASSING_KINDS };

struct llm_ctx {
    struct llm_arena acts, grads;
    struct llm_arena store;   /* when recording: what blocks computed, in fewer bits */
    struct llm_arena passing_places;
    struct llm_passing_place *places[LLM_PASSING_KINDS]; /* NULL: none yet */
    uint64_t turns;
    enum llm_passing passing; /* of what llm_rmsnorm, llm_layernorm, llm_activation and llm_gated make next */
    enum llm_stored stored;   /* other than F32: gradients are those of rounded activations; losses stay as they are */
    struct llm_tape *tape;    /* NULL: not recording */
    enum llm_compute compute;
    bool training;            /* dropout acts */
    /* Geometry of the batch: rows of row_len tokens (training). first_row: global number of the first, for random numbers. */
    int64_t n_rows, row_len, first_row;
    uint64_t seed, step;
    double z_loss;            /* cross-entropies have the gradient of nll + z_loss·logsumexp², and still report nll */
    double token_weight;      /* of a token's own losses (routers') in the loss of the step: 1 / (tokens of the step), counted or not; 0: none are
                               * wanted */
    struct llm_router_loads router_loads;
    int use;                  /* which use of matrices that stand in several places (embeddings, head) comes next: 0: the first */
    struct llm_choices *choices; /* NULL: choices are neither kept nor given; borrowed */
    uint32_t layer;           /* set by the model before each block, for random numbers and messages */
    struct llm_err err;       /* the first failure; status 0: none */
    struct llm_adapter_rows adapters;
    struct llm_watch *watch;  /* observers and editors of the model that runs here (model/forward/watch.h); borrowed; NULL: none */
    bool recomputing;         /* a block runs again for its backward pass: observers have seen its values */
    struct llm_rope_tables *rope_tables; /* op/rope.c's, NULL until needed */
    struct llm_tensor nothing; /* what ops return after a failure: [0, 0] */
};

/* Reserves address space for both stacks. `recording`: with a tape. 0 or -1. */
int llm_ctx_init(struct llm_ctx *c, size_t acts_limit, size_t grads_limit, bool recording, struct llm_err *e) LLM_MUST_CHECK;
void llm_ctx_release(struct llm_ctx *c);
static inline bool llm_ctx_failed(const struct llm_ctx *c) { return c->err.status != 0; }
/* Forgets the tape and all activations: between steps. */
void llm_ctx_reset(struct llm_ctx *c);
/* What activations, their gradients and what is kept of them in fewer bits have taken so far: each at its most. */
static inline double llm_ctx_peak_bytes(const struct llm_ctx *c)
{
    return (double)(c->acts.peak + c->grads.peak + c->store.peak + c->passing_places.peak);
}

/* An uninitialised activation on `acts`, without gradient. Never NULL: after a failure a harmless empty one. */
struct llm_tensor *llm_tensor_create(struct llm_ctx *c, int64_t rows, int64_t cols);
/* Columns [from, from + n) of x, sharing data and gradient. */
struct llm_tensor *llm_columns(struct llm_ctx *c, struct llm_tensor *x, int64_t from, int64_t n);

/* Gradient of x to write before llm_backward (contiguous rows, zeroed if it is new); NULL when x takes none or memory is short. */
float *llm_tensor_grad(struct llm_ctx *c, struct llm_tensor *x);
/* Walks the tape from its end: `out`'s gradient must be set (or the loss op has set those of its inputs). Parameters' grad accumulate. Each
 * op's memory is given up as soon as it is undone, its output with it. */
void llm_backward(struct llm_ctx *c);

/* Gives up everything that lies on `acts` above `mark` except y, which moves down to it (as a contiguous tensor; the old pointer is void).
 * When recording, or when y lies below, nothing happens. A model that calls it after each block keeps one hidden state in memory. */
struct llm_tensor *llm_keep_only(struct llm_ctx *c, size_t mark, struct llm_tensor *y);

/* Runs `block` so that only its input and output stay in memory: without a tape the arena is popped and the result moved down; with a tape
 * (activation checkpointing) the block runs unrecorded now and again, recorded, on the way back. Same bits either way.
 * `keep` true (training without checkpointing): simply calls the block. */
struct llm_tensor *llm_run_block(struct llm_ctx *c, struct llm_tensor *(*block)(struct llm_ctx *, void *arg, struct llm_tensor *x),
                                 void *arg, struct llm_tensor *x, bool keep);

#endif
