#include "quant/awq.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/progress.h"
#include "cpu/kernels/elementwise.h"
#include "quant/open.h"

enum { POWERS = 20, READERS = 4, ROWS = 256 /* of a reader at most over which a scaling is tried */ };

/* A place of the model, and what is folded where. `width` channels; a reader's column j is channel of(j). */
struct place {
    const struct llm_param **readers; /* [n_readers] */
    size_t n_readers;
    struct llm_linear_params norm; /* takes the division in its gain and bias; or w NULL and: */
    struct llm_linear_params before; /* takes it in rows [first, first + width) of the matrix, and elements of its bias */
    int64_t first, width;
    int64_t head, repeat;          /* values: channels of a head, and query heads that read each; head 0: column j is channel j */
};
struct awq {
    struct llm_model *m;
    const struct llm_quant_plan *plan;
    struct llm_moments *moments;
    struct llm_awq_counts *counts;
    const struct llm_param **readers; /* room for those of one place */
    size_t *records;               /* room for their records of moments */
};

static int64_t channel_of(const struct place *p, int64_t j)
{
    return p->head ? j / p->head / p->repeat * p->head + j % p->head : j;
}

static size_t number_of(const struct awq *a, const struct llm_param *p)
{
    return (size_t)(p - a->m->params);
}

/* ---- the change ---- */

/* Elements of a vector, or rows of a matrix, over the scales. */
static int divide(struct llm_param *p, int64_t first, int64_t n, double offset, const float *scale, struct llm_quant_spool *spool, struct llm_err *e)
{
    float *x = llm_param_open(p, e);
    const int64_t cols = p->n_dims > 1 ? p->weight.k : 1;
    for (int64_t i = 0; x && i < n; i++) {
        float *row = x + (first + i) * cols;
        for (int64_t j = 0; j < cols; j++) row[j] = (float)(((double)row[j] + offset) / (double)scale[i] - offset);
    }
    if (x) llm_quant_spool_param(spool, p);
    return x ? 0 : -1;
}

static int multiply_columns(const struct place *p, struct llm_param *w, const float *scale, struct llm_quant_spool *spool, struct llm_err *e)
{
    float *x = llm_param_open(w, e);
    for (int64_t i = 0; x && i < w->weight.n; i++) {
        for (int64_t j = 0; j < w->weight.k; j++) x[i * w->weight.k + j] *= scale[channel_of(p, j)];
    }
    if (x) llm_quant_spool_param(spool, w);
    return x ? 0 : -1;
}

/* The mean squares become those of the scaled inputs: each record once. */
static void scale_moments(const struct awq *a, const struct place *p, const float *scale)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_readers; i++) {
        const int64_t of = a->moments->of[number_of(a, p->readers[i])];
        bool done = of < 0;
        for (size_t k = 0; k < n && !done; k++) done = a->records[k] == (size_t)of;
        if (done) continue;
        a->records[n++] = (size_t)of;
        struct llm_moment *r = &a->moments->v[of];
        for (int64_t j = 0; j < r->k; j++) {
            const double s = (double)scale[channel_of(p, j)];
            r->squares[j] = (double)(float)r->squares[j] / (s * s); /* of floats, as files have them: so the result is the same */
        }
    }
}

static int fold(const struct awq *a, const struct place *p, const float *scale, struct llm_err *e)
{
    const double offset = a->m->config.norm_gain_offset;
    struct llm_quant_spool *const spool = a->plan->spool;
    int status = 0;
    for (size_t i = 0; i < p->n_readers && status == 0; i++) {
        status = multiply_columns(p, &a->m->params[number_of(a, p->readers[i])], scale, spool, e);
    }
    if (status == 0 && p->norm.w) status = divide(p->norm.w, 0, p->width, offset, scale, spool, e);
    if (status == 0 && p->norm.b) status = divide(p->norm.b, 0, p->width, 0, scale, spool, e);
    if (status == 0 && p->before.w) status = divide(p->before.w, p->first, p->width, 0, scale, spool, e);
    if (status == 0 && p->before.b) status = divide(p->before.b, p->first, p->width, 0, scale, spool, e);
    if (status == 0) scale_moments(a, p, scale);
    a->m->fingerprint[0] = 0;
    return status;
}

/* ---- the choice ---- */

