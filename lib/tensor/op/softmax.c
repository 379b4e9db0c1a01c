/* y = softmax over each row. */
#include <math.h>
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/tape.h"

struct work { const struct llm_tensor *x, *y; const float *dy; int64_t dy_stride; struct llm_grad g; };

static void forward_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    (void)thread;
    for (int64_t r = from; r < to; r++) llm_k.rows.softmax(w->y->data + r * w->y->stride, w->x->data + r * w->x->stride, (size_t)w->x->cols);
}

static void backward_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        llm_k.rows.softmax_back(w->g.p + r * w->g.stride, w->y->data + r * w->y->stride, w->dy + r * w->dy_stride, w->g.add, (size_t)w->y->cols);
    }
}

static void softmax_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("softmax backward", 3 * llm_tensor_bytes(n->out));
    struct work w = {.y = n->out, .dy = n->out->grad, .dy_stride = n->out->grad_stride};
    if (llm_grad_open_over(c, n->in[0], n->out, &w.g)) llm_for_rows(n->out->rows, n->out->cols, backward_rows, &w);
}

struct llm_tensor *llm_softmax(struct llm_ctx *c, struct llm_tensor *x)
{
    LLM_PROFILE("softmax", 2 * llm_tensor_bytes(x));
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_node n = {.backward = softmax_backward, .mark = llm_arena_mark(&c->acts), .in = {x}};
    n.out = llm_tensor_create(c, x->rows, x->cols);
    if (llm_ctx_failed(c)) return &c->nothing;
    struct work w = {.x = x, .y = n.out};
    llm_for_rows(x->rows, x->cols, forward_rows, &w);
    return llm_record(c, &n, NULL, 0);
}

/* ---- gradient check ---- */

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    (void)p;
    return llm_softmax(c, in[0]);
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    (void)p;
    int64_t n = g->in[0].cols;
    for (int64_t t = 0; t < g->in[0].rows; t++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += exp(in[0][t * n + i]);
        for (int64_t i = 0; i < n; i++) y[t * n + i] = exp(in[0][t * n + i]) / sum;
    }
}

const struct llm_gradcheck llm_gradcheck_softmax[] = {
    {.name = "softmax", .in = {{3, 37}}, .out = {3, 37}, .spread = 2, .run = check_run, .formula = check_formula}, {0}};
