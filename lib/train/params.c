/* Parameters under training: FP32 masters, gradients, moments. */
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/hash.h"
#include "base/log.h"
#include "model/spec/block.h"
#include "model/weights/lora.h"
#include "model/weights/slices.h"
#include "train/mup.h"
#include "train/shards.h"
#include "train/trainer.h"

static void *zeroed(size_t n, size_t size, struct llm_err *e)
{
    void *p = llm_alloc_huge(n, size, "weights, gradients and moments", e);
    if (p) memset(p, 0, n * size);
    return p;
}

static int make_master(struct llm_param *p, struct llm_err *e)
{
    size_t n = (size_t)llm_param_count(p);
    const struct llm_dtype_row *row = &llm_dtypes[p->weight.dtype];
    if (p->weight.dtype == LLM_F32 && p->owned) {
        p->master = (float *)p->weight.data;
        return 0;
    }
    p->master = zeroed(n, sizeof(float), e);
    if (!p->master) return -1;
    row->decode(p->weight.data, p->master, n);
    if (p->owned) free((void *)p->weight.data);
    p->weight.data = p->master;
    p->weight.dtype = LLM_F32;
    p->weight.map = p->weight.map_end = NULL; /* no file has these values any more, so their pages must not be released */
    p->owned = true;
    return 0;
}

/* The master of a slice, from that of the whole, which the last of its slices frees. */
static int make_slice(struct llm_param *p, struct llm_err *e)
{
    const struct llm_slices *s = p->slice_of;
    struct llm_param *whole = s->whole;
    const int j = (int)(p - s->of);
    const size_t n = (size_t)llm_param_count(p);
    if (j == 0 && make_master(whole, e) < 0) return -1;
    if (!(p->master = llm_alloc_huge(n, sizeof *p->master, "weights", e))) return -1;
    llm_slices_take(s, j, whole->master, p->master);
    p->weight.data = p->master;
    p->owned = true;
    if (j < s->n - 1) return 0;
    free(whole->master);
    whole->master = NULL;
    whole->weight.data = NULL;
    whole->owned = false;
    return 0;
}

/* Room for all rows; memory becomes what as many rows as a shard has tokens take, which is now, and more only where more are looked up. Where `parts`
 * gradients are apart, all rows of each have their places. */
static int make_lookup(struct llm_param *p, size_t n, int64_t parts, int64_t tokens, struct llm_err *e)
{
    int64_t rows = p->shape[0];
    if (parts > 1) return (p->grad_lookup = zeroed((size_t)parts * llm_shard_stride(p), sizeof(float), e)) ? 0 : -1;
    p->grad_lookup = llm_calloc(n, sizeof(float), "gradients of lookups", e);
    p->lookup_place = llm_alloc((size_t)rows, sizeof *p->lookup_place, "gradients of lookups", e);
    if (!p->grad_lookup || !p->lookup_place) return -1;
    memset(p->grad_lookup, 0, n / (size_t)rows * (size_t)(tokens < rows ? tokens : rows) * sizeof(float));
    llm_lookups_forget(p);
    return 0;
}

/* Accumulators from, from + step, … of further uses, below n_uses. */
static int add_uses(struct llm_param *p, int64_t from, int64_t step, int64_t n_uses, struct llm_err *e)
{
    if (from >= n_uses) return 0;
    if (!p->grad_use && !(p->grad_use = llm_calloc((size_t)n_uses, sizeof *p->grad_use, "gradients", e))) return -1;
    p->n_grad_uses = (int)n_uses;
    for (int64_t u = from; u < n_uses; u += step) {
        if (!(p->grad_use[u] = zeroed((size_t)llm_param_count(p), sizeof(float), e))) return -1;
    }
    return 0;
}

/* What is used in several places has an accumulator for each, or the order of sums would depend on how a step is divided into passes. Layers that
 * predict further look tokens up and ask the head again; an encoder looks tokens up too; layers share biases of distances. */
