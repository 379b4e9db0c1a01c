/* Adaptive-p (llama.cpp): logits are formed anew so that tokens whose probability is near a target are the likely ones. The target moves against the
 * running mean of the probabilities of the tokens that were chosen, so that their mean comes to the target that was asked for. */
#include <math.h>
#include "infer/sample/steps.h"

/* The form of the peak around the target, as llama.cpp has it. */
#define WIDTH 0.3
#define PEAK 5.0
#define SHARPNESS 10.0

static bool active(const struct llm_sampling *p)
{
    return p->adaptive_target > 0;
}

static void filter(const struct llm_sampling *p, struct llm_candidates *c)
{
    struct llm_sample_state *s = c->state;
    if (!s->begun) { /* as if the target had always been met */
        s->weighted = p->adaptive_target / (1 - p->adaptive_decay);
        s->weight = 1 / (1 - p->adaptive_decay);
    }
    s->begun = true;
    const double target = fmin(fmax(2 * p->adaptive_target - s->weighted / s->weight, 0), 1);
    const double max = llm_candidates_max(c), mass = llm_candidates_mass(c);
    for (size_t i = 0; i < c->n; i++) {
        double probability = exp(c->v[i].logit - max) / mass, distance = fabs(probability - target) / WIDTH;
        c->scratch[c->v[i].id] = probability;
        c->v[i].logit = (float)(PEAK - SHARPNESS * distance * distance / (1 + distance));
    }
    c->sorted = 0;
}

static void chosen(const struct llm_sampling *p, struct llm_candidates *c, struct llm_candidate token)
{
    c->state->weighted = c->scratch[token.id] + p->adaptive_decay * c->state->weighted;
    c->state->weight = 1 + p->adaptive_decay * c->state->weight;
}

const struct llm_sample_step llm_sample_adaptive_p = {.name = "adaptive-p", .active = active, .filter = filter, .chosen = chosen};
