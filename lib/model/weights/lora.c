/* Adapters in memory: allocated, attached to their model, found, released (model/weights/lora.h). */
#include "model/weights/lora.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/cli.h"
#include "base/hash.h"
#include "model/weights/lora_internal.h"
#include "tensor/ops.h"

/* ---- which matrices ---- */

bool llm_lora_can_adapt(const struct llm_param_spec *s)
{
    return s->n_dims == 2 && s->piece != LLM_PIECE_BIAS && !s->exact && !s->lookup && !s->n_parts && s->stem != LLM_STEM_STATE
        && s->stem != LLM_STEM_CONV && s->unit != LLM_UNIT_EMBEDDINGS;
}

void llm_lora_module(const struct llm_param *p, char out[LLM_LORA_NAME])
{
    snprintf(out, LLM_LORA_NAME, "%s", p->name);
    if (llm_ends_with(out, ".weight")) out[strlen(out) - strlen(".weight")] = 0;
}

/* ---- memory ---- */

static void pair_release(struct llm_lora_pair *q)
{
    struct llm_param *parts[] = {&q->a, &q->b, &q->magnitude};
    free(q->norm);
    for (size_t i = 0; i < 3; i++) {
        llm_weight_release(&parts[i]->weight);
        if (parts[i]->owned) free((void *)parts[i]->weight.data);
        free(parts[i]->grad);
    }
}

void llm_lora_drop_staging(struct llm_lora *l)
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
    llm_lora_drop_staging(l);
    free(l->pairs);
    free(l->whole);
    free(l->whole_names);
    free(l->path);
    free(l->base_path);
    json_decref(l->training);
    json_decref(l->alphas);
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

static int make_magnitude(struct llm_lora_pair *q, const char *module, struct llm_err *e)
{
    snprintf(q->names[2], LLM_LORA_NAME, LLM_LORA_PREFIX "%.120s.lora_magnitude_vector", module);
    if (make_half(&q->magnitude, q->param, q->names[2], q->param->weight.n, 1, e) < 0) return -1;
    q->magnitude.n_dims = 1;
    q->magnitude.role = LLM_ROLE_VECTOR;
    q->magnitude.decay = false;
    q->norm = llm_calloc((size_t)q->param->weight.n, sizeof *q->norm, q->names[2], e);
    return q->norm ? 0 : -1;
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
    if (l->dora && make_magnitude(q, module, e) < 0) return NULL;
    if (rank > l->rank) l->rank = rank;
    q->op = (struct llm_adapter){.a = &q->a, .b = &q->b, .number = (uint32_t)(p - m->params)};
    if (l->dora) {
        q->op.magnitude = &q->magnitude;
        q->op.norm = q->norm;
    }
    return q;
}

void llm_lora_add_whole(struct llm_lora *l, struct llm_param *p)
{
    snprintf(l->whole_names[l->n_whole], LLM_LORA_NAME, LLM_LORA_PREFIX "%.150s", p->name);
    l->whole[l->n_whole++] = p;
}

double llm_lora_scale(const struct llm_lora *l, const struct llm_lora_pair *q)
{
    const double rank = (double)q->a.weight.n;
    return (q->alpha > 0 ? q->alpha : l->alpha) / (l->rslora ? sqrt(rank) : rank);
}

static void renorm(const struct llm_lora *l)
{
    for (size_t i = 0; l->dora && i < l->n_pairs; i++) {
        const struct llm_lora_pair *q = &l->pairs[i];
        llm_adapter_norms(q->param, &q->op, (float)llm_lora_scale(l, q), q->norm);
    }
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
        const struct llm_adapter **at = &q->param->adapter;
        q->op.id = l->id;
        q->op.scale = (float)llm_lora_scale(l, q) * l->factor;
        q->op.factor = l->factor;
        q->op.dropout = (float)l->dropout;
        while (*at) at = &((struct llm_adapter *)(uintptr_t)*at)->next;
        *at = &q->op;
    }
    renorm(l);
}

void llm_lora_renorm(struct llm_model *m)
{
    for (const struct llm_lora *l = m->lora; l; l = l->next) renorm(l);
}

bool llm_lora_is_zero(const struct llm_lora *l)
{
    for (size_t i = 0; i < l->n_pairs; i++) {
        const struct llm_param *b = &l->pairs[i].b;
        const float *x = b->master ? b->master : b->weight.data;
        for (int64_t k = 0; k < llm_param_count(b); k++) {
            if (x[k] != 0) return false;
        }
    }
    return l->n_whole == 0;
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

double llm_lora_pair_elements(const struct llm_lora_pair *q)
{
    return (double)(llm_param_count(&q->a) + llm_param_count(&q->b)) + (q->op.magnitude ? (double)llm_param_count(&q->magnitude) : 0);
}

double llm_lora_elements(const struct llm_lora *l)
{
    double n = 0;
    for (size_t i = 0; i < l->n_pairs; i++) n += llm_lora_pair_elements(&l->pairs[i]);
    for (size_t i = 0; i < l->n_whole; i++) n += (double)llm_param_count(l->whole[i]);
    return n;
}

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
            if (l->dora) hash_param(h, &l->pairs[i].magnitude, l->pairs[i].names[2]);
        }
        for (size_t i = 0; i < l->n_whole; i++) hash_param(h, l->whole[i], l->whole_names[i]);
    }
    snprintf(m->fingerprint, sizeof m->fingerprint, "%016llx", (unsigned long long)llm_xxh_digest(h));
    llm_xxh_destroy(h);
    return 0;
}
