#include "quant/budget.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/progress.h"
#include "infer/kvtypes.h"
#include "quant/curvature.h"
#include "quant/knapsack.h"

const enum llm_dtype llm_budget_types[] = {LLM_Q2_K, LLM_Q3_K, LLM_IQ4_XS, LLM_Q4_K, LLM_Q5_K, LLM_Q6_K, LLM_Q4_0, LLM_IQ4_NL, LLM_Q5_0, LLM_Q5_1,
                                           LLM_Q8_0, LLM_IQ3_S, LLM_IQ3_XXS, LLM_IQ2_S, LLM_IQ2_XS, LLM_N_DTYPES};
const enum llm_dtype llm_budget_cache_types[] = {LLM_BF16, LLM_Q8_0, LLM_Q8_0_ROT, LLM_Q4_0, LLM_Q4_0_ROT, LLM_N_DTYPES};

static uint64_t stored_bytes(const struct llm_model *m, const struct llm_quant_plan *plan, const struct llm_param *p, enum llm_dtype type)
{
    return plan->to_gguf ? llm_model_gguf_bytes(m, p, type) : llm_dtype_bytes(type, (uint64_t)llm_param_count(p));
}

uint64_t llm_budget_bytes(const struct llm_model *m, const struct llm_quant_plan *plan)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < m->n_params; i++) {
        const char *kept;
        sum += stored_bytes(m, plan, &m->params[i], llm_quant_choose(m, &m->params[i], plan, &kept));
    }
    return sum;
}

void llm_budget_release(struct llm_budget *b)
{
    free(b->v);
    free(b->types);
    free(b->cache);
    free(b->cache_types);
    memset(b, 0, sizeof *b);
}

/* A matrix whose type is chosen. */
struct candidate {
    struct llm_param *p;
    enum llm_dtype types[LLM_KNAPSACK_CHOICES];
    size_t item;                   /* whose type is chosen: its own, or that of several matrices which have one type */
    int n, probed, was_probed;     /* the type that is measured; the one measured before, -1: none */
    double error[LLM_KNAPSACK_CHOICES]; /* predicted harm by the curvature, else the weighted squared error */
    double scale, measured;        /* harm = scale · error; the last measurement */
};
/* The keys (`part` 0) or the values of a layer, whose type is chosen. */
struct cached {
    int64_t layer, width;          /* elements of a token */
    int part;
    enum llm_dtype types[LLM_KNAPSACK_CHOICES];
    double harm[LLM_KNAPSACK_CHOICES];
    int n, chosen;
};
struct search {
    struct llm_model *m;
    const struct llm_quant_plan *plan;
    struct llm_kl_base *probe;
    struct candidate *v;
    size_t n, n_items;
    int64_t tokens;                /* of the cache; 0: it is no part of the budget */
    struct cached *cached;
    size_t n_cached;
};

/* ---- the error that a type leaves ---- */

/* The matrix in another type, and the decoded difference (before - after) to delta[n·k]; the blocks are malloced. NULL: see `e`. */
static void *try_type(const struct search *s, const struct candidate *c, enum llm_dtype to, float *delta, struct llm_err *e)
{
    const uint64_t n = (uint64_t)llm_param_count(c->p);
    float *importance = llm_alloc((size_t)c->p->weight.k, sizeof *importance, c->p->name, e);
    void *out = importance ? llm_alloc_huge(llm_dtype_bytes(to, n), 1, c->p->name, e) : NULL;
    struct llm_quant_job job = {.in = c->p->weight.data, .out = out, .from = c->p->weight.dtype, .to = to, .n = n, .row = c->p->weight.k,
                                .method = LLM_QUANT_SEARCH};
    struct llm_quant_report r;
    if (out && llm_moments_importance(s->plan->moments, (size_t)(c->p - s->m->params), importance)) job.importance = importance;
    int status = out ? llm_quantize_tensor(&job, &r, e) : -1;
    free(importance);
    if (status < 0) {
        llm_in(e, "tensor '%s'", c->p->name);
        free(out);
        return NULL;
    }
    for (uint64_t at = 0; delta && at < n; at += (uint64_t)job.row) {
        float row[4096];
        for (uint64_t from = at; from < at + (uint64_t)job.row; from += 4096) { /* a multiple of every block */
            const uint64_t left = at + (uint64_t)job.row - from, some = left < 4096 ? left : 4096;
            llm_dtypes[to].decode((const char *)out + llm_dtype_bytes(to, from), row, (size_t)some);
            llm_dtypes[job.from].decode((const char *)job.in + llm_dtype_bytes(job.from, from), delta + from, (size_t)some);
            for (uint64_t i = 0; i < some; i++) delta[from + i] -= row[i];
        }
    }
    return out;
}