/* Σ importance·(w - rounded(w·s)/s)² over some rows of a reader. NaN: see `e`. */
static double error_of(const struct awq *a, const struct place *p, const struct llm_param *w, const float *scale, const float *importance,
                       struct llm_err *e)
{
    const int64_t k = w->weight.k, n = w->weight.n < ROWS ? w->weight.n : ROWS;
    const char *kept;
    const enum llm_dtype from = w->weight.dtype, to = llm_quant_choose(a->m, w, a->plan, &kept);
    float *x = llm_alloc((size_t)(2 * n * k + k), sizeof *x, w->name, e), *scaled = x ? x + n * k : NULL, *weights = x ? scaled + n * k : NULL;
    void *blocks = x ? llm_alloc_huge((size_t)llm_dtype_bytes(to, (uint64_t)(n * k)), 1, w->name, e) : NULL;
    double sum = 0;
    for (int64_t i = 0; blocks && i < n; i++) {
        const int64_t row = i * w->weight.n / n;
        llm_dtypes[from].decode((const char *)w->weight.data + llm_dtype_bytes(from, (uint64_t)(row * k)), x + i * k, (size_t)k);
        for (int64_t j = 0; j < k; j++) scaled[i * k + j] = x[i * k + j] * scale[channel_of(p, j)];
    }
    for (int64_t j = 0; blocks && j < k; j++) weights[j] = importance[j] / (scale[channel_of(p, j)] * scale[channel_of(p, j)]);
    const struct llm_quant_job job = {.in = scaled, .out = blocks, .from = LLM_F32, .to = to, .n = (uint64_t)(n * k), .row = k, .importance = weights,
                                      .method = a->plan->method};
    struct llm_quant_report r;
    const bool good = blocks && llm_quantize_tensor(&job, &r, e) == 0;
    if (good) llm_dtypes[to].decode(blocks, scaled, (size_t)(n * k));
    for (int64_t i = 0; good && i < n * k; i++) {
        const double d = (double)x[i] - (double)scaled[i] / (double)scale[channel_of(p, i % k)];
        sum += (double)importance[i % k] * d * d;
    }
    free(x);
    free(blocks);
    return good ? sum : (double)NAN;
}

/* The scales of one power, their largest and least having the product 1. */
static void scales_of(const double *size, int64_t width, double power, float *scale)
{
    double top = 0, low = INFINITY;
    for (int64_t c = 0; c < width; c++) {
        const double s = pow(size[c] > 1e-4 ? size[c] : 1e-4, power);
        scale[c] = (float)s;
        top = s > top ? s : top;
        low = s < low ? s : low;
    }
    for (int64_t c = 0; c < width; c++) scale[c] = power > 0 ? (float)((double)scale[c] / sqrt(top * low)) : 1;
}

/* The sum of the errors of all readers; those that stay as they are (routers) have none. */
static double errors_of(const struct awq *a, const struct place *p, const float *scale, float *importance, struct llm_err *e)
{
    double sum = 0;
    for (size_t i = 0; i < p->n_readers; i++) {
        const char *kept;
        llm_quant_choose(a->m, p->readers[i], a->plan, &kept);
        if (!kept && llm_moments_importance(a->moments, number_of(a, p->readers[i]), importance)) {
            sum += error_of(a, p, p->readers[i], scale, importance, e);
        }
    }
    return sum;
}

/* Root mean squares of the channels, those of the readers' records added up. */
static void sizes_of(const struct awq *a, const struct place *p, float *importance, double *size)
{
    for (int64_t c = 0; c < p->width; c++) size[c] = 0;
    for (size_t i = 0; i < p->n_readers; i++) {
        if (!llm_moments_importance(a->moments, number_of(a, p->readers[i]), importance)) continue;
        for (int64_t j = 0; j < p->readers[i]->weight.k; j++) size[channel_of(p, j)] += (double)importance[j];
    }
    for (int64_t c = 0; c < p->width; c++) size[c] = sqrt(size[c] / (double)(p->n_readers * (size_t)(p->head ? p->repeat : 1)));
}

static bool stays(const struct awq *a, const struct llm_param *p)
{
    const char *kept;
    llm_quant_choose(a->m, p, a->plan, &kept);
    return kept && !(strcmp(kept, "exact") == 0 && p->spec->stem == LLM_STEM_ROUTER);
}

