/* y = x / sqrt(mean(x²) + eps) ⊙ (gain + offset), over the whole row or over runs of `group` columns. */
#include <math.h>
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/op/norm_internal.h"
#include "tensor/ops.h"

struct rmsnorm_args { const float *gain; float *rstd, offset, eps; int64_t group, gain_step; };
struct work {
    const struct llm_tensor *x;
    const float *gain;
    float offset, eps, *rstd; /* rstd: [rows][cols / group] */
    int64_t group, gain_step; /* gain_step: 0 where groups share the gain, else group */
    const float *dy;
    int64_t dy_stride;
    struct llm_grad g;
};

static void forward_rows(const void *arg, int64_t from, int64_t to, float *y, int64_t ld)
{
    const struct work *w = arg;
    int64_t groups = w->x->cols / w->group;
    for (int64_t r = from; r < to; r++, y += ld) {
        for (int64_t j = 0; j < groups; j++) {
            float rstd;
            llm_k.rows.rmsnorm(y + j * w->group, w->x->data + r * w->x->stride + j * w->group,
                               w->gain + j * w->gain_step, w->offset, w->eps,
                               (size_t)w->group, &rstd);
            if (w->rstd) w->rstd[r * groups + j] = rstd;
        }
    }
}

static void backward_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    int64_t groups = w->x->cols / w->group;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        for (int64_t j = 0; j < groups; j++) {
            int64_t at = j * w->group;
            llm_k.rows.rmsnorm_back(w->g.p + r * w->g.stride + at, w->x->data + r * w->x->stride + at, w->dy + r * w->dy_stride + at,
                                    w->gain + j * w->gain_step,
                                    w->offset, w->rstd[r * groups + j], w->g.add, (size_t)w->group);
        }
    }
}

/* The gradient of a gain that the groups do not share: one group after another. */
static void gains_apart(struct llm_ctx *c, const struct llm_tensor *x, const struct llm_tensor *y, const struct llm_param *gain, const float *rstd,
                        int64_t group)
{
    int64_t groups = x->cols / group;
    float *own = llm_op_alloc(c, x->rows, sizeof *own);
    for (int64_t j = 0; own && gain->grad && j < groups; j++) {
        struct llm_tensor xj = *x, yj = *y;
        struct llm_param gj = *gain;
        xj.data += j * group;
        yj.grad += j * group;
        xj.cols = yj.cols = group;
        gj.grad += j * group;
        for (int64_t r = 0; r < x->rows; r++) own[r] = rstd[r * groups + j];
        llm_norm_params_back(c, &xj, &yj, &gj, NULL, NULL, own, group);
    }
}

static void rmsnorm_recompute(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("rmsnorm again", 2 * llm_tensor_bytes(n->out));
    const struct rmsnorm_args *a = n->args;
    const struct work w = {.x = n->in[0], .gain = a->gain, .offset = a->offset, .eps = a->eps, .group = a->group, .gain_step = a->gain_step};
    llm_fill_rows(c, n->out, forward_rows, &w);
}

static void rmsnorm_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("rmsnorm backward", 3 * llm_tensor_bytes(n->out));
    const struct rmsnorm_args *a = n->args;
    struct llm_tensor *x = n->in[0];
    struct work w = {.x = x, .gain = a->gain, .offset = a->offset, .rstd = a->rstd, .group = a->group, .gain_step = a->gain_step, .dy = n->out->grad,
                     .dy_stride = n->out->grad_stride};
    /* first, because dx is then written over dy */
    if (a->gain_step > 0) gains_apart(c, x, n->out, n->param[0], a->rstd, a->group);
    else llm_norm_params_back(c, x, n->out, n->param[0], NULL, NULL, a->rstd, a->group);
    if (llm_grad_open_over(c, x, n->out, &w.g)) llm_for_rows(x->rows, x->cols, backward_rows, &w);
}

struct llm_tensor *llm_rmsnorm(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *gain, float eps, float gain_offset, int64_t group)
{
    LLM_PROFILE("rmsnorm", 2 * llm_tensor_bytes(x));
    if (llm_ctx_failed(c)) return &c->nothing;
    if (group <= 0 || x->cols % group) {
        return llm_op_fail(c, LLM_EX_FAILURE, "'%s': expected columns in groups of %lld, found %lld", gain->name, (long long)group,
                           (long long)x->cols);
    }
    struct llm_node n = {.backward = rmsnorm_backward, .recompute = rmsnorm_recompute, .mark = llm_arena_mark(&c->acts), .in = {x}, .param = {gain}};
    struct work w = {.x = x, .offset = gain_offset, .eps = eps, .group = group};
    n.out = llm_op_output(c, &n, x->rows, x->cols);
    bool shared = llm_param_count(gain) == group;
    w.gain_step = shared ? 0 : group;
    w.gain = llm_op_vector(c, gain, shared ? group : x->cols);
    if (llm_tape_wants(c, &n)) w.rstd = llm_op_alloc(c, x->rows * (x->cols / group), sizeof *w.rstd);
    if (llm_ctx_failed(c)) return &c->nothing;
    llm_fill_rows(c, n.out, forward_rows, &w);
    n.out->spare = true;
    struct rmsnorm_args args = {w.gain, w.rstd, gain_offset, eps, group, w.gain_step};
    return llm_record(c, &n, &args, sizeof args);
}

/* ---- gradient check ---- */

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    return llm_rmsnorm(c, in[0], p[0], 1e-2f, 0, in[0]->cols);
}

static struct llm_tensor *check_groups(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    return llm_rmsnorm(c, llm_columns(c, in[0], 5, 57), p[0], 1e-2f, 1, 19);
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    int64_t n = g->param[0].cols, skip = g->in[0].cols > g->out.cols ? 5 : 0;
    double offset = skip ? 1 : 0;
    for (int64_t t = 0; t < g->out.rows; t++) {
        for (int64_t j = 0; j < g->out.cols; j += n) {
            const double *x = in[0] + t * g->in[0].cols + skip + j;
            double squares = 0;
            for (int64_t i = 0; i < n; i++) squares += x[i] * x[i] / (double)n;
            for (int64_t i = 0; i < n; i++) y[t * g->out.cols + j + i] = x[i] / sqrt(squares + (double)1e-2f) * (p[0][i] + offset);
        }
    }
}

const struct llm_gradcheck llm_gradcheck_rmsnorm[] = {
    {.name = "rmsnorm", .in = {{9, 71}}, .param = {{1, 71}}, .out = {9, 71}, .n_rows = 3, .run = check_run, .formula = check_formula},
    {.name = "rmsnorm in groups", .in = {{6, 66}}, .param = {{1, 19}}, .out = {6, 57}, .run = check_groups, .formula = check_formula}, {0}};
