#include "base/rng.h"

#include <math.h>

/* Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3 (SC 2011), Philox-4x32 with 10 rounds. */
void llm_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53 * c0, b = (uint64_t)0xCD9E8D57 * c2;
        uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* splitmix64's finaliser: spreads the step over the key so that neighbouring seeds and steps share nothing. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

struct llm_rng llm_rng_at(uint64_t seed, uint64_t step, enum llm_rng_site site, uint32_t layer, uint32_t row,
                          uint32_t position)
{
    uint64_t key = mix(mix(seed + 0x9E3779B97F4A7C15u) + step);
    return (struct llm_rng){.key = {(uint32_t)key, (uint32_t)(key >> 32)},
                            .counter = {position, (uint32_t)site << 24 | (layer & 0xFFFFFF), row}};
}

struct llm_rng llm_rng_of_item(uint64_t seed, uint64_t step, uint64_t item, enum llm_rng_site site, uint32_t row, uint32_t position)
{
    return llm_rng_at(mix(mix(seed + 0x9E3779B97F4A7C15u) + item), step, site, 0, row, position);
}

uint32_t llm_rng_u32(const struct llm_rng *r, uint32_t channel)
{
    uint32_t counter[4] = {channel / 4, r->counter[0], r->counter[1], r->counter[2]}, out[4];
    llm_philox(counter, r->key, out);
    return out[channel % 4];
}

float llm_rng_uniform(const struct llm_rng *r, uint32_t channel)
{
    return (float)(llm_rng_u32(r, channel) >> 8) * 0x1p-24f;
}

static uint64_t u64(const struct llm_rng *r, uint32_t channel)
{
    return (uint64_t)llm_rng_u32(r, 2 * channel) << 32 | llm_rng_u32(r, 2 * channel + 1);
}

double llm_rng_uniform64(const struct llm_rng *r, uint32_t channel)
{
    return (double)(u64(r, channel) >> 11) * 0x1p-53;
}

float llm_rng_normal(const struct llm_rng *r, uint32_t channel)
{
    double u = ((double)(llm_rng_u32(r, 2 * channel) >> 8) + 1) * 0x1p-24; /* (0, 1]: the logarithm is finite */
    double v = (double)(llm_rng_u32(r, 2 * channel + 1) >> 8) * 0x1p-24;
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

uint64_t llm_rng_below(const struct llm_rng *r, uint32_t channel, uint64_t n)
{
    /* Lemire 2019: the high half of x·n is uniform if the few x that would bias it are rejected and drawn again. The new draws use the top half of
     * the channel space, which callers do not use. */
    uint64_t x = u64(r, channel), threshold = -n % n;
    unsigned __int128 product = (unsigned __int128)x * n;
    for (uint32_t again = 0x40000000; (uint64_t)product < threshold; again++)
        product = (unsigned __int128)u64(r, again + channel) * n;
    return (uint64_t)(product >> 64);
}