/* Σ importance · delta² without curvature. */
static double weighted_error(const struct search *s, const struct candidate *c, const float *delta, struct llm_err *e)
{
    const int64_t n = c->p->weight.n, k = c->p->weight.k;
    float *importance = llm_alloc((size_t)k, sizeof *importance, c->p->name, e);
    if (!importance) return NAN;
    const bool known = llm_moments_importance(s->plan->moments, (size_t)(c->p - s->m->params), importance);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < k; j++) sum += (double)(delta[i * k + j] * delta[i * k + j] * (known ? importance[j] : 1));
    }
    free(importance);
    return sum;
}

static int find_errors(const struct search *s, struct candidate *c, struct llm_err *e)
{
    const struct llm_kronecker *f = llm_moments_kronecker(s->plan->moments, (size_t)(c->p - s->m->params));
    const size_t n = (size_t)llm_param_count(c->p);
    float *delta = llm_alloc(n, sizeof *delta, c->p->name, e);
    int status = delta ? 0 : -1;
    for (int i = 0; i < c->n && status == 0; i++) {
        void *blocks = try_type(s, c, c->types[i], delta, e);
        if (blocks) {
            c->error[i] = f && f->out ? llm_curvature_harm(f, s->plan->moments->tokens, c->p->weight.n, c->p->weight.k, delta, e)
                            : weighted_error(s, c, delta, e);
        }
        status = blocks && !isnan(c->error[i]) ? 0 : -1;
        free(blocks);
    }
    free(delta);
    llm_moments_unload(s->plan->moments, (size_t)(c->p - s->m->params));
    return status;
}

/* ---- measurement ---- */

/* KL of the model with this matrix alone in its probed type. */
static int measure_alone(struct search *s, struct candidate *c, struct llm_err *e)
{
    const struct llm_weight was = c->p->weight;
    struct llm_kl kl;
    void *blocks = try_type(s, c, c->types[c->probed], NULL, e);
    if (!blocks) return -1;
    c->p->weight = (struct llm_weight){.data = blocks, .dtype = c->types[c->probed], .n = was.n, .k = was.k};
    llm_model_changed(s->m);
    int status = llm_kl_measure(s->probe, s->m, &kl, NULL, e);
    llm_weight_release(&c->p->weight);
    c->p->weight = was;
    llm_model_changed(s->m);
    free(blocks);
    if (status != 0) return status;
    c->measured = kl.mean;
    c->was_probed = c->probed;
    if (c->error[c->probed] > 0 && kl.mean > 0) c->scale = kl.mean / c->error[c->probed];
    return 0;
}

static int measure_all(struct search *s, struct llm_err *e)
{
    struct llm_progress progress;
    int status = 0;
    llm_progress_start(&progress, "sensitivities", "tensors", (int64_t)s->n);
    for (size_t i = 0; i < s->n && status == 0; i++) {
        llm_progress_set(&progress, (int64_t)i, NULL);
        if (s->v[i].probed != s->v[i].was_probed) status = measure_alone(s, &s->v[i], e);
    }
    llm_progress_end(&progress);
    return status;
}

