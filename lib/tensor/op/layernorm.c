/* y = (x - mean(x)) / sqrt(var(x) + eps) ⊙ gain + bias */
#include <math.h>
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/op/norm_internal.h"
#include "tensor/ops.h"

struct layernorm_args { const float *gain, *bias; float *mean, *rstd, eps; };
struct work {
    const struct llm_tensor *x;
    const float *gain, *bias;
    float eps, *mean, *rstd;
    const float *dy;
    int64_t dy_stride;
    struct llm_grad g;
};

static void forward_rows(const void *arg, int64_t from, int64_t to, float *y, int64_t ld)
{
    const struct work *w = arg;
    for (int64_t r = from; r < to; r++, y += ld) {
        float mean, rstd;
        llm_k.rows.layernorm(y, w->x->data + r * w->x->stride, w->gain, w->bias, w->eps, (size_t)w->x->cols, &mean, &rstd);
        if (!w->mean) continue;
        w->mean[r] = mean;
        w->rstd[r] = rstd;
    }
}

static void backward_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        llm_k.rows.layernorm_back(w->g.p + r * w->g.stride, w->x->data + r * w->x->stride, w->dy + r * w->dy_stride, w->gain, w->mean[r], w->rstd[r],
                                  w->g.add, (size_t)w->x->cols);
    }
}

static void layernorm_recompute(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("layernorm again", 2 * llm_tensor_bytes(n->out));
    const struct layernorm_args *a = n->args;
    llm_fill_rows(c, n->out, forward_rows, &(struct work){.x = n->in[0], .gain = a->gain, .bias = a->bias, .eps = a->eps});
}

static void layernorm_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("layernorm backward", 3 * llm_tensor_bytes(n->out));
    const struct layernorm_args *a = n->args;
    struct llm_tensor *x = n->in[0];
    struct work w = {.x = x, .gain = a->gain, .mean = a->mean, .rstd = a->rstd, .dy = n->out->grad, .dy_stride = n->out->grad_stride};
    llm_norm_params_back(c, x, n->out, n->param[0], n->param[1], a->mean, a->rstd, x->cols); /* before dx is written over dy */
    if (llm_grad_open_over(c, x, n->out, &w.g)) llm_for_rows(x->rows, x->cols, backward_rows, &w);
}

struct llm_tensor *llm_layernorm(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *gain, struct llm_param *bias, float eps)
{
    LLM_PROFILE("layernorm", 2 * llm_tensor_bytes(x));
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_node n = {.backward = layernorm_backward, .recompute = layernorm_recompute, .mark = llm_arena_mark(&c->acts), .in = {x},
                         .param = {gain, bias}};
    struct work w = {.x = x, .eps = eps};
    n.out = llm_op_output(c, &n, x->rows, x->cols);
    w.gain = llm_op_vector(c, gain, x->cols);
    w.bias = bias ? llm_op_vector(c, bias, x->cols) : NULL;
    if (llm_tape_wants(c, &n)) {
        w.mean = llm_op_alloc(c, x->rows, sizeof *w.mean);
        w.rstd = llm_op_alloc(c, x->rows, sizeof *w.rstd);
    }
    if (llm_ctx_failed(c)) return &c->nothing;
    llm_fill_rows(c, n.out, forward_rows, &w);
    n.out->spare = true;
    struct layernorm_args args = {w.gain, w.bias, w.mean, w.rstd, eps};
    return llm_record(c, &n, &args, sizeof args);
}

/* ---- gradient check ---- */

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    return llm_layernorm(c, in[0], p[0], p[1], 1e-2f);
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    int64_t n = g->in[0].cols;
    for (int64_t t = 0; t < g->in[0].rows; t++) {
        const double *x = in[0] + t * n;
        double mean = 0, var = 0;
        for (int64_t i = 0; i < n; i++) mean += x[i] / (double)n;
        for (int64_t i = 0; i < n; i++) var += (x[i] - mean) * (x[i] - mean) / (double)n;
        for (int64_t i = 0; i < n; i++) y[t * n + i] = (x[i] - mean) / sqrt(var + (double)1e-2f) * p[0][i] + (p[1] ? p[1][i] : 0);
    }
}

const struct llm_gradcheck llm_gradcheck_layernorm[] = {
    {.name = "layernorm", .in = {{9, 83}}, .param = {{1, 83}, {1, 83}}, .out = {9, 83}, .n_rows = 3, .run = check_run, .formula = check_formula},
    {.name = "layernorm without bias", .in = {{4, 7}}, .param = {{1, 7}}, .out = {4, 7}, .run = check_run, .formula = check_formula}, {0}};
