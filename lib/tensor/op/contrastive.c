/* Symmetric InfoNCE over a batch (van den Oord et al. 2018; CLIP, Radford et al. 2021). For n pairs of vectors of length 1 the logits are all n² dot
 * products times e^logit_scale. The loss is the cross-entropy of each first vector's partner among all second vectors, and of each second vector's
 * partner among all first ones. The sigmoid loss (SigLIP, Zhai et al. 2023) asks of each two vectors whether they are partners: the logits have a
 * bias too, and the loss of a first vector is the sum of -log sigmoid(±logit) over all second ones. */
#include <math.h>
#include "cpu/kernels.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/tape.h"

struct work {
    const struct llm_tensor *x;
    int64_t n;
    double scale, bias;
    bool sigmoid;
    double *logits;         /* [n, n]; later the gradient of the loss with respect to the logits */
    double *row_lse, *col_lse;
    float *dx;              /* [2n, cols] */
};

static void logit_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    (void)thread;
    for (int64_t i = from; i < to; i++) {
        for (int64_t j = 0; j < w->n; j++) {
            const float *a = w->x->data + i * w->x->stride, *b = w->x->data + (w->n + j) * w->x->stride;
            double sum = 0;
            for (int64_t k = 0; k < w->x->cols; k++) sum += (double)a[k] * (double)b[k];
            w->logits[i * w->n + j] = w->scale * sum + w->bias;
        }
    }
}

/* log Σ exp of n numbers `step` apart. */
static double lse(const double *x, int64_t n, int64_t step)
{
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) max = fmax(max, x[i * step]);
    for (int64_t i = 0; i < n; i++) sum += exp(x[i * step] - max);
    return max + log(sum);
}

/* -log sigmoid(-x) */
static double softplus(double x) { return fmax(x, 0) + log1p(exp(-fabs(x))); }

static void sigmoid_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    (void)thread;
    for (int64_t i = from; i < to; i++) {
        w->row_lse[i] = 0;
        for (int64_t j = 0; j < w->n; j++) w->row_lse[i] += softplus(i == j ? -w->logits[i * w->n + j] : w->logits[i * w->n + j]);
    }
}

static void lse_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    (void)thread;
    for (int64_t i = from; i < to; i++) {
        w->row_lse[i] = lse(w->logits + i * w->n, w->n, 1);
        w->col_lse[i] = lse(w->logits + i, w->n, w->n);
    }
}

/* The gradients of vectors [from, to) of the 2n: sums over their n possible partners, in order. */
static void vector_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        bool first = r < w->n;
        for (int64_t k = 0; k < w->x->cols; k++) {
            double sum = 0;
            for (int64_t o = 0; o < w->n; o++) {
                const float *other = w->x->data + (first ? w->n + o : o) * w->x->stride;
                sum += w->logits[first ? r * w->n + o : o * w->n + r - w->n] * (double)other[k];
            }
            w->dx[r * w->x->cols + k] += (float)(w->scale * sum);
        }
    }
}

/* Replaces the logits by their gradients. Returns the gradient of logit_scale; *d_bias: that of the bias. */
static double logit_gradients(const struct work *w, double grad_scale, double *d_bias)
{
    double d_scale = *d_bias = 0;
    for (int64_t i = 0; i < w->n; i++) {
        for (int64_t j = 0; j < w->n; j++) {
            double l = w->logits[i * w->n + j], g;
            if (w->sigmoid) g = 1 / (1 + exp(-l)) - (i == j);
            else g = .5 * (exp(l - w->row_lse[i]) + exp(l - w->col_lse[j])) - (i == j);
            w->logits[i * w->n + j] = g * grad_scale;
            d_scale += g * grad_scale * (l - w->bias);
            *d_bias += g * grad_scale;
        }
    }
    return d_scale;
}

