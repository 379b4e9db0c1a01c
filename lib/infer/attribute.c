#include "infer/attribute.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model/forward/block.h"

/* ---- which models, which places ---- */

/* Why a logit of the model is no sum of contributions; NULL: it is one. */
static const char *why_not(const struct llm_config *c)
{
    if (c->norm_place == LLM_NORM_BARE) return "its layers do not add to a residual";
    if (c->norm_place == LLM_NORM_POST) return "it norms the residual after each sum";
    if (c->norm != LLM_NORM_RMS && c->norm != LLM_NORM_LAYER) return "its norms are neither RMSNorm nor LayerNorm";
    if (c->head_transform) return "a transform with an activation function stands before its head";
    if (llm_config_learns_latents(c)) return "learned latents go through its layers in place of tokens";
    return NULL;
}

static int add_place(struct llm_attribution *a, enum llm_place_kind kind, int64_t layer)
{
    const struct llm_place p = {kind, LLM_STACK_MAIN, layer};
    if (!llm_place_exists(&a->model->config, p)) return 0;
    llm_place_print(p, a->names[a->n_places], sizeof *a->names);
    a->places[a->n_places] = a->names[a->n_places];
    a->n_places++;
    return 1;
}

int llm_attribution_begin(struct llm_attribution *a, struct llm_model *m, struct llm_err *e)
{
    static const enum llm_place_kind kinds[] = {LLM_PLACE_ATTENTION_HEADS, LLM_PLACE_ATTENTION_OUTPUT, LLM_PLACE_MIXER_OUTPUT, LLM_PLACE_MLP_OUTPUT};
    enum { N_KINDS = sizeof kinds / sizeof *kinds };
    const char *why = why_not(&m->config);
    size_t layers = (size_t)m->config.num_hidden_layers, room = layers * N_KINDS + 3;
    a->model = m;
    if (llm_model_must_continue(m, e) < 0) return -1;
    if (why) return llm_fail(e, EX_UNAVAILABLE, "expected logits that are sums of contributions, found a %s: %s", m->config.model_type, why);
    a->names = llm_alloc(room, sizeof *a->names, "places", e);
    a->places = llm_alloc(room, sizeof *a->places, "places", e);
    if (!a->names || !a->places) return -1;
    add_place(a, LLM_PLACE_EMBEDDING, -1);
    for (size_t l = 0; l < layers; l++) {
        for (int k = 0; k < N_KINDS; k++) add_place(a, kinds[k], (int64_t)l);
    }
    add_place(a, LLM_PLACE_RESIDUAL_AFTER, m->config.num_hidden_layers - 1);
    add_place(a, LLM_PLACE_FINAL_NORM, -1);
    return 0;
}

void llm_attribution_release(struct llm_attribution *a)
{
    free(a->names);
    free(a->places);
    free(a->v);
    *a = (struct llm_attribution){0};
}

/* ---- values of the pass ---- */

/* The row that was taken at a place; NULL without `e` if the model has no such place. */
static const struct llm_taken *taken_at(const struct llm_taking *t, enum llm_place_kind kind, int64_t layer)
{
    for (size_t i = 0; i < t->n; i++) {
        if (t->v[i].place.kind == kind && t->v[i].place.layer == layer) return &t->v[i];
    }
    return NULL;
}

static const float *row_at(const struct llm_taking *t, enum llm_place_kind kind, int64_t layer, int64_t row)
{
    const struct llm_taken *v = taken_at(t, kind, layer);
    return v && v->have[row] ? v->x + row * v->cols : NULL;
}

/* What the head multiplies. */
static const float *before_head(const struct llm_attribution *a, const struct llm_taking *t, int64_t row)
{
    const float *x = row_at(t, LLM_PLACE_FINAL_NORM, -1, row);
    return x ? x : row_at(t, LLM_PLACE_RESIDUAL_AFTER, a->model->config.num_hidden_layers - 1, row);
}