/* ---- keys and values ---- */

static bool has_own(const struct llm_state_shape *s, int64_t layer) { return s->n_kv_heads > 0 && s->source == layer; }

uint64_t llm_budget_cache_bytes(const struct llm_model *m, enum llm_dtype type, int64_t tokens)
{
    uint64_t bytes = 0;
    for (int64_t l = 0; l < m->config.num_hidden_layers; l++) {
        const struct llm_state_shape s = llm_model_state(&m->config, l);
        const int64_t block = llm_dtypes[type].block_size;
        if (!has_own(&s, l)) continue;
        if (s.d_k % block || s.d_v % block) return UINT64_MAX;
        bytes += llm_dtype_bytes(type, (uint64_t)(tokens * s.n_kv_heads * (s.d_k + s.d_v)));
    }
    return bytes;
}

static int find_cached(struct search *s, struct llm_err *e)
{
    const int64_t layers = s->m->config.num_hidden_layers;
    s->cached = llm_calloc((size_t)(2 * layers) + 1, sizeof *s->cached, "budget", e);
    if (!s->cached) return -1;
    for (int64_t i = 0; i < 2 * layers && s->tokens > 0; i++) {
        const struct llm_state_shape shape = llm_model_state(&s->m->config, i / 2);
        const int64_t d = i % 2 ? shape.d_v : shape.d_k;
        struct cached c = {.layer = i / 2, .part = (int)(i % 2), .width = shape.n_kv_heads * d};
        if (!has_own(&shape, i / 2) || d == 0) continue;
        for (const enum llm_dtype *t = llm_budget_cache_types; *t != LLM_N_DTYPES; t++) {
            const bool serves = c.part == 0 || *t == llm_dtype_unrotated(*t); /* values are not rotated */
            if (serves && d % llm_dtypes[*t].block_size == 0) c.types[c.n++] = *t;
        }
        s->cached[s->n_cached++] = c;
    }
    return 0;
}

/* KL of the model with these keys or values alone in type i. */
static int measure_cached(const struct search *s, struct cached *c, int i, struct llm_err *e)
{
    const char *type = llm_dtypes[c->types[i]].name, *rest = llm_dtypes[LLM_F32].name;
    char types[100];
    struct llm_kl kl;
    snprintf(types, sizeof types, "%s/%" PRId64 ":%s,%s", rest, c->layer, c->part ? rest : type, c->part ? type : rest);
    int status = llm_kl_measure_cache(s->probe, s->m, types, &kl, NULL, e);
    if (status == 0) c->harm[i] = kl.mean > 0 ? kl.mean : 0;
    return status;
}

static int measure_cache(struct search *s, struct llm_err *e)
{
    struct llm_progress progress;
    int status = 0;
    llm_progress_start(&progress, "keys and values", "layers", (int64_t)s->n_cached);
    for (size_t i = 0; i < s->n_cached && status == 0; i++) {
        llm_progress_set(&progress, (int64_t)i, NULL);
        for (int t = 0; t < s->cached[i].n && status == 0; t++) status = measure_cached(s, &s->cached[i], t, e);
    }
    llm_progress_end(&progress);
    return status;
}

