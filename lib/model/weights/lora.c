/* Adapters in memory: made, described, released (model/weights/lora.h). */
#include "model/weights/lora.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "base/rng.h"
#include "cpu/kernels.h"
#include "model/config/arch.h"
#include "model/weights/lora_internal.h"
#include "model/weights/names.h"

/* ---- which matrices ---- */

bool llm_lora_can_adapt(const struct llm_param_spec *s)
{
    return s->n_dims == 2 && s->piece != LLM_PIECE_BIAS && !s->exact && !s->lookup && !s->n_parts && s->stem != LLM_STEM_STATE
        && s->stem != LLM_STEM_CONV && s->unit != LLM_UNIT_EMBEDDINGS;
}

/* Without --targets: what the layers multiply, but routers. */
static bool is_usual(const struct llm_param_spec *s)
{
    return llm_lora_can_adapt(s) && s->layer >= 0 && s->stem != LLM_STEM_ROUTER && s->unit != LLM_UNIT_HEAD && s->unit != LLM_UNIT_CLASSES
        && s->unit != LLM_UNIT_NEXT_TOKENS;
}

void llm_lora_module(const struct llm_param *p, char out[LLM_LORA_NAME])
{
    size_t n = strlen(p->name), suffix = strlen(".weight");
    if (n > suffix && p->spec->piece == LLM_PIECE_WEIGHT) n -= suffix;
    snprintf(out, LLM_LORA_NAME, "%.*s", (int)n, p->name);
}

/* Whether a pattern matches the parameter's name, its module's or the last word of that. */
static bool names(const char *pattern, const struct llm_param *p)
{
    char module[LLM_LORA_NAME];
    llm_lora_module(p, module);
    const char *last = strrchr(module, '.');
    return llm_pattern_any(&pattern, 1, p->name) || llm_pattern_any(&pattern, 1, module) || (last && llm_pattern_any(&pattern, 1, last + 1));
}

static bool named_by_some(const struct llm_patterns *list, const struct llm_param *p)
{
    for (size_t i = 0; i < list->n; i++) {
        if (names(list->v[i], p)) return true;
    }
    return false;
}

/* Each pattern matches a parameter that serves. */
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
        return llm_fail(e, LLM_EX_USAGE, "--%s: expected a pattern that matches names of parameters (such as %s), found '%s'",
                        matrices ? "targets" : "also-train", m->n_params > 0 ? m->params[m->n_params - 1].name : "none", list->v[i]);
    }
    return 0;
}

/* ---- memory ---- */

static void pair_release(struct llm_lora_pair *q)
{
    struct llm_param *parts[] = {&q->a, &q->b};
    for (size_t i = 0; i < 2; i++) {
        llm_weight_release(&parts[i]->weight);
        if (parts[i]->owned) free((void *)parts[i]->weight.data);
        free(parts[i]->grad);
    }
}

static void drop_staging(struct llm_lora *l)
{
    for (size_t i = 0; i < l->n_staging; i++) free(l->staging[i]);
    free(l->staging);
    l->staging = NULL;
    l->n_staging = 0;
}

void llm_lora_destroy(struct llm_lora *l)
{
    if (!l) return;
    for (size_t i = 0; i < l->n_pairs; i++) pair_release(&l->pairs[i]);
    drop_staging(l);
    free(l->pairs);
    free(l->whole);
    free(l->whole_names);
    free(l->path);
    free(l->base_path);
    json_decref(l->training);
    llm_checkpoint_close(l->file);
    free(l);
}

void llm_lora_release(struct llm_model *m)
{
    for (size_t i = 0; i < m->n_params; i++) m->params[i].adapter = NULL;
    while (m->lora) {
        struct llm_lora *next = m->lora->next;
        llm_lora_destroy(m->lora);
        m->lora = next;
    }
}

struct llm_lora *llm_lora_blank(const struct llm_model *m, struct llm_err *e)
{
    struct llm_lora *l = llm_calloc(1, sizeof *l, "an adapter", e);
    if (!l) return NULL;
    l->factor = 1;
    l->model_dropout = -1;
    l->pairs = llm_calloc(m->n_params, sizeof *l->pairs, "an adapter", e);
    l->whole = llm_calloc(m->n_params, sizeof *l->whole, "an adapter", e);
    l->whole_names = llm_calloc(m->n_params, sizeof *l->whole_names, "an adapter", e);
    if (l->pairs && l->whole && l->whole_names) return l;
    llm_lora_destroy(l);
    return NULL;
}

