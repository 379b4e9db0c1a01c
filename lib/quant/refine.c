#include "quant/refine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/progress.h"
#include "base/signals.h"
#include "cpu/pool.h"
#include "model/forward/forward.h"
#include "quant/block.h"
#include "tensor/ops.h"

/* What is learned of a matrix. Element i of group g has the value S·level(q) - L, S and L being the group's scale and offset: q is the code of
 * the level nearest to the latent u (in units of S), so the gradient of the value times S passes to u as if nothing were rounded. S and L have
 * the true gradients of the values. What the block stores of S is the integer nearest to S / d, d being the block's own scale, which stays
 * unless the group is the block. */
struct learned {
    size_t param;
    enum llm_dtype dtype;
    const struct llm_block_kind *kind;
    int64_t n, k;
    float *u, *m, *v;              /* [n, k] latents, and their moments */
    float *scale, *low;            /* [n · k / group] S and L */
    float *scale_m, *scale_v, *low_m, *low_v;
    float *d, *least;              /* [n · k / size] of the blocks */
    float *values, *grad;          /* [n, k] what the model computes with; its gradient */
    struct llm_weight was;         /* the blocks, while the model computes with `values` */
    void *old;                     /* a copy of the blocks as they were */
};
struct llm_refine {
    const struct llm_model *model;
    struct learned *v;             /* [n] */
    size_t n;
    int64_t *of;                   /* [n_params] number in `v`; -1: none */
};

/* Rates by Adam: of latents in levels, of scales and offsets relative to the scale, at the first step. They fall to 0 linearly. */
static const double LATENT_RATE = 0.002, SCALE_RATE = 0.002, BETA1 = 0.9, BETA2 = 0.95;

/* ---- blocks as they are written ---- */

static void release(struct learned *l)
{
    free(l->u);
    free(l->scale);
    free(l->d);
    free(l->values);
    free(l->old);
}

void llm_refine_destroy(struct llm_refine *r)
{
    if (!r) return;
    for (size_t i = 0; i < r->n; i++) release(&r->v[i]);
    free(r->v);
    free(r->of);
    free(r);
}

struct llm_refine *llm_refine_create(const struct llm_model *m, struct llm_err *e)
{
    struct llm_refine *r = llm_calloc(1, sizeof *r, "refinement", e);
    if (!r) return NULL;
    r->model = m;
    r->v = llm_calloc(m->n_params + 1, sizeof *r->v, "refinement", e);
    r->of = r->v ? llm_alloc(m->n_params + 1, sizeof *r->of, "refinement", e) : NULL;
    if (!r->of) {
        llm_refine_destroy(r);
        return NULL;
    }
    for (size_t i = 0; i < m->n_params; i++) r->of[i] = -1;
    return r;
}

/* Groups of listed scales and of powers of two keep them: there are too few to be found by gradient. */
static bool learns_scales(const struct llm_block_kind *kind)
{
    return !kind->scales && !(kind->levels && kind->levels[0] == 0);
}

static int begin(void *arg, const struct llm_param *p, enum llm_dtype to, struct llm_err *e)
{
    struct llm_refine *r = arg;
    const struct llm_block_kind *kind = llm_block_kind_of(to);
    if (!kind || !llm_quant_is_inner(p) || p->n_dims != 2) return 0;
    struct learned l = {.param = (size_t)(p - r->model->params), .dtype = to, .kind = kind, .n = p->weight.n, .k = p->weight.k};
    const size_t count = (size_t)(l.n * l.k), groups = count / (size_t)kind->group, blocks = count / (size_t)kind->size;
    l.u = llm_calloc(3 * count, sizeof *l.u, "refinement", e);
    l.scale = l.u ? llm_calloc(6 * groups, sizeof *l.scale, "refinement", e) : NULL;
    l.d = l.scale ? llm_calloc(2 * blocks, sizeof *l.d, "refinement", e) : NULL;
    if (!l.d) {
        release(&l);
        return -1;
    }
    l.m = l.u + count;
    l.v = l.m + count;
    l.low = l.scale + groups;
    l.scale_m = l.low + groups;
    l.scale_v = l.scale_m + groups;
    l.low_m = l.scale_v + groups;
    l.low_v = l.low_m + groups;
    l.least = l.d + blocks;
    r->of[l.param] = (int64_t)r->n;
    r->v[r->n++] = l;
    return 1;
}

/* By any thread: blocks are written once each. */
static void take(void *arg, size_t param, uint64_t block, const struct llm_block *b)
{
    const struct llm_refine *r = arg;
    const struct learned *l = &r->v[r->of[param]];
    const struct llm_block_kind *kind = l->kind;
    const int groups = kind->size / kind->group;
    l->d[block] = b->d;
    l->least[block] = b->least;
    for (int g = 0; g < groups; g++) {
        l->scale[block * (uint64_t)groups + (uint64_t)g] = b->d * (float)b->scale[g];
        l->low[block * (uint64_t)groups + (uint64_t)g] = b->least * (float)b->low[g];
    }
    for (int j = 0; j < kind->size; j++) l->u[block * (uint64_t)kind->size + (uint64_t)j] = (float)llm_block_level(kind, b->q[j]);
}