static int make_uses(const struct llm_model *m, struct llm_param *p, struct llm_err *e)
{
    const struct llm_config *c = &m->config;
    bool head = p == llm_model_head(m), lookup = c->tie_word_embeddings ? head : p == llm_model_embedding(m);
    int64_t further = c->num_nextn_predict_layers, lookups = further > 0 ? further : c->num_encoder_layers > 0;
    if (lookup && add_uses(p, 0, 2, 2 * lookups, e) < 0) return -1;
    if (head && add_uses(p, 1, 2, 2 * further, e) < 0) return -1;
    return add_uses(p, 0, 1, p->sharers, e);
}

/* Whether the parameter is the head's matrix, or a slice of it. */
static bool is_head(const struct llm_model *m, const struct llm_param *p)
{
    return (p->slice_of ? p->slice_of->whole : p) == llm_model_head(m);
}

/* Forms of weights that are made once a step: the head's for its inputs' gradient; with several passes a step (shards divide
 * passes) both of every matrix, since passes share them. */
static int make_forms(const struct llm_trainer *t, struct llm_param *p, struct llm_err *e)
{
    enum llm_compute compute = (enum llm_compute)t->o.precision;
    if (!p->grad) return is_head(t->model, p) && !llm_dtypes[p->weight.dtype].is_quantised ? llm_weight_pack_dx(&p->weight, compute, e) : 0;
    bool several = t->o.accumulate > 1 || t->o.grad_shards > 1 || t->keeps_forms;
    bool shared = several && p->n_dims == 2 && (p->role == LLM_ROLE_HIDDEN || is_head(t->model, p));
    if (shared) return llm_weight_pack(&p->weight, compute, true, e);
    return is_head(t->model, p) ? llm_weight_pack_dx(&p->weight, compute, e) : 0;
}

bool llm_trains(const struct llm_train_options *o, const struct llm_param_spec *s)
{
    bool chosen = o->train.n == 0 || llm_pattern_any(o->train.v, o->train.n, s->name);
    return chosen && !s->constant && !llm_pattern_any(o->freeze.v, o->freeze.n, s->name);
}

static bool matches_some(const char *pattern, const struct llm_param_spec *specs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (llm_pattern_any(&pattern, 1, specs[i].name)) return true;
    }
    return false;
}

int llm_trains_check(const struct llm_train_options *o, const struct llm_param_spec *specs, size_t n, struct llm_err *e)
{
    const struct { const char *option; const struct llm_patterns *list; } lists[] = {{"train", &o->train}, {"freeze", &o->freeze}};
    bool trains = false;
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < lists[k].list->n; i++) {
            if (matches_some(lists[k].list->v[i], specs, n)) continue;
            return llm_fail(e, LLM_EX_USAGE, "--%s: expected a pattern that matches names of parameters (such as %s), found '%s'", lists[k].option,
                            n > 0 ? specs[n - 1].name : "none", lists[k].list->v[i]);
        }
    }
    for (size_t i = 0; i < n; i++) trains |= llm_trains(o, &specs[i]);
    return trains ? 0 : llm_fail(e, LLM_EX_USAGE, "--train, --freeze: expected parameters to train, found that none are left");
}

/* Says of which types the quantised parameters were that are about to get masters. */
static void note_types(const struct llm_trainable *params, size_t n, int precision)
{
    size_t count[LLM_N_DTYPES] = {0};
    for (size_t i = 0; i < n; i++) {
        const struct llm_slices *s = params[i].p->slice_of;
        if (!s || params[i].p == s->of) count[(s ? s->whole : params[i].p)->weight.dtype]++;
    }
    for (int t = 0; t < LLM_N_DTYPES; t++) {
        if (!llm_dtypes[t].is_quantised || count[t] == 0) continue;
        llm_note("%zu tensor%s of type %s become%s f32 masters to be trained; the model is stored with %s in %s", count[t], count[t] == 1 ? "" : "s",
                 llm_dtypes[t].name, count[t] == 1 ? "s" : "", count[t] == 1 ? "it" : "them", precision == LLM_COMPUTE_BF16 ? "bf16" : "f32");
    }
}

