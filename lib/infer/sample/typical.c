/* Locally typical sampling (Meister et al. 2022): the tokens whose surprise -log p lies nearest to the entropy, as few as add up to at least the
 * given probability; of equally near ones the lower id. */
#include <math.h>
#include "infer/sample/steps.h"

static bool active(const struct llm_sampling *p)
{
    return p->typical < 1;
}

static void filter(const struct llm_sampling *p, struct llm_candidates *c)
{
    double log_sum = llm_candidates_max(c) + log(llm_candidates_mass(c)), entropy = 0, sum = 0;
    for (size_t i = 0; i < c->n; i++) {
        double log_p = c->v[i].logit - log_sum;
        entropy -= exp(log_p) * log_p;
    }
    for (size_t i = 0; i < c->n; i++) { /* nearness takes the logit's place while sorting */
        c->scratch[c->v[i].id] = c->v[i].logit;
        c->v[i].logit = (float)-fabs(log_sum - c->v[i].logit - entropy);
    }
    c->sorted = 0;
    size_t kept = 0;
    while (kept < c->n && (kept == 0 || sum < p->typical)) {
        if (kept >= c->sorted) llm_candidates_sort(c, kept < 8 ? 64 : kept * 8);
        sum += exp(c->scratch[c->v[kept++].id] - log_sum);
    }
    c->n = kept;
    c->sorted = 0;
    for (size_t i = 0; i < kept; i++) c->v[i].logit = (float)c->scratch[c->v[i].id];
}

const struct llm_sample_step llm_sample_typical = {.name = "typical", .active = active, .filter = filter};
