/* Min-p (Nguyen et al. 2024): tokens at least min_p times as likely as the most likely one. */
#include <math.h>
#include "infer/sample/steps.h"

static bool active(const struct llm_sampling *p)
{
    return p->min_p > 0;
}

static void filter(const struct llm_sampling *p, struct llm_candidates *c)
{
    double floor = llm_candidates_max(c) + log(p->min_p);
    size_t kept = 0, sorted = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (c->v[i].logit < floor) continue;
        if (i < c->sorted) sorted++;
        c->v[kept++] = c->v[i];
    }
    c->n = kept;
    c->sorted = sorted;
}

const struct llm_sample_step llm_sample_min_p = {"min-p", active, NULL, filter};
