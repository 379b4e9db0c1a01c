/* y = factor·x */
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/tape.h"

struct scale_args { float factor; };
struct work { float *to; const float *from; int64_t to_stride, from_stride, cols; float factor; bool add; };

static void rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        float *y = w->to + r * w->to_stride;
        const float *x = w->from + r * w->from_stride;
        if (w->add) llm_k.elementwise.axpy(y, w->factor, x, (size_t)w->cols);
        else llm_k.elementwise.scale(y, w->factor, x, (size_t)w->cols);
    }
}

static void scale_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("scale backward", 2 * llm_tensor_bytes(n->out));
    const struct scale_args *a = n->args;
    struct llm_tensor *x = n->in[0];
    struct work w = {.from = n->out->grad, .from_stride = n->out->grad_stride, .cols = x->cols, .factor = a->factor};
    struct llm_grad g;
    if (!llm_grad_open_over(c, x, n->out, &g)) return;
    w.to = g.p;
    w.to_stride = g.stride;
    w.add = g.add;
    llm_for_rows(x->rows, x->cols, rows, &w);
}

struct llm_tensor *llm_scale(struct llm_ctx *c, struct llm_tensor *x, float factor)
{
    LLM_PROFILE("scale", 2 * llm_tensor_bytes(x));
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_node n = {.backward = scale_backward, .mark = llm_arena_mark(&c->acts), .in = {x}};
    n.out = llm_tensor_create(c, x->rows, x->cols);
    if (llm_ctx_failed(c)) return &c->nothing;
    struct work w = {n.out->data, x->data, n.out->stride, x->stride, x->cols, factor, false};
    llm_for_rows(x->rows, x->cols, rows, &w);
    return llm_record(c, &n, &(struct scale_args){factor}, sizeof(struct scale_args));
}

/* ---- gradient check ---- */

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    (void)p;
    return llm_scale(c, in[0], -1.5f);
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    (void)p;
    for (int64_t i = 0; i < g->in[0].rows * g->in[0].cols; i++) y[i] = -1.5 * in[0][i];
}

const struct llm_gradcheck llm_gradcheck_scale[] = {
    {.name = "scale", .in = {{5, 19}}, .out = {5, 19}, .run = check_run, .formula = check_formula}, {0}};
