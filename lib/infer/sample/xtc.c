/* XTC, "exclude top choices" (p-e-w 2024, as llama.cpp has it): with a probability, all tokens of at least the threshold but the least likely of them
 * are removed. */
#include <math.h>
#include "base/rng.h"
#include "infer/sample/steps.h"

static bool active(const struct llm_sampling *p)
{
    return p->xtc_probability > 0 && p->xtc_threshold <= .5; /* above one half only one token can reach it */
}

static void filter(const struct llm_sampling *p, struct llm_candidates *c)
{
    struct llm_rng rng = llm_rng_of_item(p->seed, p->policy_step, p->prompt, LLM_RNG_XTC, c->sample, c->position);
    if (llm_rng_uniform64(&rng, 0) >= p->xtc_probability) return;
    double max = llm_candidates_max(c), floor = max + log(p->xtc_threshold * llm_candidates_mass(c));
    size_t last = c->n; /* the least likely of those that reach the threshold; of equals the highest id */
    for (size_t i = 0; i < c->n; i++) {
        if (c->v[i].logit >= floor && (last == c->n || llm_candidate_before(c->v[last], c->v[i]))) last = i;
    }
    if (last == c->n) return;
    const struct llm_candidate least = c->v[last];
    size_t kept = 0;
    for (size_t i = 0; i < c->n; i++)
        if (!llm_candidate_before(c->v[i], least)) c->v[kept++] = c->v[i];
    c->n = kept;
    c->sorted = 0;
}

const struct llm_sample_step llm_sample_xtc = {.name = "xtc", .active = active, .filter = filter};