/* Buffers of parameter number i for the rank's shards of a step; with replicas, which are shards of the outer step, as many as these or a step of
 * one of them takes. */
static int64_t shard_buffers(const struct llm_trainer *t, size_t i)
{
    const int gradients = llm_share_gradients(&t->share, i);
    if (gradients > 1 || t->share.members) return gradients * t->share.member_buffers;
    const struct llm_shard_run run = t->share.run, within = {0, t->o.grad_shards, t->o.grad_shards};
    const int64_t n = t->share.int8 ? run.end - run.first - 1 : llm_shard_buffers(run);
    const int64_t of_replica = t->o.outer != LLM_OUTER_NONE ? llm_shard_buffers(within) : 0;
    return of_replica > n ? of_replica : n;
}

/* Master, gradient, moments and what else a parameter under training needs. */
static int prepare(struct llm_trainer *t, size_t number, struct llm_err *e)
{
    struct llm_trainable *q = &t->params[number];
    const struct llm_model *m = t->model;
    struct llm_param *p = q->p;
    size_t n = (size_t)llm_param_count(p);
    if ((p->slice_of ? make_slice(p, e) : make_master(p, e)) < 0) return -1;
    p->weight.rounded = t->o.precision == LLM_COMPUTE_BF16 && p->n_dims > 1; /* vectors stay as they are */
    if (p->slice_of) p->slice_of->whole->weight.rounded = p->weight.rounded;
    if (llm_share_hashes_own(&t->share)) t->hashes[number] = llm_xxh64(p->master, n * sizeof(float), 0);
    if (!llm_share_has(&t->share, number)) {
        free(p->master);
        p->master = NULL;
        p->weight.data = NULL;
        p->owned = false;
        return 0;
    }
    const size_t gradients = llm_share_gradient_floats(&t->share, number);
    if (llm_share_place(&t->share, number, e) < 0 || (!p->grad && !(p->grad = zeroed(gradients, sizeof(float), e)))) return -1;
    if (!llm_share_pools_weights(&t->share, number) && make_forms(t, p, e) < 0) return -1;
    const struct llm_share_param *at = &t->share.params[number];
    const bool copy = at->copies == LLM_SHARE_TIED && at->home != t->share.lane; /* of a tied embedding, which is looked up in another stage */
    bool looked_up_too = m->config.tie_word_embeddings && is_head(m, p) && !copy;
    int64_t tokens = llm_shard_rows(t->o.grad_shards, t->o.batch * t->o.accumulate) * t->o.context;
    if (t->o.batch_tokens > 0) tokens = t->o.batch_tokens / t->o.grad_shards + t->o.context;
    if (looked_up_too && make_lookup(p, n, t->share.parts, tokens, e) < 0) return -1;
    if (make_uses(m, p, e) < 0 || (t->share.zero < 2 && !copy && llm_shard_prepare(q, shard_buffers(t, number), e) < 0)) return -1;
    double ratio = t->o.mup_base_width > 0 ? (double)m->config.hidden_size / (double)t->o.mup_base_width : 1;
    const struct llm_optim *o = q->optim;
    const size_t own = llm_trainable_own(q);
    q->lr_scale = llm_mup_rate(o, p, ratio, (enum llm_muon_scale)t->o.muon_scale);
    if (p->running) o = NULL;
    if (o && o->m && !(q->m = zeroed(own, sizeof(float), e))) return -1;
    if (o && o->v && !(q->v = zeroed(own, sizeof(float), e))) return -1;
    if (t->o.ema > 0) {
        if (!(q->ema = zeroed(n, sizeof(float), e))) return -1;
        memcpy(q->ema, p->master, n * sizeof(float));
    }
    if (o && own > 0 && llm_optim_work(o, p) > t->work_floats) t->work_floats = llm_optim_work(o, p);
    return 0;
}

