/* Gumbel-max: a token has the largest logit + Gumbel noise with the probability that softmax gives it (Maddison et al. 2014). The noise of a token is
 * a function of (seed, policy step, prompt, sample, position, token) alone. The choice therefore depends neither on the candidates' order nor on
 * tokens that were filtered out, and a drafted token that is equal to the choice was chosen by the same noise. */
#ifndef LLM_INFER_SAMPLE_DRAW_H
#define LLM_INFER_SAMPLE_DRAW_H

#include <stddef.h>
#include "base/rng.h"

/* A race of candidates. */
struct llm_draw {
    struct llm_rng rng;
    double best;       /* the largest logit + noise so far; -infinity before the first */
    int32_t id;        /* its token; of equals the lowest */
};
struct llm_draw llm_draw_begin(uint64_t seed, uint64_t policy_step, uint64_t prompt, uint32_t sample, uint32_t position);
/* The `prompt` of a prompt with this id, as compact JSON: a hash. */
uint64_t llm_draw_prompt(const char *id, size_t n);
/* A candidate enters with its logit after temperature, in any order. -infinity never wins. */
void llm_draw_enter(struct llm_draw *d, int32_t id, double logit);
/* Tokens [first, first + n), first a multiple of LLM_MAX_BLOCK and n at most LLM_MAX_BLOCK, enter with their logits after temperature. `max`: the
 * largest of the logits. */
void llm_draw_enter_block(struct llm_draw *d, int32_t first, const float *logits, size_t n, double max);

#endif
