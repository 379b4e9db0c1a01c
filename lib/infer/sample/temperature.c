/* Temperature: softmax(logits / T). The largest is subtracted first, so that a tiny T does not overflow. With a range T depends on how uncertain the
 * model is (dynamic temperature, as llama.cpp has it): from T - range where it is certain to T + range where all tokens are as likely. */
#include <math.h>
#include "infer/sample/steps.h"

static bool active(const struct llm_sampling *p)
{
    return p->temperature > 0 && (p->temperature != 1 || p->dynatemp_range > 0);
}

/* The temperature for these candidates. */
static double dynamic(const struct llm_sampling *p, const struct llm_candidates *c)
{
    double low = fmax(0, p->temperature - p->dynatemp_range), high = p->temperature + p->dynatemp_range, entropy = 0;
    double max = llm_candidates_max(c), log_mass = log(llm_candidates_mass(c));
    if (c->n < 2) return p->temperature;
    for (size_t i = 0; i < c->n; i++) {
        double log_p = c->v[i].logit - max - log_mass;
        entropy -= exp(log_p) * log_p;
    }
    double share = fmin(fmax(entropy / log((double)c->n), 0), 1);
    return low + (high - low) * pow(share, p->dynatemp_exp);
}

static void filter(const struct llm_sampling *p, struct llm_candidates *c)
{
    double max = llm_candidates_max(c), t = p->dynatemp_range > 0 ? dynamic(p, c) : p->temperature;
    if (t == 0) { /* the most likely alone; of equals the lowest id */
        llm_candidates_sort(c, 1);
        c->n = c->sorted = 1;
        t = 1;
    }
    for (size_t i = 0; i < c->n; i++) c->v[i].logit = (float)((c->v[i].logit - max) / t);
    c->sorted = 0;
}

const struct llm_sample_step llm_sample_temperature = {.name = "temperature", .active = active, .filter = filter};
