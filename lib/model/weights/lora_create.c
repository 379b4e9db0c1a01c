/* New adapters: which matrices get a pair, and its values. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/rng.h"
#include "base/suggest.h"
#include "model/weights/lora_internal.h"

/* Whether a parameter gets a pair if --targets is not given: matrices that layers multiply, but no routers. */
static bool is_usual(const struct llm_param_spec *s)
{
    return llm_lora_can_adapt(s) && s->layer >= 0 && s->stem != LLM_STEM_ROUTER && s->unit != LLM_UNIT_HEAD && s->unit != LLM_UNIT_CLASSES
        && s->unit != LLM_UNIT_NEXT_TOKENS;
}

/* Whether a pattern matches the parameter's name, its module's or the last word of that. */
static bool names(const char *pattern, const struct llm_param *p)
{
    char module[LLM_LORA_NAME];
    llm_lora_module(p, module);
    const char *last = strrchr(module, '.');
    return llm_pattern_any(&pattern, 1, p->name) || llm_pattern_any(&pattern, 1, module) || (last && llm_pattern_any(&pattern, 1, last + 1));
}

/* The last word of a module's name that is nearest to the pattern. */
static const char *nearest_module(struct llm_suggest *near, const char *pattern, const struct llm_model *m, char word[LLM_LORA_NAME])
{
    int least = INT_MAX;
    for (size_t k = 0; k < m->n_params; k++) {
        char module[LLM_LORA_NAME];
        llm_lora_module(&m->params[k], module);
        const char *last = strrchr(module, '.') ? strrchr(module, '.') + 1 : module;
        int d = llm_edit_distance(pattern, last);
        if (d >= least) continue;
        snprintf(word, LLM_LORA_NAME, "%s", last);
        least = d;
    }
    llm_suggest_begin(near, pattern);
    if (least < INT_MAX) llm_suggest_add(near, word, word);
    return llm_suggest_text(near, "");
}

static bool named_by_some(const struct llm_patterns *list, const struct llm_param *p)
{
    for (size_t i = 0; i < list->n; i++) {
        if (names(list->v[i], p)) return true;
    }
    return false;
}

/* Checks that each pattern matches a parameter that can be adapted (`matrices`) or trained whole. */
static int check_patterns(const struct llm_model *m, const struct llm_patterns *list, bool matrices, struct llm_err *e)
{
    for (size_t i = 0; i < list->n; i++) {
        bool any = false;
        const struct llm_param *refused = NULL;
        for (size_t k = 0; k < m->n_params; k++) {
            if (!names(list->v[i], &m->params[k])) continue;
            if (!matrices || llm_lora_can_adapt(m->params[k].spec)) any = true;
            else refused = &m->params[k];
        }
        if (any) continue;
        if (refused) {
            return llm_fail(e, LLM_EX_USAGE, "--targets %s: expected a matrix that is multiplied, found '%s', which --also-train trains whole",
                            list->v[i], refused->name);
        }
        char word[LLM_LORA_NAME];
        struct llm_suggest near;
        return llm_fail(e, LLM_EX_USAGE, "--%s: expected a pattern that matches names of parameters (such as %s), found '%s'%s",
                        matrices ? "targets" : "also-train", m->n_params > 0 ? m->params[m->n_params - 1].name : "none", list->v[i],
                        nearest_module(&near, list->v[i], m, word));
    }
    return 0;
}

static void draw(struct llm_lora_pair *q, uint64_t seed)
{
    float *a = (float *)(uintptr_t)q->a.weight.data;
    int64_t k = q->a.weight.k;
    double bound = 1 / sqrt((double)k);
    for (int64_t r = 0; r < q->a.weight.n; r++) {
        const struct llm_rng rng = llm_rng_at(seed, 0, LLM_RNG_INIT, q->op.number, (uint32_t)r, 1); /* position 0 drew the model's weights */
        for (int64_t i = 0; i < k; i++) a[r * k + i] = (float)((2 * llm_rng_uniform64(&rng, (uint32_t)i) - 1) * bound);
    }
}

static int choose(struct llm_lora *l, struct llm_model *m, const struct llm_lora_options *o, struct llm_err *e)
{
    for (size_t i = 0; i < m->n_params; i++) {
        struct llm_param *p = &m->params[i];
        if (named_by_some(&o->whole, p)) {
            llm_lora_add_whole(l, p);
            continue;
        }
        if (o->targets.n == 0 ? !is_usual(p->spec) : !llm_lora_can_adapt(p->spec) || !named_by_some(&o->targets, p)) continue;
        struct llm_lora_pair *q = llm_lora_add_pair(l, m, p, o->rank, e);
        if (!q) return -1;
        draw(q, o->seed);
    }
    return l->n_pairs > 0 ? 0 : llm_fail(e, EX_DATAERR, "expected a matrix to adapt, found none in a model of type '%s'", m->config.model_type);
}

