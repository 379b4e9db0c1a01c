/* Counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011). A draw is a pure function of key and counter, so
 * it does not depend on threads, ranks, batch or order. The layout of key and counter is part of the canonical order:
 *   key     = seed (64 bits) mixed with the step (64 bits)
 *   counter = (channel / 4, position, site << 24 | layer, row). */
#ifndef LLM_BASE_RNG_H
#define LLM_BASE_RNG_H

#include <stdint.h>

/* What a number is drawn for; each use has its own site so that no two share a stream. */
enum llm_rng_site {
    LLM_RNG_INIT = 1, LLM_RNG_ORDER, LLM_RNG_DROPOUT_EMBED, LLM_RNG_DROPOUT_ATTN, LLM_RNG_DROPOUT_RESID,
    LLM_RNG_SAMPLE, LLM_RNG_TEST, LLM_RNG_GENERATE, LLM_RNG_DROPOUT_FFN, LLM_RNG_ROUTER, LLM_RNG_MASK, LLM_RNG_DROPOUT_CROSS,
    LLM_RNG_PREFIX, LLM_RNG_FIM, LLM_RNG_DROPOUT_CLASSES, LLM_RNG_DROPOUT_ADAPTER, LLM_RNG_VALUE, LLM_RNG_DICTIONARY, LLM_RNG_ROTATION,
    LLM_RNG_XTC, LLM_RNG_ACCEPT, LLM_RNG_RESIDUAL, LLM_RNG_AUGMENT,
};

/* One block of the generator: out = Philox4x32-10(counter, key). Matches Random123's known answers. */
void llm_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* A stream: numbers for one (seed, step, site, layer, row, position); channel picks within it. */
struct llm_rng {
    uint32_t key[2], counter[3]; /* counter[0] is channel / 4 and is filled when drawn */
};
struct llm_rng llm_rng_at(uint64_t seed, uint64_t step, enum llm_rng_site site, uint32_t layer, uint32_t row,
                          uint32_t position);
/* A stream of an item of data (by its number or a hash), whose key is mixed from seed, step and item; no layer. */
struct llm_rng llm_rng_of_item(uint64_t seed, uint64_t step, uint64_t item, enum llm_rng_site site, uint32_t row, uint32_t position);
uint32_t llm_rng_u32(const struct llm_rng *r, uint32_t channel);
/* Uniform in [0, 1), 24 bits, exact in float. */
float llm_rng_uniform(const struct llm_rng *r, uint32_t channel);
/* Uniform in [0, 1), 53 bits. */
double llm_rng_uniform64(const struct llm_rng *r, uint32_t channel);
/* Standard normal by Box-Muller from channels 2c and 2c+1. */
float llm_rng_normal(const struct llm_rng *r, uint32_t channel);
/* Uniform integer below n > 0, without bias (Lemire's multiply-shift on 64 bits). */
uint64_t llm_rng_below(const struct llm_rng *r, uint32_t channel, uint64_t n);

#endif
