/* How an op records itself, and how its backward function reaches gradients. For tensor/op/; blocks and objectives use only llm_op_alloc of this
 * file.
 *
 * An op does this (tensor/op/scale.c is the shortest example):
 *
 *     if (llm_ctx_failed(c)) return &c->nothing;
 *     struct llm_node n = {.backward = scale_backward, .mark = llm_arena_mark(&c->acts), .in = {x}};   before any allocation
 *     n.out = llm_tensor_create(c, x->rows, x->cols);
 *     float *saved = llm_tape_wants(c, &n) ? llm_op_alloc(c, …) : NULL;      what only the backward needs, on `acts`
 *     if (llm_ctx_failed(c)) return &c->nothing;
 *     … compute; scratch: take a mark, llm_op_alloc, llm_arena_pop to the mark …
 *     return llm_record(c, &n, &(struct scale_args){factor}, sizeof(struct scale_args));
 *
 * and its backward:
 *
 *     const struct scale_args *a = n->args;
 *     struct llm_grad g;
 *     const float *dy = n->out->grad;                      rows are n->out->grad_stride apart; complete, never NULL
 *     if (llm_grad_open(c, n->in[0], &g)) … write g.p when !g.add, else add to it …
 *     … add to n->param[i]->grad unless NULL (frozen), in the canonical order of tensor.h …
 *
 * llm_backward then drops out's gradient and pops `acts` to the mark, which frees the output, the saved data and the node. Backward functions may use
 * llm_op_alloc for scratch and need not pop it. Inputs may be views: rows are `stride` apart. */
#ifndef LLM_TENSOR_TAPE_H
#define LLM_TENSOR_TAPE_H

#include "tensor/tensor.h"

enum { LLM_NODE_INPUTS = 6 };
struct llm_node {
    void (*backward)(struct llm_ctx *c, struct llm_node *n);
    void (*recompute)(struct llm_ctx *c, struct llm_node *n); /* recomputes `out` from inputs that are kept; NULL: `out` is kept too */
    size_t mark;                  /* of `acts`, before the op allocated anything */
    struct llm_tensor *in[LLM_NODE_INPUTS]; /* unused ones are NULL */
    struct llm_tensor *out;       /* allocated by the op after the mark */
    struct llm_param *param[3];   /* unused ones are NULL */
    void *args;                   /* the op's own, copied by llm_record */
    bool reads_panels;            /* its first input may be panels */
    int64_t boundary;             /* llm_ctx.boundary when it was recorded; set by the tape */
    bool tolerant;                /* its backward pass takes inputs that are kept coarsely, and does not read its output */
    struct llm_node *before;      /* the node recorded before this one: the tape is a list from its end */
};

/* Whether the op will be recorded: there is a tape, and an input or a parameter takes a gradient. */
bool llm_tape_wants(const struct llm_ctx *c, const struct llm_node *n);
/* The output of an op that has `recompute`: on `acts` as llm_tensor_create makes it, or in a shared buffer if c->recompute names one. The op writes
 * it through llm_fill_rows, because it may be panels (c->to_panels). */
struct llm_tensor *llm_op_output(struct llm_ctx *c, const struct llm_node *n, int64_t rows, int64_t cols);
/* Computes all rows of y, which llm_op_output made, on all threads: `piece` writes rows [from, to) to `rows`, ld floats apart. If y is panels, the
 * rows are packed from there. */
void llm_fill_rows(struct llm_ctx *c, struct llm_tensor *y, void (*piece)(const void *arg, int64_t from, int64_t to, float *rows, int64_t ld),
                   const void *arg);
/* Records the op if llm_tape_wants it, and then sets out->needs_grad. `args` (n_args bytes, may be 0) are copied. Returns n->out, or &c->nothing on
 * failure. */
struct llm_tensor *llm_record(struct llm_ctx *c, const struct llm_node *n, const void *args, size_t n_args);

/* 64-byte aligned, uninitialised memory on `acts`: count · size bytes, the product checked. NULL and a sticky failure if the arena is used up. */
void *llm_op_alloc(struct llm_ctx *c, int64_t count, size_t size);
/* Sets the context's error unless it has one already. Returns &c->nothing. */
struct llm_tensor *llm_op_fail(struct llm_ctx *c, int status, const char *fmt, ...) LLM_PRINTF(3, 4);

/* ---- gradients of activations ----
 * They live in reference-counted blocks on `grads`; a new one takes the lowest free block that fits. A view's gradient lies in that of its base. */
struct llm_grad {
    float *p;
    int64_t stride;
    bool add;  /* true: it has values, add to them. false: every element [rows, cols] of the tensor must be written */
};
/* Opens x's gradient for writing. False if x takes no gradient, or after a failure. */
bool llm_grad_open(struct llm_ctx *c, struct llm_tensor *x, struct llm_grad *g);
/* Opens x's gradient for adding: elements without a value are set to zero first, so g->add is always true. False as llm_grad_open. */
bool llm_grad_open_zeroed(struct llm_ctx *c, struct llm_tensor *x, struct llm_grad *g);
/* Opens x's gradient for an op that can work in place. If no other tensor needs y's gradient and x has none, x takes over y's memory (g->p == the old
 * y->grad, g->add false); so read y->grad before the call. Shapes of x and y are equal. False as llm_grad_open. */
bool llm_grad_open_over(struct llm_ctx *c, struct llm_tensor *x, struct llm_tensor *y, struct llm_grad *g);
/* Writes x [rows, cols], rows `stride` apart, to an open gradient, or adds it to the gradient's values. */
void llm_grad_give(const struct llm_grad *g, const float *x, int64_t stride, int64_t rows, int64_t cols);
/* Adds y's gradient to x's. If x has none yet, the two share the memory. Shapes are equal. */
void llm_grad_pass(struct llm_ctx *c, struct llm_tensor *x, struct llm_tensor *y);