static int make_half(struct llm_param *half, const struct llm_param *of, const char *name, int64_t rows, int64_t cols, struct llm_err *e)
{
    *half = (struct llm_param){.name = name, .spec = of->spec, .n_dims = 2, .shape = {rows, cols}, .role = LLM_ROLE_HIDDEN, .decay = true,
                               .owned = true, .weight = {.dtype = LLM_F32, .n = rows, .k = cols}};
    float *data = llm_alloc_huge((size_t)(rows * cols), sizeof *data, name, e);
    if (!data) {
        half->owned = false;
        return -1;
    }
    memset(data, 0, (size_t)(rows * cols) * sizeof *data);
    half->weight.data = data;
    return 0;
}

struct llm_lora_pair *llm_lora_add_pair(struct llm_lora *l, const struct llm_model *m, struct llm_param *p, int64_t rank, struct llm_err *e)
{
    struct llm_lora_pair *q = &l->pairs[l->n_pairs];
    char module[LLM_LORA_NAME];
    llm_lora_module(p, module);
    q->param = p;
    l->n_pairs++;
    snprintf(q->names[0], LLM_LORA_NAME, LLM_LORA_PREFIX "%.130s.lora_A.weight", module);
    snprintf(q->names[1], LLM_LORA_NAME, LLM_LORA_PREFIX "%.130s.lora_B.weight", module);
    if (make_half(&q->a, p, q->names[0], rank, p->weight.k, e) < 0 || make_half(&q->b, p, q->names[1], p->weight.n, rank, e) < 0) return NULL;
    if (rank > l->rank) l->rank = rank;
    q->op = (struct llm_adapter){.a = &q->a, .b = &q->b, .number = (uint32_t)(p - m->params)};
    return q;
}

void llm_lora_add_whole(struct llm_lora *l, struct llm_param *p)
{
    snprintf(l->whole_names[l->n_whole], LLM_LORA_NAME, LLM_LORA_PREFIX "%.150s", p->name);
    l->whole[l->n_whole++] = p;
}

void llm_lora_attach(struct llm_lora *l, struct llm_model *m)
{
    struct llm_lora **last = &m->lora;
    l->id = 0;
    while (*last) {
        l->id++;
        last = &(*last)->next;
    }
    *last = l;
    for (size_t i = 0; i < l->n_pairs; i++) {
        struct llm_lora_pair *q = &l->pairs[i];
        double rank = (double)q->a.weight.n;
        const struct llm_adapter **at = &q->param->adapter;
        q->op.id = l->id;
        q->op.scale = (float)(l->alpha / (l->rslora ? sqrt(rank) : rank)) * l->factor;
        q->op.dropout = (float)l->dropout;
        while (*at) at = &((struct llm_adapter *)(uintptr_t)*at)->next;
        *at = &q->op;
    }
}

/* ---- new ---- */

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
    l->dropout = o->dropout;
    l->model_dropout = o->model_dropout;
    memcpy(l->base_fingerprint, m->fingerprint, sizeof l->base_fingerprint);
    l->base_path = o->base_path ? strdup(o->base_path) : NULL;
    if ((o->base_path && !l->base_path && llm_no_memory(e, "an adapter") < 0) || choose(l, m, o, e) < 0) {
        llm_lora_destroy(l);
        return -1;
    }
    llm_lora_attach(l, m);
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
    l->dropout = from->dropout;
    for (size_t i = 0; i < m->n_params; i++) {
        const struct llm_param *p = llm_model_find(of, m->params[i].name);
        const struct llm_lora_pair *pair = p ? llm_lora_pair_of(from, p) : NULL;
        if (p && llm_lora_is_whole(from, p)) llm_lora_add_whole(l, &m->params[i]);
        if (!pair || llm_lora_add_pair(l, m, &m->params[i], pair->a.weight.n, e)) continue;
        llm_lora_destroy(l);
        return -1;
    }
    llm_lora_attach(l, m);
    return 0;
}

bool llm_lora_is_whole(const struct llm_lora *l, const struct llm_param *p)
{
    for (size_t i = 0; i < l->n_whole; i++) {
        if (l->whole[i] == p) return true;
    }
    return false;
}

struct llm_lora_pair *llm_lora_pair_of(const struct llm_lora *l, const struct llm_param *p)
{
    for (size_t i = 0; i < l->n_pairs; i++) {
        if (l->pairs[i].param == p) return &l->pairs[i];
    }
    return NULL;
}

double llm_lora_elements(const struct llm_lora *l)
{
    double n = 0;
    for (size_t i = 0; i < l->n_pairs; i++) n += (double)llm_param_count(&l->pairs[i].a) + (double)llm_param_count(&l->pairs[i].b);
    for (size_t i = 0; i < l->n_whole; i++) n += (double)llm_param_count(l->whole[i]);
    return n;
}

