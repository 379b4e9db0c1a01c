/* Tensors, parameters and the context in which operations run. Operations are eager; a tape records them if gradients are wanted
 * (lib/README.md, Memory: who owns what).
 *
 * Activations are matrices [tokens, width] of F32. Memory is last-in-first-out: outputs and the data saved for the backward pass lie on the arena
 * `acts` in the order of the forward pass. The backward pass walks the tape from its end and pops the arena as it goes. Gradients of activations live
 * on `grads`.
 * Errors are sticky: an op that fails records the first error in the context and every later op returns at once. So a forward function is plain C
 * that reads like the formula, and its caller checks llm_ctx_failed once. */
#ifndef LLM_TENSOR_TENSOR_H
#define LLM_TENSOR_TENSOR_H

#include <stdbool.h>
#include <stdint.h>
#include "base/arena.h"
#include "cpu/matmul.h"

/* What a parameter does. Optimizers treat the roles differently (Muon takes the hidden matrices alone). */
enum llm_role {
    LLM_ROLE_VECTOR,          /* gains, biases */
    LLM_ROLE_TABLE,           /* an embedding, whose rows are looked up; it is also the head if the two are tied */
    LLM_ROLE_HIDDEN,          /* a matrix within the layers */
    LLM_ROLE_HEAD             /* the projection onto the vocabulary */
};
enum { LLM_MAX_PARTS = 5 };

struct llm_param;
/* What is added to a matrix w [n, k] at low rank (LoRA, Hu et al. 2021): products with it become x·wᵀ + scale·(x·aᵀ)·bᵀ. a [rank, k] and b [n, rank]
 * are parameters of their own, in floating point; w may be frozen and of any stored type. A matrix may have several, which are added in order.
 * With a magnitude (DoRA, Liu et al. 2024, equation 5) row j of w + scale·b·a is multiplied by the gain magnitude[j] / norm[j], 1 if norm[j] is 0:
 * products become x·wᵀ + factor·((gain - 1)·x·wᵀ + gain·(scale / factor)·(x·aᵀ)·bᵀ). With dropout, the second and the third x are the dropped one, as
 * in PEFT. Gradients pass where it is the matrix's only adapter, of factor 1. */
struct llm_adapter {
    struct llm_param *a, *b;
    struct llm_param *magnitude; /* [n]; NULL: none */
    const float *norm;        /* [n], with a magnitude: the lengths of the rows of w + (scale / factor)·b·a, by llm_adapter_norms. The backward pass
                               * takes them for constants (section 4.3 of the paper) */
    float scale;
    float factor;             /* with a magnitude: what the user multiplies the adapter's effect by; `scale` contains it */
    float dropout;            /* in training: the probability with which elements of the x that a multiplies are dropped */
    uint32_t number;          /* of the matrix in the model: the mask of dropout depends on it */
    int id;                   /* of the model's adapter that this is a part of (llm_adapter_rows.factors) */
    const struct llm_adapter *next; /* NULL: the last of the matrix */
};

/* Two factors whose Kronecker product stands for the curvature of the loss by a matrix w [n, k]. The backward pass adds, for every token with the
 * input x of w and the gradient g of its output: |g|²·x·xᵀ to `in` [k, k] and |x|²·g·gᵀ to `out` [n, n]. That is one step of the power iteration for
 * the best pair of factors, from unit matrices (YAQA, Tseng et al. 2025). Of an embedding, a product with unit vectors, the gradient g of a looked-up
 * row adds g·gᵀ to `in`, the factor of the columns, and `out` is NULL. */
struct llm_kronecker { float *in, *out; };

struct llm_param;
/* The slices of a matrix or a vector in tensor parallelism (tensor/slices.h): n parameters, which are read, trained and moved in its place. A matrix
 * is cut by rows, which are outputs, or by columns, which are inputs; a vector by elements. */
