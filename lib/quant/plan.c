/* A whole model: which tensor becomes what, and the change of all of them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/log.h"
#include "base/pattern.h"
#include "cpu/dtype/grid.h"
#include "cpu/dtype/block.h"
#include "cpu/pages.h"
#include "model/spec/block.h"
#include "quant/moments.h"
#include "quant/open.h"
#include "quant/quant.h"
#include "quant/spool.h"

/* The parameter's name in GGUF files; NULL: none is known. */
static const char *gguf_name(const struct llm_model *m, const struct llm_param *p, const struct llm_quant_plan *plan)
{
    const struct llm_param_spec *spec = plan->gguf ? plan->gguf[p - m->params] : NULL;
    return spec ? spec->name : NULL;
}

/* Whether one of n shell patterns matches one of the parameter's names. */
static bool matches(const char *const *patterns, size_t n, const struct llm_model *m, const struct llm_param *p, const struct llm_quant_plan *plan)
{
    const char *gguf = gguf_name(m, p, plan);
    return llm_pattern_any(patterns, n, p->name) || (gguf && llm_pattern_any(patterns, n, gguf));
}

static bool override_names(const struct llm_quant_override *o, const struct llm_model *m, const struct llm_param *p,
                           const struct llm_quant_plan *plan)
{
    const char *gguf = gguf_name(m, p, plan);
    return matches(&o->pattern, 1, m, p, plan) || (gguf && o->expression && regexec(o->expression, gguf, 0, NULL, 0) == 0);
}

static bool patterns_leave(const struct llm_model *m, const struct llm_param *p, const struct llm_quant_plan *plan)
{
    const struct llm_strs *only = plan->only, *except = plan->except;
    return (only->n > 0 && !matches(only->v, only->n, m, p, plan)) || matches(except->v, except->n, m, p, plan);
}

/* What the plan says of this one tensor, apart from its mix; NULL: nothing. */
static const enum llm_dtype *exception_of(const struct llm_model *m, const struct llm_param *p, const struct llm_quant_plan *plan)
{
    for (size_t i = 0; i < plan->n_overrides; i++) {
        if (override_names(&plan->overrides[i], m, p, plan)) return &plan->overrides[i].dtype;
    }
    if (m->ngram) return NULL;
    if (plan->output && p == llm_model_head(m)) return plan->output;
    if (plan->embedding && p == llm_model_embedding(m)) return plan->embedding;
    if (plan->chosen && plan->chosen[p - m->params] != LLM_N_DTYPES) return &plan->chosen[p - m->params];
    return NULL;
}

bool llm_quant_is_fixed(const struct llm_model *m, const struct llm_param *p, const struct llm_quant_plan *plan)
{
    struct llm_quant_plan without = *plan;
    without.chosen = NULL;
    return exception_of(m, p, &without) != NULL;
}

/* The type that rounding alone gives. */
static enum llm_dtype rounded_type(const struct llm_model *m, const struct llm_param *p, const struct llm_quant_plan *plan, const char **kept)
{
    const struct llm_quant_type *type = plan->type;
    const enum llm_dtype *exception = exception_of(m, p, plan), from = p->weight.dtype;
    enum llm_dtype to = exception ? *exception : type->dtype;
    const bool mix = type->mix != LLM_MIX_NONE && !exception, leaves = mix || (p->spec->stem == LLM_STEM_FILTER && !exception);
    if (to == LLM_NO_DTYPE) *kept = "keep";
    else if (p->n_dims < 2) *kept = "1-D";
    else if (patterns_leave(m, p, plan)) *kept = "pattern";
    else if (leaves && llm_mix_leaves(p)) *kept = "exact";
    else *kept = NULL;
    if (*kept) return from;
    if (mix) to = llm_quant_fallback(plan->pure ? to : llm_mix_type(type, plan->moments != NULL, m, p), p->weight.k);
    else if (llm_dtypes[to].block_size == 256) to = llm_quant_fallback(to, p->weight.k);
    if (!llm_quant_is_inner(p)) to = llm_quant_dense(to);
    *kept = from == to ? "same" : p->weight.k % llm_dtypes[to].block_size ? "rows" : NULL;
    return *kept ? from : to;
}