/* ---- described ---- */

void *llm_lora_stage(struct llm_lora *l, size_t bytes, struct llm_err *e)
{
    void **grown = realloc(l->staging, (l->n_staging + 1) * sizeof *grown);
    if (!grown) {
        llm_no_memory(e, "an adapter");
        return NULL;
    }
    l->staging = grown;
    void *p = llm_alloc(bytes, 1, "an adapter", e);
    if (p) l->staging[l->n_staging++] = p;
    return p;
}

/* A parameter as it is stored: what stands for its roundings to BF16, as BF16. */
static int describe_param(struct llm_lora *l, const struct llm_param *p, const char *name, struct llm_tensor_list *t, struct llm_err *e)
{
    struct llm_tensor_out out = {.name = name, .dtype = p->weight.dtype, .n_dims = p->n_dims, .shape = {p->shape[0], p->shape[1], p->shape[2]},
                                 .data = p->weight.data};
    if (p->weight.rounded) {
        size_t n = (size_t)llm_param_count(p);
        uint16_t *rounded = llm_lora_stage(l, n * sizeof *rounded, e);
        if (!rounded) return -1;
        llm_k.elementwise.to_bf16(rounded, p->weight.data, n);
        out.dtype = LLM_BF16;
        out.data = rounded;
    }
    if (llm_grow((void **)&t->v, &t->room, t->n + 1, sizeof *t->v, e) < 0) return -1;
    t->v[t->n++] = out;
    return 0;
}

static int set_text(json_t *meta, const char *key, const char *text, size_t n, struct llm_err *e)
{
    return json_object_set_new(meta, key, json_stringn(text, n)) < 0 ? llm_no_memory(e, "metadata") : 0;
}

int llm_lora_describe(struct llm_lora *l, struct llm_model *m, json_t *meta, struct llm_tensor_list *tensors, struct llm_err *e)
{
    struct llm_buf text = {0};
    json_t *config = llm_lora_config(l, m, e);
    drop_staging(l);
    int r = config ? llm_json_dump(config, &text, e) : -1;
    if (r == 0) r = set_text(meta, LLM_META_ADAPTER, text.p, text.n, e);
    if (r == 0 && l->base_fingerprint[0]) r = set_text(meta, LLM_META_BASE_FINGERPRINT, l->base_fingerprint, strlen(l->base_fingerprint), e);
    if (r == 0 && m->chat_template) r = set_text(meta, LLM_META_CHAT_TEMPLATE, m->chat_template, strlen(m->chat_template), e);
    if (r == 0 && l->model_dropout >= 0) {
        text.n = 0;
        r = llm_json_number(&text, l->model_dropout, e);
        if (r == 0) r = set_text(meta, LLM_META_MODEL_DROPOUT, text.p, text.n, e);
    }
    for (size_t i = 0; r == 0 && i < l->n_pairs; i++) {
        r = describe_param(l, &l->pairs[i].a, l->pairs[i].names[0], tensors, e);
        if (r == 0) r = describe_param(l, &l->pairs[i].b, l->pairs[i].names[1], tensors, e);
    }
    for (size_t i = 0; r == 0 && i < l->n_whole; i++) r = describe_param(l, l->whole[i], l->whole_names[i], tensors, e);
    json_decref(config);
    llm_buf_release(&text);
    return r;
}

static void hash_param(struct llm_xxh *h, const struct llm_param *p, const char *name)
{
    llm_xxh_update(h, name, strlen(name) + 1);
    llm_xxh_update(h, p->weight.data, llm_dtype_bytes(p->weight.dtype, (uint64_t)llm_param_count(p)));
}

int llm_lora_fingerprint(struct llm_model *m, struct llm_err *e)
{
    struct llm_xxh *h = llm_xxh_create(e);
    if (!h) return -1;
    llm_xxh_update(h, m->fingerprint, strlen(m->fingerprint));
    for (const struct llm_lora *l = m->lora; l; l = l->next) {
        for (size_t i = 0; i < l->n_pairs; i++) {
            llm_xxh_update(h, &l->pairs[i].op.scale, sizeof l->pairs[i].op.scale);
            hash_param(h, &l->pairs[i].a, l->pairs[i].names[0]);
            hash_param(h, &l->pairs[i].b, l->pairs[i].names[1]);
        }
        for (size_t i = 0; i < l->n_whole; i++) hash_param(h, l->whole[i], l->whole_names[i]);
    }
    snprintf(m->fingerprint, sizeof m->fingerprint, "%016llx", (unsigned long long)llm_xxh_digest(h));
    llm_xxh_destroy(h);
    return 0;
}