static int64_t count(const struct work *w)
{
    int64_t found = 0;
    for (int64_t i = 0; i < w->n; i++) {
        int64_t row = 0, col = 0;
        for (int64_t j = 1; j < w->n; j++) {
            row = w->logits[i * w->n + j] > w->logits[i * w->n + row] ? j : row;
            col = w->logits[j * w->n + i] > w->logits[col * w->n + i] ? j : col;
        }
        found += (row == i) + (col == i);
    }
    return found;
}

void llm_contrastive(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *logit_scale, const struct llm_contrastive *o)
{
    int64_t n = x->rows / 2;
    if (llm_ctx_failed(c)) return;
    if (logit_scale->weight.dtype != LLM_F32 || (o->bias && o->bias->weight.dtype != LLM_F32)) {
        llm_op_fail(c, EX_UNAVAILABLE, "logit_scale, logit_bias: expected F32");
        return;
    }
    double at = (double)((const float *)logit_scale->weight.data)[0], max = o->bias ? INFINITY : log(100.0), d_bias;
    struct work w = {.x = x, .n = n, .scale = exp(at < max ? at : max), .sigmoid = o->bias != NULL};
    if (o->bias) w.bias = (double)((const float *)o->bias->weight.data)[0];
    w.logits = llm_op_alloc(c, n * n, sizeof *w.logits);
    w.row_lse = llm_op_alloc(c, n, sizeof *w.row_lse);
    w.col_lse = llm_op_alloc(c, n, sizeof *w.col_lse);
    if (llm_ctx_failed(c)) return;
    llm_for_rows(n, n * x->cols, logit_rows, &w);
    llm_for_rows(n, 2 * n, w.sigmoid ? sigmoid_rows : lse_rows, &w);
    for (int64_t i = 0; i < n; i++)
        o->loss[i] = (float)(w.sigmoid ? w.row_lse[i] : .5 * (w.row_lse[i] + w.col_lse[i]) - w.logits[i * n + i]);
    if (o->found) *o->found = count(&w);
    w.dx = llm_tensor_grad(c, x);
    if (!w.dx) return;
    double d_scale = logit_gradients(&w, o->grad_scale, &d_bias);
    llm_for_rows(2 * n, n * x->cols, vector_rows, &w);
    /* at the maximum of the scale a gradient counts only if it makes the scale smaller */
    if (logit_scale->grad && !o->fixed && (at < max || d_scale > 0)) logit_scale->grad[0] += (float)d_scale;
    if (o->bias && o->bias->grad) o->bias->grad[0] += (float)d_bias;
}

/* ---- gradient check ---- */

static float check_losses[4];

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    llm_contrastive(c, in[0], p[0], &(struct llm_contrastive){.grad_scale = 1, .loss = check_losses});
    return NULL;
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    int64_t d = g->in[0].cols;
    double l[4][4];
    *y = 0;
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) {
            l[i][j] = 0;
            for (int64_t k = 0; k < d; k++) l[i][j] += exp(p[0][0]) * in[0][i * d + k] * in[0][(4 + j) * d + k];
        }
    }
    for (int i = 0; i < 4; i++) *y += .5 * (lse(l[i], 4, 1) + lse(&l[0][i], 4, 4)) - l[i][i];
}

static struct llm_tensor *check_sigmoid(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    llm_contrastive(c, in[0], p[0], &(struct llm_contrastive){.grad_scale = 1, .bias = p[1], .loss = check_losses});
    return NULL;
}

static void formula_sigmoid(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    int64_t d = g->in[0].cols;
    *y = 0;
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) {
            double l = p[1][0];
            for (int64_t k = 0; k < d; k++) l += exp(p[0][0]) * in[0][i * d + k] * in[0][(4 + j) * d + k];
            *y += log(1 + exp(i == j ? -l : l));
        }
    }
}

const struct llm_gradcheck llm_gradcheck_contrastive[] = {
    {.name = "contrastive", .in = {{8, 11}}, .param = {{1, 1}}, .out = {1, 1}, .run = check_run, .formula = check_formula},
    {.name = "contrastive sigmoid", .in = {{8, 11}}, .param = {{1, 1}, {1, 1}}, .out = {1, 1}, .run = check_sigmoid, .formula = formula_sigmoid},
    {0}};
