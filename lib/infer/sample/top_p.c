/* Top-p, nucleus sampling (Holtzman et al. 2020): the smallest set of most likely tokens whose probabilities add up to at least p. */
#include <math.h>
#include "infer/sample/steps.h"

static bool active(const struct llm_sampling *p)
{
    return p->top_p < 1;
}

/* As filter, of candidates that are all sorted: each exponential is computed once. */
static void filter_sorted(const struct llm_sampling *p, struct llm_candidates *c)
{
    double max = c->v[0].logit, all = 0, sum = 0;
    for (size_t i = 0; i < c->n; i++) all += c->scratch[i] = exp(c->v[i].logit - max);
    const double wanted = p->top_p * all;
    size_t i = 0;
    while (i < c->n && (sum += c->scratch[i]) < wanted) i++;
    if (i < c->n) c->n = c->sorted = i + 1;
}

static void filter(const struct llm_sampling *p, struct llm_candidates *c)
{
    if (c->sorted == c->n) {
        filter_sorted(p, c);
        return;
    }
    double max = llm_candidates_max(c), wanted = p->top_p * llm_candidates_mass(c), sum = 0;
    for (size_t i = 0; i < c->n; i++) {
        /* The nucleus is small as a rule: sort so far, and eight times farther when that was not enough. */
        if (i >= c->sorted) llm_candidates_sort(c, i < 8 ? 64 : i * 8);
        sum += exp(c->v[i].logit - max);
        if (sum >= wanted) {
            c->n = i + 1;
            if (c->sorted > c->n) c->sorted = c->n;
            return;
        }
    }
}

const struct llm_sample_step llm_sample_top_p = {.name = "top-p", .active = active, .filter = filter};