struct llm_quant_sink llm_refine_sink(struct llm_refine *r)
{
    return (struct llm_quant_sink){begin, take, r};
}

/* ---- latents, values, steps: a row of a matrix is a work item ---- */

struct work {
    struct learned *l;
    const struct llm_param *base;  /* the matrix before it was quantised */
    double rate, correction1, correction2; /* the share of the rates of the first step; Adam's */
};

/* Latents begin where the original weights are, if the stored level is the nearest to these; else (GPTQ) within a quarter of a level from the
 * stored one, so that the first step does not take another one. */
static void begin_row(void *arg, size_t row, int thread)
{
    const struct work *w = arg;
    const struct learned *l = w->l;
    const int64_t k = l->k, at = (int64_t)row * k;
    const enum llm_dtype t = w->base->weight.dtype;
    float *x = l->values + at;
    (void)thread;
    llm_dtypes[t].decode((const char *)w->base->weight.data + llm_dtype_bytes(t, (uint64_t)at), x, (size_t)k);
    for (int64_t j = 0; j < k; j++) {
        const int64_t g = (at + j) / l->kind->group;
        const float level = l->u[at + j], scale = l->scale[g];
        const float whole = scale != 0 ? (x[j] + l->low[g]) / scale : level, off = whole - level;
        const bool same = llm_block_level(l->kind, llm_block_code(l->kind, whole)) == (int)level;
        l->u[at + j] = same ? whole : level + (off < -0.25f ? -0.25f : off > 0.25f ? 0.25f : off);
    }
}

/* The block that the latents, scales and offsets of block `i` stand for. */
static void make_block(const struct learned *l, int64_t i, struct llm_block *b)
{
    const struct llm_block_kind *kind = l->kind;
    const int groups = kind->size / kind->group;
    b->d = l->d[i];
    b->least = l->least[i];
    for (int g = 0; g < groups; g++) {
        const float scale = l->scale[i * groups + g], low = l->low[i * groups + g];
        if (groups == 1) {
            b->d = learns_scales(kind) ? kind->round(scale) : l->d[i];
            b->least = kind->low_max ? kind->round(low) : 0;
            b->scale[g] = 1;
            b->low[g] = kind->low_max > 0;
            continue;
        }
        const float s = b->d != 0 ? nearbyintf(scale / b->d) : 0, m = b->least != 0 ? nearbyintf(low / b->least) : 0;
        b->scale[g] = s < (float)kind->scale_min ? kind->scale_min : s > (float)kind->scale_max ? kind->scale_max : (int32_t)s;
        b->low[g] = (uint8_t)(m < 0 ? 0 : m > (float)kind->low_max ? (float)kind->low_max : m);
    }
    for (int j = 0; j < kind->size; j++) b->q[j] = (uint8_t)llm_block_code(kind, l->u[i * kind->size + j]);
}

static void value_row(void *arg, size_t row, int thread)
{
    const struct work *w = arg;
    const struct learned *l = w->l;
    const int64_t blocks = l->k / l->kind->size;
    struct llm_block b;
    (void)thread;
    for (int64_t i = (int64_t)row * blocks; i < ((int64_t)row + 1) * blocks; i++) {
        make_block(l, i, &b);
        float *y = l->values + i * l->kind->size;
        for (int j = 0; j < l->kind->size; j++) y[j] = llm_block_value(l->kind, &b, j / l->kind->group, b.q[j]);
    }
}

static void pack_row(void *arg, size_t row, int thread)
{
    const struct work *w = arg;
    const struct learned *l = w->l;
    const int64_t blocks = l->k / l->kind->size;
    char *out = (char *)(uintptr_t)l->was.data;
    struct llm_block b;
    (void)thread;
    for (int64_t i = (int64_t)row * blocks; i < ((int64_t)row + 1) * blocks; i++) {
        make_block(l, i, &b);
        l->kind->pack(&b, out + i * llm_dtypes[l->dtype].block_bytes);
    }
}

/* Adam's move for the gradient g, without its rate. */
static inline float move(const struct work *w, float g, float *m, float *v)
{
    *m = (float)BETA1 * *m + (float)(1 - BETA1) * g;
    *v = (float)BETA2 * *v + (float)(1 - BETA2) * g * g;
    const float root = sqrtf(*v / (float)w->correction2);
    return root > 1e-30f ? *m / (float)w->correction1 / root : 0;
}

