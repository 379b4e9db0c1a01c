/* Adds to the logits of single tokens. */
#include "infer/sample/steps.h"

static bool active(const struct llm_sampling *p)
{
    return p->n_bias > 0;
}

static void edit(const struct llm_sampling *p, const struct llm_history *h, int32_t *scratch, float *logits, size_t n)
{
    (void)h, (void)scratch, (void)n;
    for (size_t i = 0; i < p->n_bias; i++) logits[p->bias[i].id] += p->bias[i].bias;
}

const struct llm_sample_step llm_sample_logit_bias = {.name = "logit-bias", .active = active, .edit = edit};