enum llm_dtype llm_quant_choose(const struct llm_model *m, const struct llm_param *p, const struct llm_quant_plan *plan, const char **kept)
{
    const enum llm_dtype to = rounded_type(m, p, plan, kept);
    if (plan->lowrank && plan->lowrank->alone && llm_lowrank_wants(p) && (!*kept || strcmp(*kept, "pattern") != 0)) {
        *kept = NULL;
        return LLM_ZERO;
    }
    if (!*kept || !plan->prune || !llm_quant_is_inner(p) || strcmp(*kept, "pattern") == 0) return to;
    *kept = NULL;
    return llm_dtypes[to].encode || llm_block_kind_of(to) || llm_grid_kind_of(to) ? to : LLM_F32;
}

/* Prunes p: its values, malloced, for `job`. NULL: see `e`. */
static float *pruned(const struct llm_param *p, const struct llm_quant_plan *plan, const struct llm_quant_job *job, const float *products,
                     double *damping, struct llm_quant_report *r, struct llm_err *e)
{
    float *values = llm_alloc_huge(job->n, sizeof *values, p->name, e);
    const struct llm_prune_job of = {.w = values, .n = (int64_t)(job->n / (uint64_t)job->row), .k = job->row, .pattern = *plan->prune,
                                     .method = plan->prune_method, .importance = job->importance,
                                     .products = products};
    enum llm_prune_method used;
    if (!values) return NULL;
    llm_param_decode(p, values);
    if (llm_prune(&of, &used, damping, e) < 0) {
        free(values);
        return NULL;
    }
    r->pruned = llm_prune_methods[used];
    return values;
}

/* What GPTQ and KL need of parameter i. */
static void give_products(struct llm_quant_job *job, const struct llm_moments *m, size_t i)
{
    const struct llm_kronecker *f = job->method == LLM_QUANT_KL ? llm_moments_kronecker(m, i) : NULL;
    job->products = f ? f->in : llm_moments_products(m, i);
    job->gradients = f ? f->out : NULL;
}

/* The tensor's new data in memory of their own; NULL: see `e`. */
static void *converted(const struct llm_model *m, const struct llm_param *p, const struct llm_quant_plan *plan, struct llm_quant_report *r,
                       struct llm_err *e)
{
    const size_t i = (size_t)(p - m->params);
    void *out = aligned_alloc(64, (r->bytes_to + 63) / 64 * 64);
    float *importance = llm_alloc((size_t)p->weight.k, sizeof *importance, p->name, e), *values = NULL;
    struct llm_quant_job job = {.in = p->weight.data, .out = out, .from = r->from, .to = r->to, .n = (uint64_t)llm_param_count(p),
                                .row = p->weight.k, .method = plan->method, .param = i};
    double damping = 0;
    job.mapped = &p->weight;
    int status = out && importance ? 0 : llm_no_memory(e, p->name);
    if (status == 0 && plan->moments && llm_moments_importance(plan->moments, i, importance)) job.importance = importance;
    if (status == 0 && plan->prune && llm_quant_is_inner(p)) {
        values = pruned(p, plan, &job, plan->moments ? llm_moments_products(plan->moments, i) : NULL, &damping, r, e);
        status = values ? 0 : -1;
        job.values = values;
    } else if (plan->moments) {
        give_products(&job, plan->moments, i);
    }
    const int wanted = status == 0 && plan->sink ? plan->sink->begin(plan->sink->arg, p, r->to, e) : 0;
    job.sink = wanted > 0 ? plan->sink : NULL;
    if (status == 0) status = wanted < 0 ? -1 : llm_quantize_tensor(&job, r, e);
    if (values) r->damping = damping;
    if (status < 0) llm_in(e, "tensor '%s'", p->name);
    free(importance);
    free(values);
    if (status == 0) return out;
    free(out);
    return NULL;
}

