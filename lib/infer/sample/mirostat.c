/* Mirostat (Basu et al. 2021), versions 1 and 2: tokens more surprising than mu are removed, and mu follows the surprise of the tokens that were
 * chosen, so that it stays near the target, in bits. As in llama.cpp it acts in place of the other filters, after the temperature. */
#include <math.h>
#include "infer/sample/steps.h"

enum { ZIPF = 100 }; /* tokens from which version 1 estimates the exponent of Zipf's law */

static bool active(const struct llm_sampling *p)
{
    return p->mirostat > 0;
}

/* Version 1: how many tokens have a mean surprise of mu if probabilities follow Zipf's law. */
static double zipf_k(struct llm_candidates *c, double mu)
{
    size_t m = c->n < ZIPF ? c->n : ZIPF;
    double numerator = 0, denominator = 0;
    llm_candidates_sort(c, m);
    for (size_t i = 0; i + 1 < m; i++) {
        double t = log((double)(i + 2) / (double)(i + 1)), b = (double)c->v[i].logit - c->v[i + 1].logit;
        numerator += t * b;
        denominator += t * t;
    }
    double s = denominator > 0 ? numerator / denominator : 1, rest = s - 1;
    double ratio = rest != 0 ? rest / (1 - pow((double)c->vocab, -rest)) : 1 / log((double)c->vocab); /* its limit */
    return pow(ratio * exp2(mu), 1 / s);
}

static void filter(const struct llm_sampling *p, struct llm_candidates *c)
{
    if (!c->state->begun) c->state->mu = 2 * p->mirostat_ent;
    c->state->begun = true;
    if (p->mirostat == 1) {
        double k = zipf_k(c, c->state->mu);
        size_t keep = k >= 1 && k < (double)c->n ? (size_t)k : k >= (double)c->n ? c->n : 1;
        llm_candidates_sort(c, keep);
        c->n = keep;
        if (c->sorted > keep) c->sorted = keep;
        return;
    }
    double max = llm_candidates_max(c), floor = max + log(llm_candidates_mass(c)) - c->state->mu * M_LN2;
    llm_candidates_floor(c, floor < max ? floor : max);
}

static void chosen(const struct llm_sampling *p, struct llm_candidates *c, struct llm_candidate token)
{
    double surprise = (log(llm_candidates_mass(c)) + llm_candidates_max(c) - token.logit) / M_LN2;
    c->state->mu -= p->mirostat_lr * (surprise - p->mirostat_ent);
}

const struct llm_sample_step llm_sample_mirostat = {.name = "mirostat", .active = active, .filter = filter, .chosen = chosen, .needs_all = true,
                                                    .alone = true};