int llm_lora_create(struct llm_model *m, const struct llm_lora_options *o, struct llm_err *e)
{
    if (check_patterns(m, &o->targets, true, e) < 0 || check_patterns(m, &o->whole, false, e) < 0 || llm_model_base_fingerprint(m, e) < 0) return -1;
    struct llm_lora *l = llm_lora_blank(m, e);
    if (!l) return -1;
    l->alpha = o->alpha;
    l->rslora = o->rslora;
    l->dora = o->dora;
    l->dropout = o->dropout;
    l->model_dropout = o->model_dropout;
    memcpy(l->base_fingerprint, m->fingerprint, sizeof l->base_fingerprint);
    l->base_path = o->base_path ? strdup(o->base_path) : NULL;
    if ((o->base_path && !l->base_path && llm_no_memory(e, "an adapter") < 0) || choose(l, m, o, e) < 0) {
        llm_lora_destroy(l);
        return -1;
    }
    llm_lora_attach(l, m);
    for (size_t k = 0; l->dora && k < l->n_pairs; k++) { /* b is 0, so the magnitudes begin as the norms of the matrices' rows */
        memcpy((float *)(uintptr_t)l->pairs[k].magnitude.weight.data, l->pairs[k].norm, (size_t)l->pairs[k].param->weight.n * sizeof(float));
    }
    return 0;
}

int llm_lora_renew(struct llm_model *m, const char *base_path, double dropout, double model_dropout, struct llm_err *e)
{
    struct llm_lora *l = m->lora;
    char *copy = strdup(base_path);
    if (!copy) return llm_no_memory(e, "an adapter");
    free(l->base_path);
    l->base_path = copy;
    memcpy(l->base_fingerprint, m->fingerprint, sizeof l->base_fingerprint);
    json_decref(l->training);
    l->training = NULL;
    if (dropout >= 0) l->dropout = dropout;
    if (model_dropout >= 0) l->model_dropout = model_dropout;
    for (size_t i = 0; i < l->n_pairs; i++) l->pairs[i].op.dropout = (float)l->dropout;
    return 0;
}

int llm_lora_mirror(struct llm_model *m, const struct llm_model *of, struct llm_err *e)
{
    const struct llm_lora *from = of->lora;
    struct llm_lora *l = llm_lora_blank(m, e);
    if (!l) return -1;
    l->alpha = from->alpha;
    l->rslora = from->rslora;
    l->dora = from->dora;
    l->dropout = from->dropout;
    for (size_t i = 0; i < m->n_params; i++) {
        const struct llm_param *p = llm_model_find(of, m->params[i].name);
        const struct llm_lora_pair *pair = p ? llm_lora_pair_of(from, p) : NULL;
        if (p && llm_lora_is_whole(from, p)) llm_lora_add_whole(l, &m->params[i]);
        struct llm_lora_pair *q = pair ? llm_lora_add_pair(l, m, &m->params[i], pair->a.weight.n, e) : NULL;
        if (q) q->alpha = pair->alpha;
        if (q || !pair) continue;
        llm_lora_destroy(l);
        return -1;
    }
    llm_lora_attach(l, m);
    return 0;
}

/* Each pair's scale is alpha / its rank, so b is multiplied by the inverse: alpha is the highest rank. */
int llm_lora_from_factors(struct llm_model *m, const struct llm_lora_factors *f, size_t n, struct llm_err *e)
{
    struct llm_lora *l = llm_lora_blank(m, e);
    if (!l) return -1;
    for (size_t i = 0; i < n; i++) l->alpha = fmax(l->alpha, (double)f[i].rank);
    for (size_t i = 0; i < n; i++) {
        struct llm_lora_pair *q = llm_lora_add_pair(l, m, &m->params[f[i].param], f[i].rank, e);
        if (!q) {
            llm_lora_destroy(l);
            return -1;
        }
        float *a = (float *)(uintptr_t)q->a.weight.data, *b = (float *)(uintptr_t)q->b.weight.data;
        memcpy(a, f[i].a, (size_t)llm_param_count(&q->a) * sizeof *a);
        for (int64_t k = 0; k < llm_param_count(&q->b); k++) b[k] = (float)((double)f[i].b[k] * (double)f[i].rank / l->alpha);
    }
    llm_lora_attach(l, m);
    return 0;
}