/* What was chosen, to out->cache and out->cache_types. */
static int report_cache(const struct search *s, struct llm_budget *out, struct llm_err *e)
{
    const int64_t layers = s->m->config.num_hidden_layers;
    struct llm_kv_pair *types = llm_calloc((size_t)layers + 1, sizeof *types, "budget", e);
    out->cache = types ? llm_calloc((size_t)layers + 1, sizeof *out->cache, "budget", e) : NULL;
    out->tokens = s->tokens;
    for (int64_t l = 0; out->cache && l < layers; l++) {
        types[l] = (struct llm_kv_pair){LLM_BF16, LLM_BF16};
        for (int part = 0; part < 2; part++) out->cache[l][part] = (struct llm_budget_cache){.type = LLM_NO_DTYPE, .measured = NAN};
    }
    for (size_t i = 0; out->cache && i < s->n_cached; i++) {
        const struct cached *c = &s->cached[i];
        const enum llm_dtype type = c->types[c->chosen];
        const uint64_t bytes = llm_dtype_bytes(type, (uint64_t)(s->tokens * c->width));
        out->cache[c->layer][c->part] = (struct llm_budget_cache){type, c->harm[c->chosen], bytes, c->width};
        if (c->part) types[c->layer].v = type;
        else types[c->layer] = (struct llm_kv_pair){type, llm_dtype_unrotated(type)};
        out->predicted += c->harm[c->chosen];
        out->bytes += bytes;
    }
    if (out->cache) out->cache_types = llm_kv_types_text(types, layers, e);
    free(types);
    return out->cache_types ? 0 : -1;
}

/* ---- the choice ---- */

/* The item of a parameter that becomes a candidate. */
static size_t item_of(struct search *s, const struct llm_param *p)
{
    for (size_t i = 0; s->plan->to_gguf && i < s->n; i++) {
        const struct llm_param_spec *a = s->v[i].p->spec, *b = p->spec;
        if (a->expert >= 0 && b->expert >= 0 && a->stem == b->stem && a->stack == b->stack && a->layer == b->layer) return s->v[i].item;
    }
    return s->n_items++;
}

/* Fills s->v. `fixed`: bytes of the other parameters. */
static int find_candidates(struct search *s, uint64_t *fixed, struct llm_err *e)
{
    s->v = llm_calloc(s->m->n_params + 1, sizeof *s->v, "budget", e);
    *fixed = 0;
    if (!s->v) return -1;
    for (size_t i = 0; i < s->m->n_params; i++) {
        struct llm_param *p = &s->m->params[i];
        const char *kept;
        const enum llm_dtype to = llm_quant_choose(s->m, p, s->plan, &kept);
        struct candidate c = {.p = p, .probed = -1, .was_probed = -1, .measured = NAN, .scale = 1};
        for (const enum llm_dtype *t = llm_budget_types; *t != LLM_N_DTYPES; t++) {
            if (p->weight.k % llm_dtypes[*t].block_size) continue;
            if (*t == to) c.probed = c.n;
            c.types[c.n++] = *t;
        }
        if ((kept && strcmp(kept, "same") != 0) || llm_quant_is_fixed(s->m, p, s->plan) || c.probed < 0) {
            *fixed += stored_bytes(s->m, s->plan, p, to);
            continue;
        }
        c.item = item_of(s, p);
        s->v[s->n++] = c;
    }
    return 0;
}

/* The best types that fit in `room` bytes: of matrices to choice[n], of keys and values to s->cached. 1: nothing fits. */
static int choose(const struct search *s, uint64_t room, int *choice, struct llm_err *e)
{
    const size_t n = s->n_items + s->n_cached;
    struct llm_knapsack_item *items = llm_calloc(n + 1, sizeof *items, "budget", e);
    int *all = items ? llm_calloc(n + 1, sizeof *all, "budget", e) : NULL;
    int status = all ? 0 : -1;
    for (size_t i = 0; i < s->n && status == 0; i++) {
        const struct candidate *c = &s->v[i];
        items[c->item].n = c->n;
        for (int t = 0; t < c->n; t++) {
            items[c->item].size[t] += stored_bytes(s->m, s->plan, c->p, c->types[t]);
            items[c->item].harm[t] += c->scale * c->error[t];
        }
    }
    for (size_t i = 0; i < s->n_cached && status == 0; i++) {
        const struct cached *c = &s->cached[i];
        items[s->n_items + i].n = c->n;
        for (int t = 0; t < c->n; t++) {
            items[s->n_items + i].size[t] = llm_dtype_bytes(c->types[t], (uint64_t)(s->tokens * c->width));
            items[s->n_items + i].harm[t] = c->harm[t];
        }
    }
    if (status == 0) status = llm_knapsack(items, n, room, all, e);
    for (size_t i = 0; i < s->n && status == 0; i++) choice[i] = all[s->v[i].item];
    for (size_t i = 0; i < s->n_cached && status == 0; i++) s->cached[i].chosen = all[s->n_items + i];
    free(items);
    free(all);
    return status;
}

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Bytes of all that is chosen, each in its smallest type. */
static uint64_t least_bytes(const struct search *s)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < s->n; i++) {
        const struct candidate *c = &s->v[i];
        uint64_t least = UINT64_MAX;
        for (int t = 0; t < c->n; t++) least = smaller(least, stored_bytes(s->m, s->plan, c->p, c->types[t]));
        sum += least;
    }
    for (size_t i = 0; i < s->n_cached; i++) {
        const struct cached *c = &s->cached[i];
        uint64_t least = UINT64_MAX;
        for (int t = 0; t < c->n; t++) least = smaller(least, llm_dtype_bytes(c->types[t], (uint64_t)(s->tokens * c->width)));
        sum += least;
    }
    return sum;
}