static void step_row(void *arg, size_t row, int thread)
{
    const struct work *w = arg;
    const struct learned *l = w->l;
    const struct llm_block_kind *kind = l->kind;
    const int64_t groups = l->k / kind->group;
    const float rate = (float)(LATENT_RATE * w->rate), scale_rate = (float)(SCALE_RATE * w->rate);
    const float first = (float)llm_block_level(kind, kind->first_code) - 0.5f, last = (float)llm_block_level(kind, kind->n_codes - 1) + 0.5f;
    const float floor_ = last < first ? last : first, top = last < first ? first : last;
    const bool mirrored = kind->levels && kind->levels[0] == 0;
    (void)thread;
    for (int64_t g = (int64_t)row * groups; g < ((int64_t)row + 1) * groups; g++) {
        const float scale = l->scale[g];
        float by_scale = 0, by_low = 0;
        for (int64_t j = g * kind->group; j < (g + 1) * kind->group; j++) {
            by_scale += l->grad[j] * (float)llm_block_level(kind, llm_block_code(kind, l->u[j]));
            by_low -= l->grad[j];
            const float u = l->u[j] - rate * move(w, l->grad[j] * scale, &l->m[j], &l->v[j]);
            l->u[j] = mirrored ? u : u < floor_ ? floor_ : u > top ? top : u;
        }
        if (!learns_scales(kind)) continue;
        l->scale[g] -= scale_rate * scale * move(w, by_scale * scale, &l->scale_m[g], &l->scale_v[g]);
        if (!kind->low_max) continue;
        l->low[g] -= scale_rate * fabsf(scale) * move(w, by_low * fabsf(scale), &l->low_m[g], &l->low_v[g]);
        if (kind->low_max > 1 && l->low[g] < 0) l->low[g] = 0;
    }
    memset(l->grad + (int64_t)row * l->k, 0, (size_t)l->k * sizeof(float));
}

/* ---- passes ---- */

struct pass {
    struct llm_ctx ctx, base_ctx;
    int32_t *positions, *targets;
    int64_t context;
};

static int begin_pass(struct pass *p, struct llm_err *e)
{
    const size_t limit = (size_t)1 << 36; /* of address space, of which ThreadSanitizer leaves little; pages are committed when they are touched */
    p->positions = llm_alloc((size_t)p->context, sizeof *p->positions, "refinement", e);
    p->targets = p->positions ? llm_calloc((size_t)p->context, sizeof *p->targets, "refinement", e) : NULL;
    if (!p->targets || llm_ctx_init(&p->ctx, limit, limit, true, e) < 0) return -1;
    if (llm_ctx_init(&p->base_ctx, limit, (size_t)1 << 30, false, e) < 0) return -1;
    for (int64_t i = 0; i < p->context; i++) p->positions[i] = (int32_t)i;
    p->ctx.compute = p->base_ctx.compute = LLM_COMPUTE_BF16;
    return 0;
}

/* Forward and backward over one window. */
static int run_window(struct pass *p, struct llm_model *m, struct llm_model *base, const int32_t *ids, int64_t n, struct llm_err *e)
{
    const struct llm_batch b = {.ids = ids, .positions = p->positions, .n_tokens = n};
    p->ctx.n_rows = p->base_ctx.n_rows = 1;
    p->ctx.row_len = p->base_ctx.row_len = n;
    const struct llm_teacher teacher = {.how = {.temperature = 1}, .hidden = llm_model_before_head(&p->base_ctx, base,
                                        llm_model_forward(&p->base_ctx, base, &b)), .head = llm_model_head(base), .bias = llm_model_head_bias(base),
                                        .logit_scale = (float)base->config.logit_scale,
                                        .logit_softcap = (float)base->config.final_logit_softcapping};
    const struct llm_cross_entropy loss = {.targets = p->targets, .bias = llm_model_head_bias(m), .logit_scale = (float)m->config.logit_scale,
                                           .logit_softcap = (float)m->config.final_logit_softcapping, .grad_scale = 1 / (double)n,
                                           .teacher = &teacher};
    if (!llm_ctx_failed(&p->base_ctx)) {
        struct llm_tensor *hidden = llm_model_before_head(&p->ctx, m, llm_model_forward(&p->ctx, m, &b));
        llm_cross_entropy(&p->ctx, hidden, llm_model_head(m), &loss);
        llm_backward(&p->ctx);
    }
    const struct llm_ctx *failed = llm_ctx_failed(&p->base_ctx) ? &p->base_ctx : &p->ctx;
    if (llm_ctx_failed(failed)) {
        *e = failed->err;
        return -1;
    }
    llm_ctx_reset(&p->ctx);
    llm_ctx_reset(&p->base_ctx);
    return llm_signal_caught() ? 1 : 0;
}

/* ---- the whole ---- */

