#include "quant/curvature.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/signals.h"
#include "cpu/pool.h"
#include "model/forward/forward.h"
#include "tensor/ops.h"

/* ---- targets drawn from the model's predictions ---- */

struct drawing {
    struct llm_inner inner;
    int32_t *targets;              /* [window] */
    float *spread;                 /* [window] the expected square of the length of the gradient of a token's logits: 1 - Σ p² */
    uint64_t window;
};
struct draw_rows { const struct drawing *d; const float *x; int64_t first, cols, stride; };

/* By the inverse of the distribution function, in the order of ids. */
static void draw_row(void *arg, size_t row, int thread)
{
    const struct draw_rows *w = arg;
    const float *x = w->x + (int64_t)row * w->stride;
    const int64_t token = w->first + (int64_t)row;
    const struct llm_rng r = llm_rng_at(0, w->d->window, LLM_RNG_SAMPLE, 0, 0, (uint32_t)token);
    float top = x[0];
    double sum = 0, squares = 0;
    int32_t id = 0;
    (void)thread;
    for (int64_t i = 1; i < w->cols; i++) top = x[i] > top ? x[i] : top;
    for (int64_t i = 0; i < w->cols; i++) {
        const double p = (double)expf(x[i] - top);
        sum += p;
        squares += p * p;
    }
    w->d->spread[token] = (float)(1 - squares / (sum * sum));
    const double at = llm_rng_uniform64(&r, 0) * sum;
    sum = 0;
    for (int64_t i = 0; i < w->cols && sum <= at; i++) {
        const double p = (double)expf(x[i] - top);
        sum += p;
        if (p > 0) id = (int32_t)i;
    }
    w->d->targets[token] = id;
}

static void draw_targets(const struct llm_inner *inner, struct llm_ctx *c, int64_t first, float *x, int64_t rows, int64_t cols, int64_t stride,
                         bool again)
{
    (void)c;
    (void)again;
    llm_parallel((size_t)rows, draw_row, &(struct draw_rows){inner->arg, x, first, cols, stride});
}

/* ---- passes ---- */

struct pass { struct llm_ctx ctx; struct drawing drawing; int32_t *positions; int64_t context; };

/* Adds to the head's factor Σ |d|²·h·hᵀ over the rows h of `hidden`, d being the gradient of a row's logits, as if they were not capped. */
static int add_head(struct pass *p, const struct llm_model *m, const struct llm_tensor *hidden, struct llm_err *e)
{
    const struct llm_kronecker *f = llm_model_head(m)->kronecker;
    const int64_t k = hidden->cols;
    if (!f) return 0;
    float *scaled = llm_arena_alloc(&p->ctx.acts, (size_t)(hidden->rows * k) * sizeof *scaled);
    if (!scaled) return llm_no_memory(e, "curvature");
    for (int64_t t = 0; t < hidden->rows; t++) {
        const float scale = (float)m->config.logit_scale * sqrtf(p->drawing.spread[t]);
        for (int64_t j = 0; j < k; j++) scaled[t * k + j] = scale * hidden->data[t * hidden->stride + j];
    }
    return llm_matmul_dw(f->in, scaled, k, scaled, k, hidden->rows, hidden->rows, k, k, LLM_COMPUTE_F32, e);
}

/* Forward and backward over one window. */
static int run_window(struct pass *p, struct llm_model *m, const int32_t *ids, int64_t n, struct llm_err *e)
{
    struct llm_ctx *c = &p->ctx;
    const struct llm_batch b = {.ids = ids, .positions = p->positions, .n_tokens = n};
    const struct llm_cross_entropy loss = {.targets = p->drawing.targets, .bias = llm_model_head_bias(m), .logit_scale = (float)m->config.logit_scale,
                                           .logit_softcap = (float)m->config.final_logit_softcapping, .grad_scale = 1, .logits = &p->drawing.inner};
    memset(p->drawing.targets, 0, (size_t)n * sizeof *p->drawing.targets);
    c->n_rows = 1;
    c->row_len = n;
    struct llm_tensor *hidden = llm_model_before_head(c, m, llm_model_forward(c, m, &b));
    llm_cross_entropy(c, hidden, llm_model_head(m), &loss);
    if (!llm_ctx_failed(c) && add_head(p, m, hidden, e) < 0) return -1;
    llm_backward(c);
    if (llm_ctx_failed(c)) {
        *e = c->err;
        return -1;
    }
    llm_ctx_reset(c);
    p->drawing.window++;
    return llm_signal_caught() ? 1 : 0;
}