const float *llm_attribution_logits(const struct llm_attribution *a, struct llm_ctx *c, const struct llm_taking *t, int64_t row, struct llm_err *e)
{
    const struct llm_config *f = &a->model->config;
    const struct llm_decoder *d = a->model->layout;
    const float *x = before_head(a, t, row);
    struct llm_tensor *hidden = llm_tensor_create(c, 1, f->hidden_size);
    if (!x) {
        llm_fail(e, EX_UNAVAILABLE, "expected a final residual for each token, found none");
        return NULL;
    }
    if (!llm_ctx_failed(c)) memcpy(hidden->data, x, (size_t)f->hidden_size * sizeof *x);
    struct llm_tensor *logits = llm_linear(c, hidden, llm_model_head(a->model), d->head_bias);
    if (f->logit_scale != 1) logits = llm_scale(c, logits, (float)f->logit_scale);
    if (!llm_ctx_failed(c)) return logits->data;
    *e = c->err;
    return NULL;
}

/* ---- linear maps, backwards ---- */

static double dot(const double *d, const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += d[i] * x[i];
    return sum;
}

/* The linear form d of a norm's output becomes one of its input x, whose mean and length are taken for constants; returns what the norm's bias adds.
 * `scratch` has 2·hidden_size floats. */
static double before_norm(const struct llm_config *f, const struct llm_linear_params *p, const float *x, double *d, float *scratch)
{
    int64_t n = f->hidden_size;
    bool centred = f->norm == LLM_NORM_LAYER;
    double mean = 0, squares = 0, bias = 0, d_mean = 0;
    float *gain = scratch, *shift = scratch + n;
    if (!p->w) return 0;
    llm_weight_decode(&p->w->weight, 0, n, gain);
    if (p->b) llm_weight_decode(&p->b->weight, 0, n, shift);
    for (int64_t i = 0; i < n && centred; i++) mean += x[i] / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
    double scale = 1 / sqrt(squares / (double)n + f->norm_eps);
    for (int64_t i = 0; i < n; i++) {
        if (p->b) bias += d[i] * shift[i];
        d[i] *= gain[i] + (centred ? 0 : f->norm_gain_offset);
        if (centred) d_mean += d[i] / (double)n;
    }
    for (int64_t i = 0; i < n; i++) d[i] = (d[i] - d_mean) * scale;
    return bias;
}

/* ---- contributions ---- */

LLM_PRINTF(4, 5) static int put(struct llm_attribution *a, double value, struct llm_err *e, const char *fmt, ...)
{
    va_list args;
    if (llm_grow((void **)&a->v, &a->room, a->n + 1, sizeof *a->v, e) < 0) return -1;
    struct llm_contribution *c = &a->v[a->n++];
    va_start(args, fmt);
    vsnprintf(c->name, sizeof c->name, fmt, args);
    va_end(args);
    c->value = value;
    return 0;
}

/* What a layer's attention adds, head by head: each head's output goes through the output projection alone, with zeros in the others' place. */
static int put_heads(struct llm_attribution *a, struct llm_ctx *c, const struct llm_taken *heads, int64_t row, const double *d, struct llm_err *e)
{
    const struct llm_config *f = &a->model->config;
    const struct llm_stack *s = &((const struct llm_decoder *)a->model->layout)->stacks[LLM_STACK_MAIN];
    int64_t layer = heads->place.layer, n = f->num_attention_heads, hidden = f->hidden_size, width = heads->cols / n;
    const struct llm_layer *l = &s->layers[layer];
    const struct llm_linear_params *out = &l->mixer.p[l->mixer.kind == &llm_module_mla ? LLM_MLA_OUT : LLM_ATTENTION_OUT];
    const struct llm_module *after = l->after[LLM_SUB_MIXER].kind ? &l->after[LLM_SUB_MIXER] : NULL;
    size_t mark = llm_arena_mark(&c->acts);
    struct llm_tensor *z = llm_tensor_create(c, n, heads->cols);
    for (int64_t h = 0; h < n && !llm_ctx_failed(c); h++) {
        float *to = z->data + h * z->stride;
        memset(to, 0, (size_t)heads->cols * sizeof *to);
        memcpy(to + h * width, heads->x + row * heads->cols + h * width, (size_t)width * sizeof *to);
    }
    struct llm_tensor *y = llm_linear(c, z, out->w, NULL);
    if (llm_ctx_failed(c)) {
        *e = c->err;
        return -1;
    }
    float *sum = llm_alloc(4 * (size_t)hidden, sizeof *sum, "contributions", e), *bias = sum + hidden, *scratch = bias + hidden;
    double *own = llm_alloc((size_t)hidden, sizeof *own, "contributions", e), constant = 0;
    int status = sum && own ? 0 : -1;
    if (status == 0) {
        memset(bias, 0, (size_t)hidden * sizeof *bias);
        if (out->b) llm_weight_decode(&out->b->weight, 0, hidden, bias);
        memcpy(own, d, (size_t)hidden * sizeof *own);
        for (int64_t i = 0; i < hidden && after; i++) {
            double all = bias[i];
            for (int64_t h = 0; h < n; h++) all += y->data[h * y->stride + i];
            sum[i] = (float)all;
        }
        if (after) constant = before_norm(f, &after->p[0], sum, own, scratch);
    }
    for (int64_t h = 0; h < n && status == 0; h++) {
        status = put(a, dot(own, y->data + h * y->stride, hidden), e, "%s:%" PRId64, heads->name, h);
    }
    if (status == 0 && (out->b || (after && after->p[0].b))) {
        status = put(a, dot(own, bias, hidden) + constant, e, "layers.%" PRId64 ".attention.bias", layer);
    }
    free(sum);
    free(own);
    llm_arena_pop(&c->acts, mark);
    return status;
}