struct llm_slices {
    bool by_columns;
    int n, first, end;        /* slices [first, end) are at this rank; others have no data */
    int64_t fused[LLM_MAX_PARTS]; /* cut by rows: the rows of each matrix that the whole is a fusion of, of which slice j has slice j; 0 ends the
                               * list, and if it is the first, the whole is one matrix */
    struct llm_param *of;     /* [n]; owned */
    struct llm_param *whole;  /* what is cut; it has no data */
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
    float *grad_lookup;       /* tied embeddings: the lookup's gradient has its own accumulator, which is added to grad at the step's end */
    int32_t *lookup_place;    /* [shape[0]]: the row of grad_lookup that holds the gradient of row i; -1: none, the gradient is zero. NULL:
                               * grad_lookup has all rows, in order. A step looks up few rows, so only those are stored and added */
    int32_t lookup_rows;      /* rows of grad_lookup in use */
    const struct llm_kronecker *kronecker; /* of matrices of llm_linear and llm_embedding: what the backward pass sums up; borrowed; NULL: nothing */
    enum llm_role role;
    int64_t parts[LLM_MAX_PARTS]; /* rows of each matrix of which this one is the concatenation (q, k, v); 0 ends the list */
    float **grad_use;         /* [n_grad_uses] extra gradient accumulators of a parameter that a model uses more than once; owned. Embedding or head:
                               * use u (llm_ctx.use, u ≥ 1) keeps its lookup gradient at index 2(u - 1) and its head gradient at 2(u - 1) + 1. An
                               * attention bias that layers share: index llm_attn.rel_use. NULL if that use does not occur */
    int n_grad_uses;
    int sharers;              /* how many layers share the parameter; each adds to its gradient through an accumulator of its own. 0: one use */
    bool decay;               /* weight decay applies (matrices only) */
    bool balances;            /* a router's bias (DeepSeek-V3): it has no gradient. Its `grad` counts the tokens that chose each expert; each step
                               * moves elements whose count is below the mean up by balance_rate, those above it down */
    float balance_rate;       /* 0: the bias stays as it is */
    bool running;             /* running statistics of BatchNorm, without a gradient: each pass adds its statistics to `grad`, and the step moves the
                               * values towards the mean of these */
    bool owned;               /* weight.data was malloced by the model */
    struct llm_slices *slices; /* what stands for the parameter in tensor parallelism; owned by the model; NULL: it is whole */
    const struct llm_slices *slice_of; /* the parameter is one of these slices; NULL: it is none */
};
static inline int64_t llm_param_count(const struct llm_param *p)
{
    int64_t n = 1;
    for (int i = 0; i < p->n_dims; i++) n *= p->shape[i];
    return n;
}
/* Empties grad_lookup: no row has a place in it, so all of its gradient is zero. */
static inline void llm_lookups_forget(struct llm_param *p)
{
    for (int64_t i = 0; p->lookup_place && i < p->shape[0]; i++) p->lookup_place[i] = -1;
    p->lookup_rows = 0;
}
/* grad_use[at], or NULL if there is no such accumulator. */
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

/* A buffer that all recomputed activations of one kind share (enum llm_recompute). It holds the values of one of them at a time. */
struct llm_shared_buffer {
    float *data;
    size_t count;   /* floats */
    uint64_t owner; /* llm_tensor.owner_id of the activation whose values it holds; 0: none */
    struct llm_shared_buffer *smaller; /* the one in whose place it came; NULL: none */
};

