/* The table of optimizers, and what is the same for all of them. */
#include "train/optim.h"

#include <math.h>
#include <string.h>
#include "cpu/optim.h"
#include "cpu/pool.h"

extern const struct llm_optim llm_optim_adamw, llm_optim_adam, llm_optim_sgd, llm_optim_adagrad;
const struct llm_optim *const llm_optims[] = {&llm_optim_adamw, &llm_optim_adam, &llm_optim_sgd, &llm_optim_adagrad, NULL};

const struct llm_optim *llm_optim_find(const char *name)
{
    for (size_t i = 0; llm_optims[i]; i++) {
        if (strcmp(llm_optims[i]->name, name) == 0) return llm_optims[i];
    }
    return NULL;
}

/* grad += the lookup's, which becomes zero. */
static void join_block(void *arg, size_t i, int thread)
{
    const struct llm_param *p = arg;
    size_t at = i * LLM_OPTIM_BLOCK, left = (size_t)llm_param_count(p) - at, n = left < LLM_OPTIM_BLOCK ? left : LLM_OPTIM_BLOCK;
    (void)thread;
    llm_k.elementwise.add(p->grad + at, p->grad + at, p->grad_lookup + at, n);
    memset(p->grad_lookup + at, 0, n * sizeof(float));
}

double llm_grad_norm(struct llm_trainable *t, size_t n, const struct llm_param **bad)
{
    double sum = 0;
    *bad = NULL;
    for (size_t i = 0; i < n; i++) {
        struct llm_param *p = t[i].p;
        size_t count = (size_t)llm_param_count(p);
        if (p->balance_rate != 0) continue; /* counts, no gradient */
        if (p->grad_lookup) llm_parallel((count + LLM_OPTIM_BLOCK - 1) / LLM_OPTIM_BLOCK, join_block, p);
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

void llm_params_update(const struct llm_optim *o, struct llm_trainable *t, size_t n, const struct llm_optim_step *step)
{
    for (size_t i = 0; i < n; i++) {
        struct llm_param *p = t[i].p;
        if (p->balance_rate != 0) {
            balance(p);
            continue;
        }
        struct llm_optim_step mine = *step;
        struct llm_optim_span s = {.master = p->master, .grad = p->grad, .m = t[i].m, .v = t[i].v, .n = (size_t)llm_param_count(p)};
        mine.clear = true;
        if (!p->decay) mine.weight_decay = 0;
        if (p->weight.dtype == LLM_BF16) s.bf16 = (uint16_t *)p->weight.data;
        llm_optim_update(o->update, &s, &mine);
        llm_weight_changed(&p->weight);
    }
}