static int run_text(struct pass *p, struct llm_model *model, const int32_t *ids, size_t n, struct llm_err *e)
{
    struct llm_progress progress;
    int status = 0;
    llm_progress_start(&progress, "curvature", "tokens", (int64_t)n);
    for (size_t at = 0; status == 0 && at < n; at += (size_t)p->context) {
        const size_t left = n - at, step = left < (size_t)p->context ? left : (size_t)p->context;
        if (step < 2 && at > 0) break;
        llm_progress_set(&progress, (int64_t)at, NULL);
        status = run_window(p, model, ids + at, (int64_t)step, e);
    }
    llm_progress_end(&progress);
    return status;
}

static int begin(struct pass *p, struct llm_err *e)
{
    const size_t limit = (size_t)1 << 36; /* of address space, of which ThreadSanitizer leaves little; pages are committed when they are touched */
    p->positions = llm_alloc((size_t)p->context, sizeof *p->positions, "curvature", e);
    p->drawing.targets = p->positions ? llm_alloc((size_t)p->context, sizeof *p->drawing.targets, "curvature", e) : NULL;
    p->drawing.spread = p->drawing.targets ? llm_alloc((size_t)p->context, sizeof *p->drawing.spread, "curvature", e) : NULL;
    if (!p->drawing.spread || llm_ctx_init(&p->ctx, limit, limit, true, e) < 0) return -1;
    for (int64_t i = 0; i < p->context; i++) p->positions[i] = (int32_t)i;
    p->drawing.inner = (struct llm_inner){draw_targets, &p->drawing};
    p->ctx.compute = LLM_COMPUTE_F32;
    return 0;
}

/* Of embeddings and the head, whose rows are too many, only the columns have a factor. A matrix that is both adds up what it gets as either. */
static bool rows_apart(const struct llm_model *model, const struct llm_param *p)
{
    return p == llm_model_head(model) || p->role == LLM_ROLE_TABLE;
}

/* The matrices that get factors: those whose inputs have products. */
static bool wanted(const struct llm_moments *m, const struct llm_model *model, const struct llm_param *p)
{
    const int64_t of = m->of[p - model->params];
    if (rows_apart(model, p)) return p->weight.k <= LLM_CURVATURE_ROWS;
    if (of < 0 || p->n_dims != 2 || m->v[of].expert >= 0) return false;
    return p->weight.n <= LLM_CURVATURE_ROWS && p->weight.k <= LLM_CURVATURE_ROWS;
}

/* Memory for the factors of the parameters in [first, *end), as many as m->memory allows. 0 or -1. */
static int begin_part(struct llm_moments *m, struct llm_model *model, size_t first, size_t *end, struct llm_err *e)
{
    uint64_t bytes = 0;
    for (*end = first; *end < model->n_params; (*end)++) {
        struct llm_param *p = &model->params[*end];
        struct llm_kronecker *f = &m->kronecker[*end];
        const int64_t n = p->weight.n, k = p->weight.k;
        if (!wanted(m, model, p)) continue;
        const bool apart = rows_apart(model, p);
        const uint64_t more = (uint64_t)((apart ? 0 : n * n) + k * k) * sizeof(float);
        if (m->memory > 0 && bytes > 0 && bytes + more > m->memory) break;
        bytes += more;
        f->in = llm_calloc((size_t)(k * k), sizeof(float), "curvature", e);
        if (f->in && !apart) f->out = llm_calloc((size_t)(n * n), sizeof(float), "curvature", e);
        if (!f->in || (!apart && !f->out)) return -1;
        p->kronecker = f;
    }
    return 0;
}