struct llm_ctx;
struct llm_group;
struct llm_sequence;
struct llm_inner;
/* An activation. Columns are contiguous; `stride` is the distance between rows in elements, so a run of columns is a view. */
struct llm_tensor {
    int64_t rows, cols, stride;
    float *data;
    float *grad;              /* during the backward pass: [rows, cols], rows grad_stride apart; NULL until something was added */
    int64_t grad_stride;
    struct llm_tensor *base;  /* a view: the tensor whose columns it shows, and in whose gradient its own lies; NULL: no view */
    int64_t column;           /* a view: its first column in `base` */
    bool needs_grad;
    bool panels;              /* `data` are not floats but panels of BF16 (llm_panels_put), which only llm_linear reads. No view, and never kept: a
                               * recomputed activation, or one of a pass without a tape */
    void *packed;             /* the values as panels too, beside the floats, which only llm_linear reads; whoever writes over the floats resets it.
                               * NULL: there are none */
    bool spare;               /* the backward pass of the op that made it does not read its values, so they may be overwritten */
    struct llm_shared_buffer *shared; /* a recomputed activation: the buffer that `data` points into; NULL: the values are kept */
    uint64_t owner_id;        /* its values are in `shared` if shared->owner equals this */
    struct llm_node *maker;   /* the op that made it, which can recompute the values */
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

/* The loads of all routers of a forward pass, which the balance loss needs (op/route.c). Owned by the context; llm_ctx_reset empties it. */
struct llm_router_loads {
    int64_t *sum;             /* [rows, experts]: how many tokens of a row chose an expert, over the layers that have run */
    bool *seen;               /* [n_seen], by llm_ctx.layer: the layer's load is in `sum`, so that recomputing the layer does not add it again */
    size_t room, n_seen, seen_room;
    int64_t rows, experts, n_layers; /* n_layers 0: nothing was added since the reset */
};

/* The experts that all routers of a forward pass chose. With `replay` a later pass takes the same experts whatever its logits are. Gradient checks
 * need this: a difference of losses must not contain the jump from one choice to another. */
struct llm_choices { int32_t *ids; size_t n, room, at; bool replay; };

/* The type in which a block's activations are kept for the backward pass. */
enum llm_stored {
    LLM_STORED_F32, LLM_STORED_BF16,
    LLM_STORED_INT8,          /* blocks of 32 values with one scale */
    LLM_STORED_TOP,           /* of what only products and activation functions read, the largest elements of each row; the rest BF16 */
    LLM_STORED_RANK           /* of the same outputs factors of a low rank, each row of the batch by itself; the rest BF16 */
};

/* What a trainer does between the layers of a model's main stack: it sends gradients that are complete while the backward pass goes on, and brings
 * parameters that other ranks keep. A context borrows it. */
struct llm_between {
    const void *model;        /* the struct llm_model whose layers count; those of other models are passed over */
    int64_t recorded;         /* forward passes that were recorded; counted by the walk */
    void (*enter)(struct llm_between *b, struct llm_ctx *c, int64_t layer); /* before a layer's forward function, when recomputed, too */
    /* The backward pass has left layer `layer`, and with it all later ones; the number of layers: it has left what follows the stack. */
    void (*left)(struct llm_between *b, struct llm_ctx *c, int64_t layer);
};

/* The layers of a model's main stack that this process runs: a stage of a pipeline. What comes before them and what follows runs elsewhere. A context
 * borrows it. */
struct llm_stage {
    const void *model;        /* the struct llm_model that is cut; others run whole */
    int64_t first, end;       /* layers [first, end) */
    bool last;                /* they are the last ones, so that the model's output follows */
    /* The input [rows, cols] of layer `first`, unless that is 0: on the context's acts; with a tape it takes a gradient. */
    struct llm_tensor *(*input)(struct llm_stage *cut, struct llm_ctx *c, int64_t rows, int64_t cols);
    /* Takes the output of layer end - 1, unless it is the last one. It stays until its backward pass. */
    void (*output)(struct llm_stage *cut, struct llm_ctx *c, struct llm_tensor *x);
};

/* Activation recomputation. Cheap activations (norm outputs, activation functions) are not kept for the backward pass but recomputed. All of one kind
 * share one buffer, so a block may ask for the buffer only if every reader of its previous contents has run; llm_record fails for a reader that comes
 * too late. Without a tape all activations are kept. */
enum llm_recompute { LLM_KEPT, LLM_RECOMPUTE_NORM, LLM_RECOMPUTE_INNER, LLM_RECOMPUTE_KINDS };

struct llm_ctx {
    struct llm_arena acts, grads;
    struct llm_arena store;   /* when recording: activations of finished blocks in the type `stored` */
    struct llm_arena shared_arena; /* when recording: the shared buffers */
    struct llm_shared_buffer *shared[LLM_RECOMPUTE_KINDS]; /* the buffer of each kind; NULL: none yet */
    uint64_t n_owners;        /* recomputed activations so far: the last owner_id given */
    enum llm_recompute recompute; /* the kind of the next outputs of llm_rmsnorm, llm_layernorm, llm_activation and llm_gated */
    bool to_panels;           /* the next outputs of llm_rmsnorm, llm_layernorm, llm_activation and llm_gated are panels (llm_tensor.panels), those of
                               * attention have panels beside their floats (llm_tensor.packed). Set by llm_panels_for, reset by the caller */
    enum llm_stored stored;   /* not F32: gradients are those of rounded activations; the loss is not changed */
    double stored_share;      /* of LLM_STORED_TOP: the share of the elements that stay */
    int64_t stored_rank;      /* of LLM_STORED_RANK */
    struct llm_tape *tape;    /* NULL: not recording */
    enum llm_compute compute;
    bool training;            /* dropout is applied */
    /* Training: the batch has n_rows rows of row_len tokens. first_row is the number of the first row in the step, for random numbers. */
    int64_t n_rows, row_len, first_row;
    uint64_t seed, step;
    double z_loss;            /* cross-entropies have the gradient of nll + z_loss·logsumexp², and still report nll */
    double token_weight;      /* weight of a token's router losses in the loss of the step: 1 / (all tokens of the step, masked ones too); 0: router
                               * losses are off */
    struct llm_router_loads router_loads;
    int use;                  /* number of the next use of a matrix that the model uses more than once (embedding, head); the first is 0 */
    struct llm_choices *choices; /* routers' choices to keep or to replay; NULL: neither; borrowed */
    uint32_t layer;           /* set by the model before each block, for random numbers and messages */
    struct llm_err err;       /* the first failure; status 0: none */
    struct llm_adapter_rows adapters;
    struct llm_watch *watch;  /* observers and editors of the model that runs here (model/forward/watch.h); borrowed; NULL: none */
    struct llm_between *between; /* borrowed; NULL: nothing happens between layers */
    struct llm_stage *cut;      /* borrowed; NULL: models run whole */
    struct llm_group *group;    /* the ranks that have the slices of the model's matrices; borrowed; NULL: this process has all of them */
    struct llm_group *experts;  /* the ranks that divide experts (tensor/experts.h); borrowed; NULL: this process has all of them */
    const struct llm_sequence *sequence; /* the parts of the rows (tensor/sequence.h); borrowed; NULL: rows are whole and of one part */
    int64_t boundary;         /* the next node that is recorded is the first of layer boundary - 1; 0: of no layer */
    bool recomputing;         /* a block runs again for its backward pass: observers have seen its values */
    struct llm_rope_tables *rope_tables; /* op/rope.c's, NULL until needed */
    struct llm_tensor nothing; /* what ops return after a failure: [0, 0] */
};

/* Reserves address space: acts_limit and grads_limit bytes for the arenas. `recording`: with a tape. 0, or -1 with nothing to release. */
int llm_ctx_init(struct llm_ctx *c, size_t acts_limit, size_t grads_limit, bool recording, struct llm_err *e) LLM_MUST_CHECK;
void llm_ctx_release(struct llm_ctx *c);
static inline bool llm_ctx_failed(const struct llm_ctx *c) { return c->err.status != 0; }
/* Discards the tape and all activations. To be called between steps. */
void llm_ctx_reset(struct llm_ctx *c);
/* The sum of the maximum sizes so far of the arenas of activations, gradients, stored activations and shared buffers, in bytes. */
static inline double llm_ctx_peak_bytes(const struct llm_ctx *c)
{
    return (double)(c->acts.peak + c->grads.peak + c->store.peak + c->shared_arena.peak);
}

/* An uninitialised activation on `acts`, without gradient. Never NULL: after a failure the empty tensor c->nothing. */
struct llm_tensor *llm_tensor_create(struct llm_ctx *c, int64_t rows, int64_t cols);
/* A view of columns [from, from + n) of x, which shares x's data and gradient. */
struct llm_tensor *llm_columns(struct llm_ctx *c, struct llm_tensor *x, int64_t from, int64_t n);

/* The gradient of x, to be written before llm_backward: contiguous rows, zeroed if it is new. NULL if x takes no gradient or memory is short. */
float *llm_tensor_grad(struct llm_ctx *c, struct llm_tensor *x);
/* The backward pass: walks the tape from its end. The gradient of the last output must be set, or a loss op must have set those of its inputs. Adds
 * to the `grad` of parameters. Frees the memory of each op, its output included, as soon as the op's backward function has run. */
void llm_backward(struct llm_ctx *c);

/* Frees everything on `acts` above `mark` except y, which is moved down to `mark` as a contiguous tensor. Returns the moved tensor; the old pointer
 * is invalid. With a tape, or if y lies below `mark`, nothing is moved. A model that calls it after each block keeps one hidden state in memory. */
struct llm_tensor *llm_keep_only(struct llm_ctx *c, size_t mark, struct llm_tensor *y);

/* Runs `block` so that only its input and output stay in memory. Without a tape the rest of the arena is popped and the output moved down. With a
 * tape (activation checkpointing) the block runs unrecorded now, and again, recorded, in the backward pass. The bits are the same either way.
 * `keep`: training without checkpointing; the block's activations are kept in the type c->stored. */
struct llm_tensor *llm_run_block(struct llm_ctx *c, struct llm_tensor *(*block)(struct llm_ctx *, void *arg, struct llm_tensor *x),
                                 void *arg, struct llm_tensor *x, bool keep);

#endif