/* ---- the canonical order of sums over tokens ----
 * Parameter gradients fold blocks of LLM_FOLD tokens within a row, rows in order: each block is summed from zero, then added. */
enum { LLM_FOLD = 256 };
/* Tokens per row of the batch for a tensor of `rows` rows: rows / n_rows, which is row_len or the length of the encoder's rows. If n_rows does not
 * divide `rows`, or outside of training: all of them as one row. */
static inline int64_t llm_row_len(const struct llm_ctx *c, int64_t rows)
{
    return c->n_rows > 0 && rows > 0 && rows % c->n_rows == 0 ? rows / c->n_rows : rows;
}
/* The end (exclusive) of the block of at most LLM_FOLD tokens that begins at token `at`. */
static inline int64_t llm_fold_end(int64_t rows, int64_t row_len, int64_t at)
{
    int64_t row_end = (at / row_len + 1) * row_len, end = at + LLM_FOLD;
    if (end > row_end) end = row_end;
    return end < rows ? end : rows;
}

/* A vector parameter as n floats: its own memory if it is F32, else decoded on `acts`. NULL after a failure; a length other than n is a failure. */
const float *llm_op_vector(struct llm_ctx *c, const struct llm_param *p, int64_t n);

/* ---- adapters (op/adapter.c) ---- */
/* A matrix of w's adapter that takes a gradient, for llm_node.param. NULL: there is no adapter, or it is frozen. */
struct llm_param *llm_adapter_trained(const struct llm_param *w);
/* y [m, n], which is x·wᵀ + bias (NULL: none), becomes the product with w's adapters; does nothing if there is none. False after a failure. Scratch
 * memory on `acts` is popped. */
bool llm_adapter_add(struct llm_ctx *c, struct llm_param *w, const float *bias, const float *x, int64_t ldx, float *y, int64_t ldy, int64_t m);
/* The blocks of tokens over which a gradient is summed: given ones, or the blocks of LLM_FOLD tokens of rows of row_len tokens. */
struct llm_folds {
    int64_t row_len;
    const int64_t *starts;    /* NULL: row_len holds */
    int64_t n_blocks;
    int64_t parts, first;     /* parts > 1: rows are parts of rows (tensor/sequence.h), of which token 0 is in number `first` */
};
/* The folds of a tensor of `rows` tokens. */
struct llm_folds llm_folds_of(const struct llm_ctx *c, int64_t rows);
/* To which of a parameter's gradients a token adds. */
static inline int64_t llm_folds_part(const struct llm_folds *f, int64_t token)
{
    return f->parts > 1 ? (f->first + token / f->row_len) % f->parts : 0;
}
/* grad += dyᵀ·x over m tokens, where grad is w's gradient or that of another of its uses: of each part the part's. panels: x as panels, or NULL.
 * False after a failure. */
bool llm_weight_grad(struct llm_ctx *c, const struct llm_param *w, float *grad, const float *dy, int64_t ldy, const float *x, int64_t ldx,
                     const void *panels, int64_t m, const struct llm_folds *folds, enum llm_compute compute);
/* Adds to the gradients of the adapter's a, b and magnitude, unless frozen, from the outputs' gradient dy [m, n] and the inputs x [m, k]. False
 * after a failure. `low` (zero-initialised; or NULL): keeps what llm_adapter_dx would compute again from the same dy, on `acts`. */
struct llm_adapter_low { const struct llm_adapter *of; const float *d_low; }; /* d_low: [m, rank] */
bool llm_adapter_dw(struct llm_ctx *c, struct llm_param *w, const float *x, int64_t ldx, const float *dy, int64_t ldy, int64_t m,
                    const struct llm_folds *folds, struct llm_adapter_low *low);
/* The outputs' gradient dy [m, n] as the gradient by the inputs reads it: multiplied by the gains of w's adapter, in a copy on `acts`, or dy itself
 * if there are none. *ldy: its stride. NULL after a failure. */
const float *llm_adapter_dy(struct llm_ctx *c, const struct llm_param *w, const float *dy, int64_t *ldy, int64_t m);
/* dx [m, k] += scale·(dy·b)·a, where dy is what llm_adapter_dy returned; `low`: what llm_adapter_dw left, or NULL. False after a failure. */
bool llm_adapter_dx(struct llm_ctx *c, struct llm_param *w, const float *dy, int64_t ldy, float *dx, int64_t ld_dx, int64_t m,
                    const struct llm_adapter_low *low);

/* b->grad [cols] += the sums of dy [rows, cols] over tokens, in the canonical order. Does nothing if b is NULL or frozen. */
void llm_bias_grad(struct llm_param *b, const float *dy, int64_t dy_stride, int64_t rows, const struct llm_folds *folds, int64_t cols);

/* ---- work over rows ----
 * Calls piece(arg, from, to, thread) for runs of rows that cover [0, rows), on all threads of the pool; a run has about 16 Ki elements. Only for work
 * whose rows are independent. */
void llm_for_rows(int64_t rows, int64_t cols, void (*piece)(void *arg, int64_t from, int64_t to, int thread), void *arg);
/* Calls piece(arg, from, to, thread) for runs of 64 columns that cover [0, cols), on all threads. For gradients of parameters: one thread sums each
 * element in order. */
void llm_for_columns(int64_t cols, void (*piece)(void *arg, int64_t from, int64_t to, int thread), void *arg);

#endif
