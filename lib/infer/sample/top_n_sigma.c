/* Top-n-sigma (Tang et al. 2024): tokens whose logits are at most n standard deviations below the largest. */
#include <math.h>
#include "infer/sample/steps.h"

static bool active(const struct llm_sampling *p)
{
    return p->top_n_sigma > 0;
}

static void filter(const struct llm_sampling *p, struct llm_candidates *c)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < c->n; i++) sum += c->v[i].logit;
    const double mean = sum / (double)c->n;
    for (size_t i = 0; i < c->n; i++) squares += (c->v[i].logit - mean) * (c->v[i].logit - mean);
    llm_candidates_floor(c, llm_candidates_max(c) - p->top_n_sigma * sqrt(squares / (double)c->n));
}

const struct llm_sample_step llm_sample_top_n_sigma = {.name = "top-n-sigma", .active = active, .filter = filter, .needs_all = true};