static int do_place(const struct awq *a, const struct place *p, struct llm_err *e)
{
    bool closed = !p->norm.w && !p->before.w;
    for (size_t i = 0; i < p->n_readers && !closed; i++) closed = stays(a, p->readers[i]);
    if (!closed && p->before.w) closed = stays(a, p->before.w);
    if (p->n_readers == 0) return 0;
    a->counts->closed += closed;
    if (closed) return 0;
    int64_t widest = p->width;
    for (size_t i = 0; i < p->n_readers; i++) widest = p->readers[i]->weight.k > widest ? p->readers[i]->weight.k : widest;
    float *scale = llm_alloc((size_t)(p->width + widest), sizeof *scale, "awq", e), *importance = scale ? scale + p->width : NULL;
    double *size = scale ? llm_alloc((size_t)p->width, sizeof *size, "awq", e) : NULL;
    double least = INFINITY;
    int best = 0, status = size ? 0 : -1;
    if (size) sizes_of(a, p, importance, size);
    for (int i = 0; i < POWERS && status == 0; i++) {
        scales_of(size, p->width, (double)i / POWERS, scale);
        const double error = errors_of(a, p, scale, importance, e);
        if (isnan(error)) status = -1;
        if (error < least) {
            least = error;
            best = i;
        }
    }
    if (status == 0 && best > 0) {
        scales_of(size, p->width, (double)best / POWERS, scale);
        status = fold(a, p, scale, e);
    }
    a->counts->folded += best > 0;
    a->counts->plain += best == 0;
    free(scale);
    free(size);
    return status;
}

/* ---- the places of a layer ---- */

static void add(const struct awq *a, struct place *p, const struct llm_param *w)
{
    if (w) a->readers[p->n_readers++] = w;
}

static void add_ffn(const struct awq *a, struct place *p, const struct llm_module *f)
{
    if (!f->kind) return;
    if (f->kind->number == LLM_MODULE_mlp) {
        add(a, p, f->p[LLM_MLP_GATE].w);
        add(a, p, f->p[LLM_MLP_UP].w);
        add(a, p, f->p[LLM_MLP_GATE_UP].w);
    } else if (f->kind->number == LLM_MODULE_moe) {
        add(a, p, f->p[LLM_MOE_ROUTER].w);
        add(a, p, f->p[LLM_MOE_SHARED_GATE].w);
        add(a, p, f->p[LLM_MOE_SHARED_UP].w);
        for (int64_t i = 0; i < 2 * a->m->config.num_experts; i++) add(a, p, f->experts[i]);
    }
}

static void add_mixer(const struct awq *a, struct place *p, const struct llm_module *x)
{
    static const int attention[] = {LLM_ATTENTION_Q, LLM_ATTENTION_K, LLM_ATTENTION_V, LLM_ATTENTION_QKV};
    static const int mla[] = {LLM_MLA_Q, LLM_MLA_Q_A, LLM_MLA_KV_A};
    if (!x->kind) return;
    for (int i = 0; x->kind->number == LLM_MODULE_attention && i < 4; i++) add(a, p, x->p[attention[i]].w);
    for (int i = 0; x->kind->number == LLM_MODULE_mla && i < 3; i++) add(a, p, x->p[mla[i]].w);
    if (x->kind->number == LLM_MODULE_mamba || x->kind->number == LLM_MODULE_mamba2) add(a, p, x->p[LLM_MAMBA_IN].w);
}

/* The input of a sub-layer. */
static int do_input(const struct awq *a, const struct llm_layer *l, int sub, struct llm_err *e)
{
    const struct llm_config *c = &a->m->config;
    struct place p = {.readers = a->readers, .width = c->hidden_size};
    const struct llm_module *norm = &l->before[sub];
    if (norm->kind) p.norm = norm->p[0];
    if (sub == LLM_SUB_MIXER) add_mixer(a, &p, &l->mixer);
    if (sub == LLM_SUB_FFN && c->shared_norm) return 0; /* with the mixer's */
    if (sub == LLM_SUB_FFN || c->shared_norm) add_ffn(a, &p, &l->ffn);
    return do_place(a, &p, e);
}

/* One reader of what a matrix makes, or a norm. */
static int do_one(const struct awq *a, const struct llm_param *reader, const struct llm_linear_params *norm, const struct llm_linear_params *before,
                  int64_t first, bool open, struct llm_err *e)
{
    struct place p = {.readers = a->readers, .first = first};
    if (!reader) return 0;
    p.width = reader->weight.k;
    if (open && norm) p.norm = *norm;
    if (open && before) p.before = *before;
    add(a, &p, reader);
    return do_place(a, &p, e);
}

