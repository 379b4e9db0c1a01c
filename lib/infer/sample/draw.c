#include "infer/sample/draw.h"

#include <math.h>
#include "base/hash.h"
#include "cpu/kernels.h"

/* More than the noise of any of the 2^32 uniform numbers: -log(-log(1 - 2^-33)) = 22.88. */
#define MAX_NOISE 23

struct llm_draw llm_draw_begin(uint64_t seed, uint64_t policy_step, uint64_t prompt, uint32_t sample, uint32_t position)
{
    return (struct llm_draw){.rng = llm_rng_of_item(seed, policy_step, prompt, LLM_RNG_SAMPLE, sample, position), .best = -INFINITY, .id = -1};
}

uint64_t llm_draw_prompt(const char *id, size_t n)
{
    return llm_xxh64(id, n, 0);
}

/* An upper bound of the noise of x without a logarithm. With u = (x + 1/2) / 2^32 the noise -log(-log u) is at most -log(1 - u), because
 * -log u ≥ 1 - u; and 1 - u is more than 2^-(leading zeros of ~x + 1). */
static double noise_bound(uint32_t x)
{
    uint32_t left = ~x;
    return .6931471805599454 * (left ? __builtin_clz(left) + 1 : 33);
}

/* `x`: the token's random number. */
static inline void enter(struct llm_draw *d, int32_t id, double logit, uint32_t x)
{
    if (logit + noise_bound(x) < d->best) return;
    double score = logit - log(-log(((double)x + .5) * 0x1p-32));
    if (score < d->best || (score == d->best && id > d->id) || logit == -INFINITY) return;
    d->best = score;
    d->id = id;
}

void llm_draw_enter(struct llm_draw *d, int32_t id, double logit)
{
    if (logit + MAX_NOISE < d->best || logit == -INFINITY) return;
    enter(d, id, logit, llm_rng_u32(&d->rng, (uint32_t)id));
}

void llm_draw_enter_block(struct llm_draw *d, int32_t first, const float *logits, size_t n, double max)
{
    uint32_t bits[LLM_MAX_BLOCK];
    if (max + MAX_NOISE < d->best || max == -INFINITY) return;
    uint32_t largest = llm_k.rows.random_block(bits, (uint32_t)first, d->rng.key, d->rng.counter);
    if (max + noise_bound(largest) < d->best) return;
    for (size_t i = 0; i < n; i++) enter(d, first + (int32_t)i, (double)logits[i], bits[i]);
}
