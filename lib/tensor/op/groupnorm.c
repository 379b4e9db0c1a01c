/* GroupNorm: y = (x - mean) / sqrt(var + eps) ⊙ gain + bias, with mean and var over the group of channels to which the channel belongs. */
#include <math.h>
#include <string.h>
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/op/norm_internal.h"
#include "tensor/ops.h"

struct groupnorm_args {
    const float *gain;
    struct llm_param *const *gains; /* the parameter of each run; NULL: one parameter holds all gains */
    float *mean, *rstd; /* [groups][rows] */
    int64_t groups;
};
struct work {
    const struct llm_tensor *x, *y;
    const float *gain, *bias;
    float eps, *mean, *rstd;
    int64_t groups;
    const float *dy;
    int64_t dy_stride;
    struct llm_grad g;
};

static void forward_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    int64_t width = w->x->cols / w->groups;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        for (int64_t k = 0; k < w->groups; k++) {
            int64_t at = k * width;
            float mean, rstd;
            llm_k.rows.layernorm(w->y->data + r * w->y->stride + at, w->x->data + r * w->x->stride + at, w->gain + at, w->bias ? w->bias + at : NULL,
                                 w->eps, (size_t)width, &mean, &rstd);
            if (!w->mean) continue;
            w->mean[k * w->x->rows + r] = mean;
            w->rstd[k * w->x->rows + r] = rstd;
        }
    }
}

static void backward_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    int64_t width = w->x->cols / w->groups;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        for (int64_t k = 0; k < w->groups; k++) {
            int64_t at = k * width, i = k * w->x->rows + r;
            llm_k.rows.layernorm_back(w->g.p + r * w->g.stride + at, w->x->data + r * w->x->stride + at, w->dy + r * w->dy_stride + at, w->gain + at,
                                      w->mean[i], w->rstd[i], w->g.add, (size_t)width);
        }
    }
}

/* A parameter *p whose gradient is that of `whole` from channel `at` on. NULL if `whole` takes no gradient. */
static struct llm_param *part(struct llm_param *whole, struct llm_param *p, int64_t at)
{
    if (!whole || !whole->grad) return NULL;
    *p = *whole;
    p->grad += at;
    return p;
}

/* p, or NULL if it takes no gradient. */
static struct llm_param *trained(struct llm_param *p)
{
    return p->grad ? p : NULL;
}

static void groupnorm_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("groupnorm backward", 3 * llm_tensor_bytes(n->out));
    const struct groupnorm_args *a = n->args;
    struct llm_tensor *x = n->in[0];
    int64_t width = x->cols / a->groups;
    struct work w = {.x = x, .gain = a->gain, .mean = a->mean, .rstd = a->rstd, .groups = a->groups, .dy = n->out->grad,
                     .dy_stride = n->out->grad_stride};
    for (int64_t k = 0; k < a->groups; k++) { /* first, because dx is then written over dy */
        struct llm_tensor in = *x, out = *n->out;
        struct llm_param gain, bias;
        in.cols = out.cols = width;
        in.data += k * width;
        out.grad += k * width;
        llm_norm_params_back(c, &in, &out, a->gains ? trained(a->gains[k]) : part(n->param[0], &gain, k * width),
                             part(n->param[1], &bias, k * width), a->mean + k * x->rows, a->rstd + k * x->rows, width);
    }
    if (llm_grad_open_over(c, x, n->out, &w.g)) llm_for_rows(x->rows, x->cols, backward_rows, &w);
}

