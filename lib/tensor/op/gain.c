/* y = x ⊙ gain: a factor for each channel (LayerScale, Touvron et al. 2021) */
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/op/norm_internal.h"
#include "tensor/ops.h"

struct gain_args { const float *gain; const float *ones; };
struct work {
    const float *from, *gain;
    int64_t from_stride, to_stride, cols;
    float *to;
    bool add;
};

static void rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        const float *x = w->from + r * w->from_stride;
        float *y = w->to + r * w->to_stride;
        if (!w->add) llm_k.elementwise.gated[LLM_ACT_LINEAR](y, x, w->gain, (size_t)w->cols);
        for (int64_t i = 0; w->add && i < w->cols; i++) y[i] += x[i] * w->gain[i];
    }
}

/* The gradient of the gain is that of a norm's gain whose normalised input is x. */
static void gain_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("gain backward", 3 * llm_tensor_bytes(n->out));
    const struct gain_args *a = n->args;
    struct llm_tensor *x = n->in[0];
    struct work w = {.from = n->out->grad, .from_stride = n->out->grad_stride, .gain = a->gain, .cols = x->cols};
    struct llm_grad g;
    llm_norm_params_back(c, x, n->out, n->param[0], NULL, NULL, a->ones, x->cols); /* before dx is written over dy */
    if (!llm_grad_open_over(c, x, n->out, &g)) return;
    w.to = g.p;
    w.to_stride = g.stride;
    w.add = g.add;
    llm_for_rows(x->rows, x->cols, rows, &w);
}

struct llm_tensor *llm_gain(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *gain)
{
    LLM_PROFILE("gain", 2 * llm_tensor_bytes(x));
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_node n = {.backward = gain_backward, .mark = llm_arena_mark(&c->acts), .in = {x}, .param = {gain}};
    n.out = llm_tensor_create(c, x->rows, x->cols);
    struct work w = {.from = x->data, .from_stride = x->stride, .cols = x->cols, .gain = llm_op_vector(c, gain, x->cols)};
    float *ones = NULL;
    if (llm_tape_wants(c, &n)) ones = llm_op_alloc(c, x->rows, sizeof *ones);
    if (llm_ctx_failed(c)) return &c->nothing;
    for (int64_t r = 0; ones && r < x->rows; r++) ones[r] = 1;
    w.to = n.out->data;
    w.to_stride = n.out->stride;
    llm_for_rows(x->rows, x->cols, rows, &w);
    return llm_record(c, &n, &(struct gain_args){w.gain, ones}, sizeof(struct gain_args));
}

/* ---- gradient check ---- */

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    return llm_gain(c, in[0], p[0]);
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    const int64_t n = g->in[0].cols;
    for (int64_t i = 0; i < g->in[0].rows * n; i++) y[i] = in[0][i] * p[0][i % n];
}

const struct llm_gradcheck llm_gradcheck_gain[] = {
    {.name = "gain", .in = {{9, 83}}, .param = {{1, 83}}, .out = {9, 83}, .n_rows = 3, .run = check_run, .formula = check_formula}, {0}};