static int search(struct search *s, uint64_t bytes, int *choice, struct llm_err *e)
{
    uint64_t fixed;
    int status = find_candidates(s, &fixed, e) < 0 || find_cached(s, e) < 0 ? -1 : 0;
    const uint64_t needed = status == 0 ? fixed + least_bytes(s) : 0;
    if (bytes < needed) { /* before hours of measurement */
        return llm_fail(e, LLM_EX_USAGE, "--budget: %" PRIu64 " bytes are less than the smallest types need: expected at least %" PRIu64, bytes,
                        needed);
    }
    for (size_t i = 0; i < s->n && status == 0; i++) status = find_errors(s, &s->v[i], e);
    if (status == 0) status = measure_cache(s, e);
    for (int round = 0; round < 2 && status == 0; round++) {
        status = measure_all(s, e);
        if (status != 0) return status;
        if (choose(s, bytes - fixed, choice, e) != 0) return -1; /* they fit */
        for (size_t i = 0; i < s->n; i++) s->v[i].probed = choice[i];
    }
    return status;
}

int llm_budget_choose(struct llm_model *m, const struct llm_quant_plan *plan, const struct llm_budget_room *room, struct llm_kl_base *probe,
                      struct llm_budget *out, struct llm_err *e)
{
    struct search s = {.m = m, .plan = plan, .probe = probe, .tokens = room->tokens};
    out->v = llm_calloc(m->n_params + 1, sizeof *out->v, "budget", e);
    out->types = out->v ? llm_calloc(m->n_params + 1, sizeof *out->types, "budget", e) : NULL;
    int *choice = out->types ? llm_calloc(m->n_params + 1, sizeof *choice, "budget", e) : NULL;
    int status = choice ? search(&s, room->bytes, choice, e) : -1;
    for (size_t i = 0; status == 0 && i < m->n_params; i++) {
        out->types[i] = LLM_N_DTYPES;
        out->v[i] = (struct llm_budget_tensor){LLM_N_DTYPES, NAN, NAN, NAN};
    }
    for (size_t i = 0; status == 0 && i < s.n; i++) {
        const struct candidate *c = &s.v[i];
        const size_t at = (size_t)(c->p - m->params);
        out->types[at] = c->types[choice[i]];
        out->v[at] = (struct llm_budget_tensor){out->types[at], c->scale, c->scale * c->error[choice[i]],
                                                choice[i] == c->was_probed ? c->measured : (double)NAN};
        out->predicted += out->v[at].predicted;
    }
    free(s.v);
    free(choice);
    if (status == 0) {
        struct llm_quant_plan with = *plan;
        with.chosen = out->types;
        out->bytes = llm_budget_bytes(m, &with);
        if (s.tokens > 0) status = report_cache(&s, out, e);
    }
    free(s.cached);
    return status;
}
