/* Top-k (Fan et al. 2018): the k most likely; of equals the lower ids. */
#include "infer/sample/steps.h"

static bool active(const struct llm_sampling *p)
{
    return p->top_k > 0;
}

static void filter(const struct llm_sampling *p, struct llm_candidates *c)
{
    if ((uint64_t)p->top_k >= c->n) return;
    llm_candidates_sort(c, (size_t)p->top_k);
    c->n = (size_t)p->top_k;
}

const struct llm_sample_step llm_sample_top_k = {.name = "top-k", .active = active, .filter = filter};
