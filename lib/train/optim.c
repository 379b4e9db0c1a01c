/* The table of optimizers, and what is the same for all of them. */
#include "train/optim.h"

#include <math.h>
#include <string.h>
#include "cpu/pool.h"

#define BLOCK (64 << 10) /* elements: the unit of sums and of work */

extern const struct llm_optim llm_optim_adamw, llm_optim_adam, llm_optim_sgd, llm_optim_adagrad;
const struct llm_optim *const llm_optims[] = {&llm_optim_adamw, &llm_optim_adam, &llm_optim_sgd, &llm_optim_adagrad, NULL};

const struct llm_optim *llm_optim_find(const char *name)
{
    for (size_t i = 0; llm_optims[i]; i++) {
        if (strcmp(llm_optims[i]->name, name) == 0) return llm_optims[i];
    }
    return NULL;
}

static size_t blocks_of(const struct llm_param *p)
{
    return ((size_t)llm_param_count(p) + BLOCK - 1) / BLOCK;
}

static size_t block_size(const struct llm_param *p, size_t i)
{
    size_t n = (size_t)llm_param_count(p) - i * BLOCK;
    return n < BLOCK ? n : BLOCK;
}

enum { BATCH = 256 }; /* blocks whose sums are made at a time */
struct norm_work {
    const struct llm_param *p;
    size_t first;
    double sums[BATCH];
};

static void norm_piece(void *arg, size_t i, int thread)
{
    struct norm_work *w = arg;
    size_t at = (w->first + i) * BLOCK, n = block_size(w->p, w->first + i);
    (void)thread;
    if (w->p->grad_lookup) {
        llm_k.elementwise.add(w->p->grad + at, w->p->grad + at, w->p->grad_lookup + at, n);
        memset(w->p->grad_lookup + at, 0, n * sizeof(float));
    }
    w->sums[i] = llm_k.optim.sum_squares(w->p->grad + at, n);
}

double llm_optim_grad_norm(struct llm_trainable *t, size_t n, const struct llm_param **bad)
{
    double sum = 0;
    *bad = NULL;
    for (size_t k = 0; k < n; k++) {
        struct norm_work w = {.p = t[k].p};
        size_t blocks = blocks_of(w.p);
        double mine = 0;
        for (; w.first < blocks; w.first += BATCH) {
            size_t now = blocks - w.first < BATCH ? blocks - w.first : BATCH;
            llm_parallel(now, norm_piece, &w);
            for (size_t i = 0; i < now; i++) mine += w.sums[i];
        }
        if (!isfinite(mine) && !*bad) *bad = t[k].p;
        sum += mine;
    }
    return sqrt(sum);
}

struct update_work {
    const struct llm_optim *optim;
    const struct llm_trainable *t;
    struct llm_optim_step step;
};

static void update_piece(void *arg, size_t i, int thread)
{
    const struct update_work *w = arg;
    const struct llm_trainable *t = w->t;
    size_t at = i * BLOCK;
    (void)thread;
    struct llm_optim_span s = {.master = t->p->master + at, .grad = t->p->grad + at, .m = t->m ? t->m + at : NULL, .v = t->v ? t->v + at : NULL,
                               .n = block_size(t->p, i)};
    if (t->p->weight.dtype == LLM_BF16) s.bf16 = (uint16_t *)t->p->weight.data + at;
    w->optim->update(&s, &w->step);
}

void llm_optim_update(const struct llm_optim *o, struct llm_trainable *t, size_t n, const struct llm_optim_step *step)
{
    for (size_t k = 0; k < n; k++) {
        struct update_work w = {o, &t[k], *step};
        w.step.clear = true;
        if (!t[k].p->decay) w.step.weight_decay = 0;
        llm_parallel(blocks_of(t[k].p), update_piece, &w);
        llm_weight_changed(&t[k].p->weight);
    }
}
