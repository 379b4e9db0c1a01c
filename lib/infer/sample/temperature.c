/* Temperature: softmax(logits / T). The largest is subtracted first, so that a tiny T does not overflow. */
#include "infer/sample/steps.h"

static bool active(const struct llm_sampling *p)
{
    return p->temperature > 0 && p->temperature != 1;
}

static void filter(const struct llm_sampling *p, struct llm_candidates *c)
{
    double max = llm_candidates_max(c);
    for (size_t i = 0; i < c->n; i++) c->v[i].logit = (float)((c->v[i].logit - max) / p->temperature);
    c->sorted = 0;
}

const struct llm_sample_step llm_sample_temperature = {"temperature", active, NULL, filter};
