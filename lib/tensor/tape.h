/* How an op records itself, and how its backward function reaches gradients. For tensor/op/; from here blocks and objectives take llm_op_alloc alone.
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
 * llm_backward then drops out's gradient and pops `acts` to the mark: output, saved data and node are gone. Backward functions may use
 * llm_op_alloc for scratch and need not pop it. Inputs may be views: rows are `stride` apart. */
#ifndef LLM_TENSOR_TAPE_H
#define LLM_TENSOR_TAPE_H

#include "tensor/tensor.h"

struct llm_node {
    void (*backward)(struct llm_ctx *c, struct llm_node *n);
    void (*remake)(struct llm_ctx *c, struct llm_node *n); /* writes the values of `out` again, of inputs that are there; NULL: they stay */
    size_t mark;                  /* of `acts`, before the op allocated anything */
    struct llm_tensor *in[4];     /* NULL where fewer */
    struct llm_tensor *out;       /* allocated by the op after the mark */
    struct llm_param *param[3];   /* NULL where fewer */
    void *args;                   /* the op's own, copied by llm_record */
    struct llm_node *before;      /* the tape is a list from its end */
};

/* Whether the op will be recorded: there is a tape, and an input or a parameter takes a gradient. */
bool llm_tape_wants(const struct llm_ctx *c, const struct llm_node *n);
/* The output of an op that has a `remake`: as llm_tensor_create's, or passing where the context asks for that. */
struct llm_tensor *llm_op_output(struct llm_ctx *c, const struct llm_node *n, int64_t rows, int64_t cols);
/* Notes the op if wanted (and then sets out->needs_grad). `args` (n_args bytes, may be 0) are copied. Returns n->out, or &c->nothing on failure. */
struct llm_tensor *llm_record(struct llm_ctx *c, const struct llm_node *n, const void *args, size_t n_args);

/* 64-byte aligned memory on `acts`; NULL and a sticky failure when it is used up. count · size is checked. */
void *llm_op_alloc(struct llm_ctx *c, int64_t count, size_t size);
/* Records a failure unless there is one already, and returns &c->nothing. */
struct llm_tensor *llm_op_fail(struct llm_ctx *c, int status, const char *fmt, ...) LLM_PRINTF(3, 4);

/* ---- gradients of activations ----
 * They live in reference-counted blocks on `grads`, lowest free place first; a view's gradient lies in its base's. */
struct llm_grad {
    float *p;
    int64_t stride;
    bool add;  /* something is there: add to it; else every element [rows, cols] of the tensor must be written */
};
/* Opens x's gradient for writing. False when x takes none, or after a failure. */
bool llm_grad_open(struct llm_ctx *c, struct llm_tensor *x, struct llm_grad *g);
/* The same with what was not there set to zero: always add. */
bool llm_grad_open_zeroed(struct llm_ctx *c, struct llm_tensor *x, struct llm_grad *g);
/* The same for an op that can work in place: where nobody else needs y's gradient and x has none, x takes over its memory (g->p == the old
 * y->grad, g->add false). Take dy = y->grad before. Shapes of x and y are equal. */
bool llm_grad_open_over(struct llm_ctx *c, struct llm_tensor *x, struct llm_tensor *y, struct llm_grad *g);
/* x's gradient += y's: shared without a copy when x has none yet. Shapes are equal. */
void llm_grad_pass(struct llm_ctx *c, struct llm_tensor *x, struct llm_tensor *y);

/* ---- the canonical order of sums over tokens ----
 * Parameter gradients fold blocks of LLM_FOLD tokens within a row, rows in order: each block is summed from zero, then added. */
enum { LLM_FOLD = 256 };
/* Tokens a row of a tensor with so many rows: the batch's row_len, or that of another side of it (an encoder's), or all of them as one row. */
static inline int64_t llm_row_len(const struct llm_ctx *c, int64_t rows)
{
    return c->n_rows > 0 && rows > 0 && rows % c->n_rows == 0 ? rows / c->n_rows : rows;
}
/* Where the block that begins at token `at` ends. */
static inline int64_t llm_fold_end(int64_t rows, int64_t row_len, int64_t at)
{
    int64_t row_end = (at / row_len + 1) * row_len, end = at + LLM_FOLD;
    if (end > row_end) end = row_end;
    return end < rows ? end : rows;
}

/* A vector parameter as n floats: its own memory when it is F32, else decoded on `acts`. NULL after a failure, also when the length is not n. */
const float *llm_op_vector(struct llm_ctx *c, const struct llm_param *p, int64_t n);

/* ---- adapters (op/adapter.c) ---- */
/* The part of w's adapter that takes a gradient, for a node's parameters; NULL: there is no adapter, or it is frozen. */
struct llm_param *llm_adapter_trained(const struct llm_param *w);
/* y [m, n] += scale·(x·aᵀ)·bᵀ of w's adapter; nothing when it has none. False after a failure. Scratch is taken from `acts` and given back. */
bool llm_adapter_add(struct llm_ctx *c, const struct llm_param *w, const float *x, int64_t ldx, float *y, int64_t ldy, int64_t m);
/* Tokens of a gradient: blocks that are given, or rows of row_len tokens in blocks of LLM_FOLD. */
struct llm_folds { int64_t row_len; const int64_t *starts; int64_t n_blocks; }; /* starts NULL: row_len holds */
/* Gradients of a and b, of outputs' gradient dy [m, n] and inputs x; nothing for what is frozen. */
bool llm_adapter_dw(struct llm_ctx *c, const struct llm_param *w, const float *x, int64_t ldx, const float *dy, int64_t ldy, int64_t m,
                    const struct llm_folds *folds);
/* dx [m, k] += scale·(dy·b)·a */
bool llm_adapter_dx(struct llm_ctx *c, const struct llm_param *w, const float *dy, int64_t ldy, float *dx, int64_t ld_dx, int64_t m);

/* b->grad [cols] += the sums of dy [rows, cols] over tokens, in the canonical order; nothing when b is NULL or frozen. */
void llm_bias_grad(struct llm_param *b, const float *dy, int64_t dy_stride, int64_t rows, int64_t row_len, int64_t cols);

/* ---- work over rows ----
 * Calls piece(arg, from, to, thread) for runs of rows that cover [0, rows), over all threads; runs are about 16 Ki elements. Only for work whose
 * rows are independent. */
void llm_for_rows(int64_t rows, int64_t cols, void (*piece)(void *arg, int64_t from, int64_t to, int thread), void *arg);
/* The same over runs of columns, 64 a run: for gradients of parameters, each of whose elements one thread sums in order. */
void llm_for_columns(int64_t cols, void (*piece)(void *arg, int64_t from, int64_t to, int thread), void *arg);

#endif
