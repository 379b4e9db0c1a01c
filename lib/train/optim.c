/* The table of optimizers, and what is the same for all of them. */
#include "train/optim.h"

#include <math.h>
#include <string.h>
#include "cpu/optim.h"
#include "cpu/pool.h"
#include "cpu/profile.h"

#define OPTIMIZERS(X) \
    X(adamw) \
    X(adam) \
    X(sgd) \
    X(adagrad) \
    X(lion) \
    X(muon)

#define DECLARED(name) extern const struct llm_optim llm_optim_##name;
OPTIMIZERS(DECLARED)
#define LISTED(name) &llm_optim_##name,
const struct llm_optim *const llm_optims[] = {OPTIMIZERS(LISTED) NULL};

const struct llm_optim *llm_optim_find(const char *name)
{
    for (size_t i = 0; llm_optims[i]; i++) {
        if (strcmp(llm_optims[i]->name, name) == 0) return llm_optims[i];
    }
    return NULL;
}

const struct llm_optim *llm_optim_of(const struct llm_optim *o, const struct llm_param *p)
{
    return o->others && p->role != LLM_ROLE_HIDDEN ? llm_optim_find(o->others) : o;
}

size_t llm_optim_work(const struct llm_optim *o, const struct llm_param *p)
{
    if (!o->update_matrix) return 0;
    size_t rows = (size_t)p->shape[0], cols = (size_t)p->shape[1], least = rows < cols ? rows : cols;
    return 2 * rows * cols + 2 * least * least;
}

static void join(float *grad, float *more, size_t n)
{
    llm_k.elementwise.add(grad, grad, more, n);
    memset(more, 0, n * sizeof *more);
}

/* Elements [from, to), of rows of which few were looked up. */
static void join_rows(const struct llm_param *p, size_t from, size_t to)
{
    size_t cols = (size_t)(llm_param_count(p) / p->shape[0]);
    for (size_t row = from / cols; row * cols < to; row++) {
        size_t first = row * cols > from ? row * cols : from, end = (row + 1) * cols < to ? (row + 1) * cols : to;
        size_t place = (size_t)p->lookup_place[row];
        if (p->lookup_place[row] >= 0) join(p->grad + first, p->grad_lookup + place * cols + (first - row * cols), end - first);
    }
}

/* grad += those of other uses, which become zero. */
static void join_block(void *arg, size_t i, int thread)
{
    const struct llm_param *p = arg;
    size_t at = i * LLM_OPTIM_BLOCK, left = (size_t)llm_param_count(p) - at, n = left < LLM_OPTIM_BLOCK ? left : LLM_OPTIM_BLOCK;
    (void)thread;
    if (p->grad_lookup && p->lookup_place) join_rows(p, at, at + n);
    else if (p->grad_lookup) join(p->grad + at, p->grad_lookup + at, n);
    for (int u = 0; u < p->n_grad_uses; u++) {
        if (p->grad_use[u]) join(p->grad + at, p->grad_use[u] + at, n);
    }
}

void llm_grad_join(struct llm_param *p)
{
    if (!p->grad_lookup && p->n_grad_uses == 0) return;
    LLM_PROFILE("gradient norm", 4 * (double)llm_param_count(p));
    llm_parallel(((size_t)llm_param_count(p) + LLM_OPTIM_BLOCK - 1) / LLM_OPTIM_BLOCK, join_block, p);
    llm_lookups_forget(p);
}

static void clear_block(void *arg, size_t i, int thread)
{
    const struct llm_trainable *t = arg;
    const size_t at = i * LLM_OPTIM_BLOCK, left = llm_trainable_own(t) - at, n = left < LLM_OPTIM_BLOCK ? left : LLM_OPTIM_BLOCK;
    float *grad = llm_trainable_grad(t);
    const float *master = llm_trainable_master(t);
    (void)thread;
    for (size_t j = at; j < at + n; j++) grad[j] = master[j] == 0 ? 0 : grad[j];
}

void llm_grad_keep_zeros(struct llm_trainable *t, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct llm_param *p = t[i].p;
        if (p->n_dims < 2 || p->role != LLM_ROLE_HIDDEN || p->balances || p->running) continue;
        LLM_PROFILE("gradient norm", 8 * (double)llm_trainable_own(&t[i]));
        llm_parallel((llm_trainable_own(&t[i]) + LLM_OPTIM_BLOCK - 1) / LLM_OPTIM_BLOCK, clear_block, &t[i]);
    }
}

double llm_grad_norm(struct llm_trainable *t, size_t n, const struct llm_param **bad)
{
    double sum = 0;
    *bad = NULL;
    for (size_t i = 0; i < n; i++) {
        struct llm_param *p = t[i].p;
        size_t count = (size_t)llm_param_count(p);
        if (p->balances || p->running) continue; /* counts and statistics, no gradient */
        LLM_PROFILE("gradient norm", 4 * (double)count);
        double mine = llm_sum_squares(p->grad, count);
        if (!isfinite(mine) && !*bad) *bad = p;
        sum += mine;
    }
    return sqrt(sum);
}

