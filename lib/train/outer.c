#include "train/outer.h"

#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/hash.h"
#include "cpu/optim.h"
#include "cpu/profile.h"
#include "model/weights/model.h"

static size_t count(const struct llm_outer *o, size_t param)
{
    return (size_t)llm_param_count(o->share->t[param].p);
}

/* Statistics and counts, which no optimizer moves. */
static bool follows(const struct llm_param *p)
{
    return p->running || p->balances;
}

static int64_t own(const struct llm_outer *o)
{
    return o->share->run.end - o->share->run.first;
}

struct llm_replica *llm_outer_replica(const struct llm_outer *o, int64_t replica)
{
    const struct llm_shard_run run = o->share->run;
    return replica >= run.first && replica < run.end ? &o->replicas[replica - run.first] : NULL;
}

static float *zeros(size_t n, struct llm_err *e)
{
    float *x = llm_alloc_huge(n, sizeof *x, "replicas", e);
    if (x) memset(x, 0, n * sizeof *x);
    return x;
}

/* The first replica takes over the moments that the parameters have. */
static int make_replica(struct llm_outer *o, struct llm_replica *r, bool first, struct llm_err *e)
{
    const size_t n = o->share->n_params;
    r->master = llm_calloc(n, sizeof *r->master, "replicas", e);
    r->m = llm_calloc(n, sizeof *r->m, "replicas", e);
    r->v = llm_calloc(n, sizeof *r->v, "replicas", e);
    if (!r->master || !r->m || !r->v) return -1;
    for (size_t i = 0; i < n; i++) {
        struct llm_trainable *q = &o->share->t[i];
        if (!(r->master[i] = zeros(count(o, i), e))) return -1;
        if (q->m && !(r->m[i] = first ? q->m : zeros(count(o, i), e))) return -1;
        if (q->v && !(r->v[i] = first ? q->v : zeros(count(o, i), e))) return -1;
        if (first) q->m = q->v = NULL;
    }
    return 0;
}

int llm_outer_init(struct llm_outer *o, struct llm_share *s, struct llm_model *m, const struct llm_train_options *options, struct llm_err *e)
{
    *o = (struct llm_outer){.share = s, .model = m, .n = options->replicas, .lr = options->outer_lr, .momentum = options->outer_momentum};
    int got = 0;
    o->replicas = llm_calloc((size_t)own(o), sizeof *o->replicas, "replicas", e);
    o->weights = llm_calloc(s->n_params, sizeof *o->weights, "replicas", e);
    o->momenta = llm_calloc(s->n_params, sizeof *o->momenta, "replicas", e);
    if (!o->replicas || !o->weights || !o->momenta) return -1;
    for (size_t i = 0; i < s->n_params; i++) o->weights[i] = s->t[i].p->master;
    for (int64_t k = 1; k < own(o) && got == 0; k++) got = make_replica(o, &o->replicas[k], false, e);
    if (got == 0) got = make_replica(o, &o->replicas[0], true, e);
    for (size_t i = 0; i < s->n_params && got == 0; i++) {
        if (!follows(s->t[i].p) && !(o->momenta[i] = zeros(count(o, i), e))) got = -1;
    }
    if (got == 0) llm_outer_spread(o);
    return got;
}

static void free_all(float **x, size_t n)
{
    for (size_t i = 0; x && i < n; i++) free(x[i]);
    free(x);
}

void llm_outer_release(struct llm_outer *o)
{
    const size_t n = o->share ? o->share->n_params : 0;
    for (int64_t k = 0; o->replicas && k < own(o); k++) {
        free_all(o->replicas[k].master, n);
        free_all(o->replicas[k].m, n);
        free_all(o->replicas[k].v, n);
    }
    free(o->replicas);
    free(o->weights);
    free_all(o->momenta, n);
    *o = (struct llm_outer){.share = NULL};
}

static void put(struct llm_trainable *t, float *master, float *m, float *v)
{
    t->p->weight.data = t->p->master = master;
    t->m = m;
    t->v = v;
    llm_weight_changed(&t->p->weight);
}

void llm_outer_enter(struct llm_outer *o, int64_t replica)
{
    const struct llm_replica *r = llm_outer_replica(o, replica);
    for (size_t i = 0; i < o->share->n_params; i++) put(&o->share->t[i], r->master[i], r->m[i], r->v[i]);
    llm_model_changed(o->model);
}

void llm_outer_leave(struct llm_outer *o)
{
    for (size_t i = 0; i < o->share->n_params; i++) put(&o->share->t[i], o->weights[i], NULL, NULL);
    llm_model_changed(o->model);
}

void llm_outer_spread(struct llm_outer *o)
{
    for (int64_t k = 0; k < own(o); k++) {
        for (size_t i = 0; i < o->share->n_params; i++) memcpy(o->replicas[k].master[i], o->weights[i], count(o, i) * sizeof(float));
    }
}

/* Gradients become the sum of the distances that the replicas have gone. */
static int sum_distances(struct llm_outer *o, struct llm_err *e)
{
    struct llm_share *s = o->share;
    for (int64_t k = s->run.first; k < s->run.end; k++) {
        const struct llm_replica *r = llm_outer_replica(o, k);
        for (size_t i = 0; i < s->n_params; i++) {
            memcpy(s->t[i].p->grad, o->weights[i], count(o, i) * sizeof(float));
            llm_combine(s->t[i].p->grad, r->master[i], 1, -1, count(o, i));
        }
        if (llm_share_end(s, k, -1, e) < 0) return -1;
    }
    return llm_share_finish(s, e) < 0 ? -1 : llm_share_gather(s, e);
}

int llm_outer_step(struct llm_outer *o, struct llm_err *e)
{
    LLM_PROFILE("outer optimizer", 0);
    const struct llm_optim *sgd = llm_optim_find("sgd");
    if (sum_distances(o, e) < 0) return -1;
    for (size_t i = 0; i < o->share->n_params; i++) {
        const struct llm_param *p = o->share->t[i].p;
        const struct llm_optim_span span = {.master = o->weights[i], .grad = p->grad, .m = o->momenta[i], .n = count(o, i)};
        const struct llm_optim_step step = {.lr = follows(p) ? 1 : o->lr, .clip = 1 / (double)o->n, .momentum = o->momentum, .nesterov = true,
                                            .clear = true};
        llm_optim_update(sgd->update, &span, &step);
    }
    llm_outer_leave(o);
    llm_outer_spread(o);
    return 0;
}

static uint64_t hash_of(const struct llm_outer *o, float *const *x)
{
    uint64_t h = 0;
    for (size_t i = 0; i < o->share->n_params; i++) h = llm_xxh64(x[i], count(o, i) * sizeof(float), h);
    return h;
}

int llm_outer_hash(const struct llm_outer *o, uint64_t *hashes, struct llm_err *e)
{
    hashes[0] = hash_of(o, o->weights);
    for (int64_t k = o->share->run.first; k < o->share->run.end; k++) hashes[1 + k] = hash_of(o, llm_outer_replica(o, k)->master);
    return llm_share_rows(o->share, hashes + 1, o->n, sizeof *hashes, e);
}
