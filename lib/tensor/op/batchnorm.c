/* BatchNorm (Ioffe and Szegedy 2015) over the tokens of a pass: y = (x - mean) / sqrt(var + eps) ⊙ gain + bias for each channel. A token's output
 * depends on the other tokens of its pass, so the result of a step depends on the number of passes. */
#include <math.h>
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/tape.h"

struct batchnorm_args {
    const float *gain;
    float *mean, *rstd, *var;                  /* [cols]; var unbiased */
    struct llm_param *running_mean, *running_var;
};
struct work {
    const struct llm_tensor *x, *y;
    const float *gain, *bias;
    const float *known_mean, *known_var;       /* running statistics to use; NULL: those of the tokens */
    float eps, *mean, *rstd, *var;
    const struct llm_node *node;
    struct llm_grad g;
};
enum { RUN = 64 }; /* columns per work item */

/* Σ over tokens, in order, of x or of (x - mean)². */
static void sums(const struct llm_tensor *x, int64_t from, int64_t to, const double *mean, double *sum)
{
    for (int64_t i = from; i < to; i++) sum[i - from] = 0;
    for (int64_t r = 0; r < x->rows; r++) {
        const float *row = x->data + r * x->stride;
        for (int64_t i = from; i < to; i++) {
            double v = (double)row[i] - (mean ? mean[i - from] : 0);
            sum[i - from] += mean ? v * v : v;
        }
    }
}

static void forward_columns(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    double mean[RUN], var[RUN], n = (double)w->x->rows;
    (void)thread;
    if (!w->known_mean) {
        sums(w->x, from, to, NULL, mean);
        for (int64_t i = from; i < to; i++) mean[i - from] /= n;
        sums(w->x, from, to, mean, var);
    }
    for (int64_t i = from; i < to; i++) {
        double biased = w->known_var ? (double)w->known_var[i] : var[i - from] / n;
        w->mean[i] = w->known_mean ? w->known_mean[i] : (float)mean[i - from];
        w->rstd[i] = (float)(1 / sqrt(biased + (double)w->eps));
        w->var[i] = (float)(n > 1 ? biased * n / (n - 1) : biased);
    }
    for (int64_t r = 0; r < w->x->rows; r++) {
        const float *x = w->x->data + r * w->x->stride;
        float *y = w->y->data + r * w->y->stride;
        for (int64_t i = from; i < to; i++) y[i] = (x[i] - w->mean[i]) * w->rstd[i] * w->gain[i] + (w->bias ? w->bias[i] : 0);
    }
}

static void backward_columns(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    const struct llm_tensor *x = w->x;
    const struct llm_node *node = w->node;
    const float *dy = node->out->grad;
    int64_t stride = node->out->grad_stride;
    double plain[RUN] = {0}, along[RUN] = {0}, n = (double)x->rows;
    (void)thread;
    for (int64_t r = 0; r < x->rows; r++) {
        for (int64_t i = from; i < to; i++) {
            plain[i - from] += (double)dy[r * stride + i];
            along[i - from] += (double)dy[r * stride + i] * (double)((x->data[r * x->stride + i] - w->mean[i]) * w->rstd[i]);
        }
    }
    for (int64_t i = from; i < to; i++) {
        if (node->param[0]->grad) node->param[0]->grad[i] += (float)along[i - from];
        if (node->param[1] && node->param[1]->grad) node->param[1]->grad[i] += (float)plain[i - from];
    }
    for (int64_t r = 0; r < x->rows && w->g.p; r++) {
        for (int64_t i = from; i < to; i++) {
            double unit = (double)((x->data[r * x->stride + i] - w->mean[i]) * w->rstd[i]);
            double d = (double)dy[r * stride + i] - plain[i - from] / n - unit * (along[i - from] / n);
            float dx = (float)(d * (double)w->gain[i] * (double)w->rstd[i]), *to_x = w->g.p + r * w->g.stride + i;
            *to_x = w->g.add ? *to_x + dx : dx;
        }
    }
}