/* b += rate·sign(mean load - load): Wang et al. 2024, "Auxiliary-loss-free load balancing". */
static void balance(struct llm_param *p)
{
    int64_t n = llm_param_count(p);
    double mean = 0;
    for (int64_t i = 0; i < n; i++) mean += (double)p->grad[i] / (double)n;
    for (int64_t i = 0; i < n; i++) {
        double gap = mean - (double)p->grad[i];
        p->master[i] += gap > 0 ? p->balance_rate : gap < 0 ? -p->balance_rate : 0;
        p->grad[i] = 0;
    }
    llm_weight_changed(&p->weight);
}

/* Running statistics, as torch.nn.BatchNorm1d's: a tenth of the way to the mean of those of the step's passes. */
static void follow(struct llm_param *p, int64_t passes)
{
    size_t n = (size_t)llm_param_count(p);
    llm_combine(p->master, p->grad, .9, .1 / (double)passes, n);
    memset(p->grad, 0, n * sizeof(float));
    llm_weight_changed(&p->weight);
}

size_t llm_trainable_own(const struct llm_trainable *t)
{
    return t->partly ? t->own_n : (size_t)llm_param_count(t->p);
}

float *llm_trainable_grad(const struct llm_trainable *t)
{
    return t->own_grad ? t->own_grad : t->p->grad + (t->partly ? t->own_from : 0);
}

float *llm_trainable_master(const struct llm_trainable *t)
{
    return t->own_master ? t->own_master : t->p->master + (t->partly ? t->own_from : 0);
}

static int update(struct llm_trainable *t, const struct llm_update *u, struct llm_err *e)
{
    struct llm_param *p = t->p;
    struct llm_update mine = *u;
    struct llm_optim_span s = {.master = llm_trainable_master(t), .grad = llm_trainable_grad(t), .m = t->m, .v = t->v, .n = llm_trainable_own(t)};
    LLM_PROFILE("optimizer", 4 * (double)s.n * (4 + 2 * (t->m != NULL) + 2 * (t->v != NULL)));
    mine.step.clear = true;
    if (!p->decay) mine.step.weight_decay = 0;
    if (t->lr_scale > 0) {
        mine.step.lr *= t->lr_scale;
        mine.matrix_lr *= t->lr_scale;
        mine.step.weight_decay /= t->lr_scale;
    }
    if (t->optim->update_matrix && t->optim->update_matrix(t, &mine, e) < 0) return -1;
    if (t->optim->update) llm_optim_update(t->optim->update, &s, &mine.step);
    llm_weight_changed(&p->weight);
    return 0;
}

/* A parameter of which this rank updates all elements: what looks at all of it finds them in the parameter's memory. */
static int update_whole(struct llm_trainable *t, const struct llm_update *u, struct llm_err *e)
{
    struct llm_param *p = t->p;
    float *const grad = p->grad, *const master = p->master;
    int got = 0;
    if (t->own_grad) p->grad = t->own_grad;
    if (t->own_master) p->master = t->own_master;
    if (p->balances) balance(p);
    else if (p->running) follow(p, u->passes > 0 ? u->passes : 1);
    else got = update(t, u, e);
    p->grad = grad;
    p->master = master;
    return got;
}

int llm_params_update(struct llm_trainable *t, size_t n, const struct llm_update *u, struct llm_err *e)
{
    for (size_t i = 0; i < n; i++) {
        const size_t own = llm_trainable_own(&t[i]), count = (size_t)llm_param_count(t[i].p);
        if (own == count && update_whole(&t[i], u, e) < 0) return -1;
        if (own > 0 && own < count && update(&t[i], u, e) < 0) return -1;
        if (own < count && !t[i].pooled && t[i].p->grad) { /* the gradient of what other ranks update */
            memset(t[i].p->grad, 0, (own > 0 ? t[i].own_from : count) * sizeof(float));
            if (own > 0) memset(t[i].p->grad + t[i].own_from + own, 0, (count - t[i].own_from - own) * sizeof(float));
        }
        if (t[i].ema && !t[i].partly) llm_combine(t[i].ema, t[i].p->master, u->ema, 1 - u->ema, count);
    }
    return 0;
}

void llm_params_average(struct llm_trainable *t, size_t n, double ema)
{
    for (size_t i = 0; i < n; i++) {
        if (t[i].ema && t[i].partly) llm_combine(t[i].ema, t[i].p->master, ema, 1 - ema, (size_t)llm_param_count(t[i].p));
    }
}