/* Whether the diagonal has anything but zeros. */
static bool any(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i * (n + 1)] != 0) return true;
    return false;
}

static int end_part(struct llm_moments *m, struct llm_model *model, size_t first, size_t end, struct llm_err *e)
{
    int status = 0;
    for (size_t i = first; i < end; i++) {
        struct llm_param *p = &model->params[i];
        struct llm_kronecker *f = &m->kronecker[i];
        p->kronecker = NULL;
        if (!f->in || status < 0) continue;
        if (!f->out && !any(f->in, p->weight.k)) { /* a table that no llm_embedding read */
            free(f->in);
            f->in = NULL;
            continue;
        }
        status = llm_moments_spool(m, &f->in, (size_t)(p->weight.k * p->weight.k), e);
        if (status == 0 && f->out) status = llm_moments_spool(m, &f->out, (size_t)(p->weight.n * p->weight.n), e);
    }
    return status;
}

/* Reads the text once for each part of the factors, with the same targets each time. */
static int run_parts(struct pass *p, struct llm_moments *m, struct llm_model *model, const int32_t *ids, size_t n, struct llm_err *e)
{
    int status = 0;
    for (size_t first = 0, end = 0; first < model->n_params && status == 0; first = end) {
        status = begin_part(m, model, first, &end, e);
        p->drawing.window = 0;
        if (status == 0) status = run_text(p, model, ids, n, e);
        if (status == 0) status = end_part(m, model, first, end, e);
    }
    return status;
}

int llm_curvature_gather(struct llm_moments *m, struct llm_model *model, const int32_t *ids, size_t n, int64_t context, struct llm_err *e)
{
    const int64_t longest = llm_config_default_context(&model->config);
    struct pass p = {.context = context > 0 ? context : longest < 512 ? longest : 512};
    if (llm_model_must_continue(model, e) < 0) return -1;
    if (n == 0) return llm_fail(e, EX_DATAERR, "calibration: expected a text with tokens, found none");
    m->kronecker = llm_calloc(model->n_params + 1, sizeof *m->kronecker, "curvature", e);
    int status = m->kronecker ? begin(&p, e) : -1;
    if (status == 0) status = run_parts(&p, m, model, ids, n, e);
    for (size_t i = 0; i < model->n_params; i++) model->params[i].kronecker = NULL;
    llm_ctx_release(&p.ctx);
    free(p.positions);
    free(p.drawing.targets);
    free(p.drawing.spread);
    return status;
}

double llm_curvature_harm(const struct llm_kronecker *f, double tokens, int64_t n, int64_t k, const float *delta, struct llm_err *e)
{
    float *right = llm_alloc((size_t)(2 * n * k), sizeof *right, "curvature", e), *left = right ? right + n * k : NULL;
    struct llm_weight in = {.data = f->in, .dtype = LLM_F32, .n = k, .k = k}, difference = {.data = delta, .dtype = LLM_F32, .n = n, .k = k};
    const struct llm_matmul a = {.m = n, .x = delta, .ldx = k, .y = right, .ldy = k, .compute = LLM_COMPUTE_F32};
    const struct llm_matmul b = {.m = n, .x = f->out, .ldx = n, .y = left, .ldy = k, .compute = LLM_COMPUTE_F32};
    double sum = NAN, trace = 0;
    if (right && llm_matmul(&a, &in, e) == 0 && llm_matmul_dx(&b, &difference, e) == 0) {
        sum = 0;
        for (int64_t i = 0; i < n * k; i++) sum += (double)left[i] * (double)right[i];
        for (int64_t j = 0; j < k; j++) trace += (double)f->in[j * k + j];
        sum = trace > 0 && tokens > 0 ? 0.5 * sum / (trace * tokens) : 0;
    }
    llm_weight_release(&in);
    llm_weight_release(&difference);
    free(right);
    return sum;
}