static struct llm_tensor *forward(struct llm_ctx *c, struct llm_node *n, struct llm_param *const *gains, int64_t groups, float eps)
{
    struct llm_tensor *x = n->in[0];
    if (groups < 1 || x->cols % groups != 0) {
        return llm_op_fail(c, LLM_EX_FAILURE, "groups: expected a divisor of %lld, found %lld", (long long)x->cols, (long long)groups);
    }
    int64_t width = x->cols / groups;
    struct work w = {.x = x, .eps = eps, .groups = groups};
    w.y = n->out = llm_tensor_create(c, x->rows, x->cols);
    float *all = gains ? llm_op_alloc(c, x->cols, sizeof *all) : NULL;
    for (int64_t k = 0; all && k < groups; k++) {
        const float *gain = llm_op_vector(c, gains[k], width);
        if (gain) memcpy(all + k * width, gain, (size_t)width * sizeof *all);
    }
    w.gain = gains ? all : llm_op_vector(c, n->param[0], x->cols);
    w.bias = n->param[1] ? llm_op_vector(c, n->param[1], x->cols) : NULL;
    if (llm_tape_wants(c, n)) {
        w.mean = llm_op_alloc(c, x->rows * groups, sizeof *w.mean);
        w.rstd = llm_op_alloc(c, x->rows * groups, sizeof *w.rstd);
    }
    if (llm_ctx_failed(c)) return &c->nothing;
    llm_for_rows(x->rows, x->cols, forward_rows, &w);
    struct groupnorm_args args = {w.gain, gains, w.mean, w.rstd, groups};
    return llm_record(c, n, &args, sizeof args);
}

struct llm_tensor *llm_groupnorm(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *gain, struct llm_param *bias, int64_t groups, float eps)
{
    LLM_PROFILE("groupnorm", 2 * llm_tensor_bytes(x));
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_node n = {.backward = groupnorm_backward, .mark = llm_arena_mark(&c->acts), .in = {x}, .param = {gain, bias}};
    return forward(c, &n, NULL, groups, eps);
}

struct llm_tensor *llm_groupnorm_each(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *const *gains, int64_t groups, float eps)
{
    LLM_PROFILE("groupnorm", 2 * llm_tensor_bytes(x));
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_node n = {.backward = groupnorm_backward, .mark = llm_arena_mark(&c->acts), .in = {x}, .param = {gains[0]}};
    return forward(c, &n, gains, groups, eps);
}

/* ---- gradient check ---- */

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    return llm_groupnorm(c, in[0], p[0], p[1], 3, 1e-2f);
}

static struct llm_tensor *check_each(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    return llm_groupnorm_each(c, in[0], p, 3, 1e-2f);
}

static void formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, bool each, double *y)
{
    int64_t cols = g->in[0].cols, n = cols / 3;
    for (int64_t t = 0; t < g->in[0].rows; t++) {
        for (int64_t k = 0; k < 3; k++) {
            const double *x = in[0] + t * cols + k * n;
            double mean = 0, var = 0;
            for (int64_t i = 0; i < n; i++) mean += x[i] / (double)n;
            for (int64_t i = 0; i < n; i++) var += (x[i] - mean) * (x[i] - mean) / (double)n;
            for (int64_t i = 0; i < n; i++) {
                double gain = each ? p[k][i] : p[0][k * n + i], bias = !each && p[1] ? p[1][k * n + i] : 0;
                y[t * cols + k * n + i] = (x[i] - mean) / sqrt(var + (double)1e-2f) * gain + bias;
            }
        }
    }
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    formula(g, in, p, false, y);
}

static void check_each_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    formula(g, in, p, true, y);
}

const struct llm_gradcheck llm_gradcheck_groupnorm[] = {
    {.name = "groupnorm", .in = {{9, 51}}, .param = {{1, 51}, {1, 51}}, .out = {9, 51}, .n_rows = 3, .run = check_run, .formula = check_formula},
    {.name = "groupnorm without bias", .in = {{4, 15}}, .param = {{1, 15}}, .out = {4, 15}, .run = check_run, .formula = check_formula},
    {.name = "groupnorm, a gain for each run", .in = {{9, 51}}, .param = {{1, 17}, {1, 17}, {1, 17}}, .out = {9, 51}, .n_rows = 3,
     .run = check_each, .formula = check_each_formula}, {0}};