static int put_layer(struct llm_attribution *a, struct llm_ctx *c, const struct llm_taking *t, int64_t layer, int64_t row, const double *d,
                     struct llm_err *e)
{
    static const enum llm_place_kind whole[] = {LLM_PLACE_ATTENTION_OUTPUT, LLM_PLACE_MIXER_OUTPUT, LLM_PLACE_MLP_OUTPUT};
    const struct llm_taken *heads = taken_at(t, LLM_PLACE_ATTENTION_HEADS, layer);
    if (heads && !heads->have[row]) heads = NULL;
    if (heads && put_heads(a, c, heads, row, d, e) < 0) return -1;
    for (size_t k = heads ? 1 : 0; k < sizeof whole / sizeof *whole; k++) {
        const struct llm_taken *y = taken_at(t, whole[k], layer);
        if (y && y->have[row] && put(a, dot(d, y->x + row * y->cols, y->cols), e, "%s", y->name) < 0) return -1;
    }
    return 0;
}

int llm_attribution_read(struct llm_attribution *a, struct llm_ctx *c, const struct llm_taking *t, int64_t row, int32_t target, struct llm_err *e)
{
    const struct llm_config *f = &a->model->config;
    const struct llm_decoder *m = a->model->layout;
    const struct llm_stack *s = &m->stacks[LLM_STACK_MAIN];
    const float *first = row_at(t, LLM_PLACE_EMBEDDING, -1, row), *last = row_at(t, LLM_PLACE_RESIDUAL_AFTER, f->num_hidden_layers - 1, row);
    int64_t n = f->hidden_size;
    float *scratch = llm_alloc(2 * (size_t)n, sizeof *scratch, "contributions", e);
    double *d = llm_alloc((size_t)n, sizeof *d, "contributions", e), constant = 0;
    float bias = 0;
    int status = scratch && d ? 0 : -1;
    a->n = 0;
    if (status == 0 && (!first || !last)) status = llm_fail(e, EX_UNAVAILABLE, "expected a residual for each token, found none");
    if (status == 0) {
        llm_adapter_decode(llm_model_head(a->model), target, scratch);
        for (int64_t i = 0; i < n; i++) d[i] = f->logit_scale * scratch[i];
        if (m->head_bias) llm_weight_decode(&m->head_bias->weight, target, 1, &bias);
        constant = f->logit_scale * bias + before_norm(f, &s->final_norm, last, d, scratch);
        status = put(a, dot(d, first, n), e, "embedding");
    }
    for (int64_t l = 0; l < f->num_hidden_layers && status == 0; l++) status = put_layer(a, c, t, l, row, d, e);
    if (status == 0 && (m->head_bias || (s->final_norm.w && s->final_norm.b))) status = put(a, constant, e, "bias");
    free(scratch);
    free(d);
    return status;
}