static int do_values(const struct awq *a, const struct llm_module *x, struct llm_err *e)
{
    const struct llm_config *c = &a->m->config;
    const bool fused = x->p[LLM_ATTENTION_QKV].w;
    struct place p = {.readers = a->readers, .head = c->head_dim, .width = c->num_key_value_heads * c->head_dim,
                      .repeat = c->num_attention_heads / c->num_key_value_heads};
    if (c->kv_sharing == 1) p.before = x->p[fused ? LLM_ATTENTION_QKV : LLM_ATTENTION_V];
    p.first = fused ? (c->num_attention_heads + c->num_key_value_heads) * c->head_dim : 0;
    add(a, &p, x->p[LLM_ATTENTION_OUT].w);
    return do_place(a, &p, e);
}

static int do_inner(const struct awq *a, const struct llm_module *f, struct llm_err *e)
{
    const struct llm_config *c = &a->m->config;
    const bool open = c->gated || c->act == LLM_ACT_RELU;
    int status = 0;
    if (f->kind->number == LLM_MODULE_mlp) {
        const bool fused = f->p[LLM_MLP_GATE_UP].w;
        return do_one(a, f->p[LLM_MLP_DOWN].w, NULL, &f->p[fused ? LLM_MLP_GATE_UP : LLM_MLP_UP], fused ? c->intermediate_size : 0, open, e);
    }
    if (f->kind->number != LLM_MODULE_moe) return 0;
    status = do_one(a, f->p[LLM_MOE_SHARED_DOWN].w, NULL, &f->p[LLM_MOE_SHARED_UP], 0, open, e);
    for (int64_t i = 0; i < c->num_experts && status == 0; i++) {
        const struct llm_linear_params up = {.w = f->experts[c->num_experts + i]};
        status = do_one(a, f->experts[2 * c->num_experts + i], NULL, &up, 0, open, e);
    }
    return status;
}

static int do_layer(const struct awq *a, const struct llm_layer *l, struct llm_err *e)
{
    const struct llm_module *x = &l->mixer;
    int status = do_input(a, l, LLM_SUB_MIXER, e);
    if (status == 0 && x->kind->number == LLM_MODULE_attention) status = do_values(a, x, e);
    if (status == 0 && x->kind->number == LLM_MODULE_mla) {
        status = do_one(a, x->p[LLM_MLA_Q_B].w, &x->p[LLM_MLA_Q_A_NORM], NULL, 0, true, e);
        if (status == 0) status = do_one(a, x->p[LLM_MLA_KV_B].w, &x->p[LLM_MLA_KV_A_NORM], NULL, 0, true, e);
        if (status == 0) status = do_one(a, x->p[LLM_MLA_OUT].w, NULL, NULL, 0, false, e);
    }
    if (status == 0 && l->ffn.kind) status = do_input(a, l, LLM_SUB_FFN, e);
    return status == 0 && l->ffn.kind ? do_inner(a, &l->ffn, e) : status;
}

int llm_awq(struct llm_model *m, const struct llm_quant_plan *plan, struct llm_moments *moments, struct llm_awq_counts *counts, struct llm_err *e)
{
    const struct llm_decoder *d = m->layout;
    const struct llm_stack *s = &d->stacks[LLM_STACK_MAIN];
    struct awq a = {.m = m, .plan = plan, .moments = moments, .counts = counts};
    struct llm_progress progress;
    memset(counts, 0, sizeof *counts);
    a.readers = llm_alloc(m->n_params + READERS, sizeof *a.readers, "awq", e);
    a.records = a.readers ? llm_alloc(m->n_params + READERS, sizeof *a.records, "awq", e) : NULL;
    int status = a.records ? 0 : -1;
    llm_progress_start(&progress, "awq", "layers", s->n_layers);
    for (int64_t l = 0; l < s->n_layers && status == 0; l++) {
        llm_progress_set(&progress, l, NULL);
        status = do_layer(&a, &s->layers[l], e);
    }
    llm_progress_end(&progress);
    llm_model_changed(m);
    free(a.readers);
    free(a.records);
    return status;
}