static void batchnorm_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("batchnorm backward", 3 * llm_tensor_bytes(n->out));
    const struct batchnorm_args *a = n->args;
    struct work w = {.x = n->in[0], .gain = a->gain, .mean = a->mean, .rstd = a->rstd, .node = n};
    if (!llm_grad_open(c, n->in[0], &w.g)) w.g.p = NULL;
    llm_for_columns(w.x->cols, backward_columns, &w);
    for (int64_t i = 0; i < w.x->cols; i++) {
        if (a->running_mean->grad) a->running_mean->grad[i] += a->mean[i];
        if (a->running_var->grad) a->running_var->grad[i] += a->var[i];
    }
}

struct llm_tensor *llm_batchnorm(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *gain, struct llm_param *bias, struct llm_param *mean,
                                 struct llm_param *var, float eps)
{
    LLM_PROFILE("batchnorm", 2 * llm_tensor_bytes(x));
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_node n = {.backward = batchnorm_backward, .mark = llm_arena_mark(&c->acts), .in = {x}, .param = {gain, bias}};
    struct work w = {.x = x, .eps = eps};
    w.y = n.out = llm_tensor_create(c, x->rows, x->cols);
    w.gain = llm_op_vector(c, gain, x->cols);
    w.bias = bias ? llm_op_vector(c, bias, x->cols) : NULL;
    w.known_mean = c->training ? NULL : llm_op_vector(c, mean, x->cols);
    w.known_var = c->training ? NULL : llm_op_vector(c, var, x->cols);
    w.mean = llm_op_alloc(c, x->cols, sizeof *w.mean);
    w.rstd = llm_op_alloc(c, x->cols, sizeof *w.rstd);
    w.var = llm_op_alloc(c, x->cols, sizeof *w.var);
    if (llm_ctx_failed(c)) return &c->nothing;
    if (!c->training && llm_tape_wants(c, &n)) return llm_op_fail(c, LLM_EX_FAILURE, "BatchNorm: expected no gradient with running statistics");
    llm_for_columns(x->cols, forward_columns, &w);
    struct batchnorm_args args = {w.gain, w.mean, w.rstd, w.var, mean, var};
    return llm_record(c, &n, &args, sizeof args);
}

/* ---- gradient check ---- */

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    static float none[83];
    struct llm_param still = {.name = "running", .n_dims = 1, .shape = {in[0]->cols}, .weight = {.data = none, .dtype = LLM_F32}};
    static struct llm_param kept; /* the backward pass reads it */
    kept = still;
    c->training = true;
    return llm_batchnorm(c, in[0], p[0], p[1], &kept, &kept, 1e-2f);
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    int64_t rows = g->in[0].rows, cols = g->in[0].cols;
    for (int64_t i = 0; i < cols; i++) {
        double mean = 0, var = 0;
        for (int64_t t = 0; t < rows; t++) mean += in[0][t * cols + i] / (double)rows;
        for (int64_t t = 0; t < rows; t++) var += (in[0][t * cols + i] - mean) * (in[0][t * cols + i] - mean) / (double)rows;
        for (int64_t t = 0; t < rows; t++) {
            y[t * cols + i] = (in[0][t * cols + i] - mean) / sqrt(var + (double)1e-2f) * p[0][i] + (p[1] ? p[1][i] : 0);
        }
    }
}

const struct llm_gradcheck llm_gradcheck_batchnorm[] = {
    {.name = "batchnorm", .in = {{9, 83}}, .param = {{1, 83}, {1, 83}}, .out = {9, 83}, .n_rows = 3, .run = check_run, .formula = check_formula},
    {.name = "batchnorm without bias", .in = {{5, 7}}, .param = {{1, 7}}, .out = {5, 7}, .run = check_run, .formula = check_formula}, {0}};