/* Lists what is trained, in the model's order: with an adapter its pairs, and what it stores whole. */
static void list_trained(struct llm_trainer *t)
{
    struct llm_model *m = t->model;
    for (size_t i = 0; i < m->n_params && !t->objective->beside; i++) {
        struct llm_param *p = &m->params[i];
        for (int j = 0; p->slices && j < p->slices->n; j++) t->params[t->n_params++].p = &p->slices->of[j];
        if (p->slices) continue;
        if (m->lora ? llm_lora_is_whole(m->lora, p) : llm_trains(&t->o, p->spec)) t->params[t->n_params++].p = p;
        struct llm_lora_pair *pair = m->lora ? llm_lora_pair_of(m->lora, p) : NULL;
        if (!pair) continue;
        t->params[t->n_params++].p = &pair->a;
        t->params[t->n_params++].p = &pair->b;
        if (pair->op.magnitude) t->params[t->n_params++].p = &pair->magnitude;
    }
    for (int i = 0; i < t->task.n_params; i++) t->params[t->n_params++].p = &t->task.params[i];
}

bool llm_trainer_trains_all(const struct llm_trainer *t)
{
    return !t->model->lora && (t->o.tensor_parts > 1 || t->n_params == t->model->n_params + (size_t)t->task.n_params);
}

int llm_trainer_prepare(struct llm_trainer *t, struct llm_err *e)
{
    struct llm_model *m = t->model;
    if (!m->lora && !t->objective->beside && llm_trains_check(&t->o, m->specs, m->n_params, e) < 0) return -1;
    const int parts = (int)t->o.tensor_parts, members = (int)llm_layout_members(&t->layout);
    const int own = parts / members, first = llm_comm_rank(t->comm) % members * own; /* slices of this rank */
    if (parts > 1 && llm_model_slice(m, parts, first, first + own, e) < 0) return -1;
    t->params = llm_calloc((size_t)(parts > 3 ? parts : 3) * m->n_params + (size_t)t->task.n_params, sizeof *t->params, "training", e);
    if (!t->params) return -1;
    list_trained(t);
    note_types(t->params, t->n_params, t->o.precision);
    for (size_t i = 0; i < t->n_params; i++) t->params[i].optim = llm_optim_of(t->optim, t->params[i].p);
    if (llm_share_init(&t->share, t->comm, &t->layout, m, t->params, t->n_params, &t->o, e) < 0) return -1;
    t->n_hashes = t->o.outer != LLM_OUTER_NONE ? 1 + (size_t)t->o.replicas : llm_share_hashes_own(&t->share) ? t->n_params : 0;
    if (t->n_hashes > 0 && !(t->hashes = llm_calloc(t->n_hashes, sizeof *t->hashes, "training", e))) return -1;
    for (size_t i = 0; i < t->n_params; i++) {
        if (prepare(t, i, e) < 0) return -1;
    }
    llm_model_changed(m); /* rounding to BF16 changes pairs */
    for (size_t i = 0; i < m->n_params; i++) {
        if (!m->params[i].grad && m->params[i].weight.data && make_forms(t, &m->params[i], e) < 0) return -1;
    }
    if (t->work_floats > 0 && !(t->work = zeroed(t->work_floats, sizeof(float), e))) return -1;
    return t->o.outer != LLM_OUTER_NONE ? llm_outer_init(&t->outer, &t->share, m, &t->o, e) : 0;
}

double llm_trainer_flops_per_token(const struct llm_trainer *t)
{
    double active = llm_model_active_params(&t->model->config), trained = 0;
    if (llm_trainer_trains_all(t)) return 6 * active;
    for (size_t i = 0; i < t->n_params; i++) {
        const struct llm_param_spec *s = t->params[i].p->spec;
        trained += (double)llm_param_count(t->params[i].p) * (s && s->active > 0 ? s->active : 1);
    }
    return 4 * active + 2 * trained;
}

double llm_trainer_trained(const struct llm_trainer *t)
{
    double n = 0;
    for (size_t i = 0; i < t->n_params; i++) n += (double)llm_param_count(t->params[i].p);
    return n;
}
