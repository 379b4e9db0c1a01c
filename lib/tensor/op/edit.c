/* A value that somebody outside of the model may write over. The result is a view with values of its own: its gradient lies in that of the value
 * that stood there, where the gradients of other readers are added in the same order as without the edit. */
#include <string.h>
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/tape.h"

/* A view has no gradient of its own to pass. */
static void edit_backward(struct llm_ctx *c, struct llm_node *n)
{
    (void)c, (void)n;
}

struct llm_tensor *llm_edit(struct llm_ctx *c, struct llm_tensor *x, const struct llm_inner *e)
{
    if (llm_ctx_failed(c)) return &c->nothing;
    if (x->shared) { /* recomputed for the backward pass: it is then edited again */
        e->look(e, c, 0, x->data, x->rows, x->cols, x->stride, false);
        x->edited = e;
        return llm_ctx_failed(c) ? &c->nothing : x;
    }
    struct llm_node n = {.backward = edit_backward, .mark = llm_arena_mark(&c->acts), .in = {x}};
    n.out = llm_tensor_create(c, x->rows, x->cols);
    if (llm_ctx_failed(c)) return &c->nothing;
    n.out->base = x->base ? x->base : x;
    n.out->column = x->column;
    n.out->needs_grad = x->needs_grad;
    n.out->copied = x;
    for (int64_t r = 0; r < x->rows; r++) memcpy(n.out->data + r * n.out->stride, x->data + r * x->stride, (size_t)x->cols * sizeof(float));
    e->look(e, c, 0, n.out->data, x->rows, x->cols, n.out->stride, false);
    return llm_record(c, &n, NULL, 0); /* the tape keeps its memory, and stored.c finds it */
}

/* ---- gradient check: an editor that leaves what it got, of a view too ---- */

static void leave(const struct llm_inner *e, struct llm_ctx *c, int64_t first, float *x, int64_t rows, int64_t cols, int64_t stride, bool again)
{
    (void)e, (void)c, (void)first, (void)x, (void)rows, (void)cols, (void)stride, (void)again;
}

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    static const struct llm_inner same = {leave, NULL};
    (void)p;
    return llm_add(c, llm_edit(c, in[0], &same), llm_edit(c, llm_columns(c, in[1], 3, 11), &same));
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    (void)p;
    for (int64_t t = 0; t < g->out.rows; t++) {
        for (int64_t i = 0; i < 11; i++) y[t * 11 + i] = in[0][t * 11 + i] + in[1][t * 17 + 3 + i];
    }
}

const struct llm_gradcheck llm_gradcheck_edit[] = {
    {.name = "edit", .in = {{7, 11}, {7, 17}}, .out = {7, 11}, .run = check_run, .formula = check_formula}, {0}};