/* The model computes with `values`. */
static int attach(struct llm_refine *r, struct llm_model *m, const struct llm_model *base, struct llm_err *e)
{
    for (size_t i = 0; i < r->n; i++) {
        struct learned *l = &r->v[i];
        struct llm_param *p = &m->params[l->param];
        const size_t count = (size_t)(l->n * l->k);
        l->values = llm_alloc_huge(2 * count, sizeof *l->values, "refinement", e);
        const size_t bytes = (size_t)llm_dtype_bytes(l->dtype, count);
        l->old = l->values ? llm_alloc_huge(bytes, 1, "refinement", e) : NULL;
        if (!l->old) return -1;
        memcpy(l->old, p->weight.data, bytes);
        l->grad = l->values + count;
        memset(l->grad, 0, count * sizeof *l->grad);
        struct work w = {.l = l, .base = &base->params[l->param]};
        llm_parallel((size_t)l->n, begin_row, &w);
        llm_parallel((size_t)l->n, value_row, &w);
        llm_weight_changed(&p->weight);
        l->was = p->weight;
        p->weight = (struct llm_weight){.data = l->values, .dtype = LLM_F32, .n = l->n, .k = l->k};
        p->grad = l->grad;
    }
    return 0;
}

/* The model has its blocks again, written anew if all went well. */
static void detach(struct llm_refine *r, struct llm_model *m, bool written)
{
    for (size_t i = 0; i < r->n; i++) {
        struct learned *l = &r->v[i];
        struct llm_param *p = &m->params[l->param];
        if (!l->was.data) continue;
        if (written) llm_parallel((size_t)l->n, pack_row, &(struct work){.l = l});
        llm_weight_release(&p->weight);
        p->weight = l->was;
        p->grad = NULL;
        l->was.data = NULL;
    }
    llm_model_changed(m);
}

void llm_refine_undo(struct llm_refine *r, struct llm_model *m)
{
    for (size_t i = 0; i < r->n; i++) {
        const struct learned *l = &r->v[i];
        struct llm_weight *w = &m->params[l->param].weight;
        memcpy((void *)(uintptr_t)w->data, l->old, (size_t)llm_dtype_bytes(l->dtype, (uint64_t)(l->n * l->k)));
        llm_weight_changed(w);
    }
    llm_model_changed(m);
}

/* From one window to the next, in windows: about the golden ratio of all, so that each few steps see the whole text. Of kinds of text that follow one
 * another, the last steps would else learn the last. No divisor of `windows`, so that each has its turn. */
static int64_t stride_of(int64_t windows)
{
    for (int64_t stride = (int64_t)(.618 * (double)windows) + 1;; stride++) {
        int64_t a = stride, b = windows;
        while (b > 0) {
            const int64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1) return stride;
    }
}

int llm_refine_run(struct llm_refine *r, struct llm_model *m, struct llm_model *base, const struct llm_refine_text *text, int64_t steps,
                   struct llm_err *e)
{
    const int64_t longest = llm_config_default_context(&m->config);
    struct pass p = {.context = text->context > 0 ? text->context : longest < 512 ? longest : 512};
    struct llm_progress progress;
    const int64_t windows = text->n / p.context > 0 ? text->n / p.context : 1, stride = stride_of(windows);
    if (llm_model_must_continue(m, e) < 0) return -1;
    if (r->n == 0) return llm_fail(e, EX_UNAVAILABLE, "--refine: expected matrices in types of scales and codes (q8_0, q4_k, ...), found none");
    if (text->n < 2) return llm_fail(e, EX_DATAERR, "--refine: expected a text of at least 2 tokens, found %lld", (long long)text->n);
    int status = begin_pass(&p, e);
    if (status == 0) status = attach(r, m, base, e);
    llm_progress_start(&progress, "refinement", "steps", steps);
    for (int64_t s = 0; status == 0 && s < steps; s++) {
        const int64_t at = s % windows * stride % windows * p.context, left = text->n - at;
        llm_progress_set(&progress, s, NULL);
        status = run_window(&p, m, base, text->ids + at, left < p.context ? left : p.context, e);
        for (size_t i = 0; status == 0 && i < r->n; i++) {
            struct work w = {.l = &r->v[i], .rate = 1 - (double)s / (double)steps, .correction1 = 1 - pow(BETA1, (double)(s + 1)),
                             .correction2 = 1 - pow(BETA2, (double)(s + 1))};
            llm_parallel((size_t)w.l->n, step_row, &w);
            llm_parallel((size_t)w.l->n, value_row, &w);
            llm_weight_changed(&m->params[w.l->param].weight);
        }
    }
    llm_progress_end(&progress);
    detach(r, m, status == 0);
    llm_ctx_release(&p.ctx);
    llm_ctx_release(&p.base_ctx);
    free(p.positions);
    free(p.targets);
    return status;
}