/* The factors of what p loses by becoming `out`. */
static int factor(const struct llm_model *m, const struct llm_param *p, const struct llm_quant_plan *plan, const void *out,
                  struct llm_quant_report *r, struct llm_err *e)
{
    const size_t i = (size_t)(p - m->params);
    struct llm_lowrank_job job = {.of = p->weight.data, .mapped = &p->weight, .stored = out, .of_type = r->from, .stored_type = r->to,
                                  .n = p->weight.n, .k = p->weight.k, .param = i};
    if (!plan->lowrank || !llm_lowrank_wants(p)) return 0;
    float *importance = llm_alloc((size_t)p->weight.k, sizeof *importance, p->name, e);
    int status = importance ? 0 : -1;
    if (status == 0 && plan->moments) {
        job.products = llm_moments_products(plan->moments, i);
        if (llm_moments_importance(plan->moments, i, importance)) job.importance = importance;
    }
    if (status == 0 && llm_lowrank_add(plan->lowrank, &job, &r->rank, &r->energy, e) < 0) status = llm_in(e, "tensor '%s'", p->name);
    free(importance);
    return status;
}

static int change(struct llm_model *m, struct llm_param *p, const struct llm_quant_plan *plan, struct llm_quant_report *r, struct llm_err *e)
{
    void *out = converted(m, p, plan, r, e);
    if (!out) return -1;
    if (factor(m, p, plan, out, r, e) < 0) {
        free(out);
        return -1;
    }
    llm_weight_release_pages(&p->weight, 0, r->bytes_from); /* nothing reads this tensor in the file again */
    llm_weight_release(&p->weight);
    if (p->owned) free((void *)p->weight.data);
    p->weight.data = out;
    p->weight.dtype = r->to;
    p->weight.map = p->weight.map_end = NULL; /* memory is in no file: its pages must not be released */
    p->owned = true;
    llm_quant_spool_param(plan->spool, p);
    m->fingerprint[0] = 0;
    if (plan->moments) llm_moments_unload(plan->moments, (size_t)(p - m->params));
    return 0;
}

/* The first pattern that matches no tensor; NULL: all match one. */
static const char *unmatched(const struct llm_strs *patterns, const struct llm_model *m, const struct llm_quant_plan *plan)
{
    for (size_t i = 0; i < patterns->n; i++) {
        size_t k = 0;
        while (k < m->n_params && !matches(&patterns->v[i], 1, m, &m->params[k], plan)) k++;
        if (k == m->n_params) return patterns->v[i];
    }
    return NULL;
}

static int check_patterns(const struct llm_model *m, const struct llm_quant_plan *plan, struct llm_err *e)
{
    const char *only = unmatched(plan->only, m, plan), *except = unmatched(plan->except, m, plan);
    if (only) return llm_fail(e, LLM_EX_USAGE, "--only: expected a pattern that matches the name of a tensor, found '%s'", only);
    if (except) llm_warn("--except: no tensor's name matches '%s'", except);
    for (size_t i = 0; i < plan->n_overrides; i++) {
        bool found = false;
        for (size_t k = 0; k < m->n_params && !found; k++) found = override_names(&plan->overrides[i], m, &m->params[k], plan);
        if (!found) {
            return llm_fail(e, LLM_EX_USAGE, "--tensor-type: expected a pattern that matches the name of a tensor, found '%s'",
                            plan->overrides[i].pattern);
        }
    }
    return 0;
}

int llm_quantize_model(struct llm_model *m, const struct llm_quant_plan *plan,
                       int (*report)(void *arg, const struct llm_quant_report *r, struct llm_err *e), void *arg, struct llm_err *e)
{
    if (check_patterns(m, plan, e) < 0) return -1;
    for (size_t i = 0; i < m->n_params; i++) {
        struct llm_param *p = &m->params[i];
        struct llm_quant_report r = {.name = p->name, .n_dims = p->n_dims, .from = p->weight.dtype, .snr_db = INFINITY, .cosine = 1,
                                     .zeros = NAN, .energy = NAN};
        const uint64_t n = (uint64_t)llm_param_count(p);
        r.to = llm_quant_choose(m, p, plan, &r.kept);
        memcpy(r.shape, p->shape, sizeof r.shape);
        r.bytes_from = llm_dtype_bytes(r.from, n);
        r.bytes_to = llm_dtype_bytes(r.to, n);
        r.bits = n > 0 ? (double)r.bytes_to * 8 / (double)n : 0;
        if ((!r.kept && change(m, p, plan, &r, e) < 0) || report(arg, &r, e) < 0) return -1;
    }
    llm_model_changed(m);
    return 0;
}
