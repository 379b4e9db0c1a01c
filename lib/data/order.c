#include "data/order.h"

#include <stdbool.h>
#include "base/rng.h"

uint64_t llm_order_windows(const struct llm_order *o)
{
    return (o->n - 1) / (uint64_t)o->context;
}

uint64_t llm_order_stream_windows(const struct llm_order *o)
{
    return (o->n - 1) / o->rows / (uint64_t)o->context;
}

/* A permutation of [0, n) that needs no memory: a Feistel network over the next even power of two, whose rounds are Philox, walked until it
 * falls into the range (Black and Rogaway 2002). */
static uint64_t permuted(uint64_t seed, uint64_t epoch, uint64_t i, uint64_t n)
{
    int half = 1;
    while (half < 31 && (uint64_t)1 << (2 * half) < n) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint32_t round = 0; round < 6; round++) {
            struct llm_rng r = llm_rng_at(seed, epoch, LLM_RNG_ORDER, 1 + round, (uint32_t)(right >> 32), (uint32_t)right);
            uint64_t next = left ^ (llm_rng_u32(&r, 0) & mask);
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

uint64_t llm_order_at(const struct llm_order *o, uint64_t sample)
{
    uint64_t context = (uint64_t)o->context, windows = llm_order_windows(o);
    if (o->kind == LLM_ORDER_STREAMS) {
        uint64_t each = llm_order_stream_windows(o);
        return o->first + (sample % o->rows * each + sample / o->rows % each) * context;
    }
    if (o->kind == LLM_ORDER_SEQUENTIAL) return o->first + sample % windows * context;
    if (o->kind == LLM_ORDER_RANDOM) {
        struct llm_rng r = llm_rng_at(o->seed, 0, LLM_RNG_ORDER, 0, (uint32_t)(sample >> 32), (uint32_t)sample);
        return o->first + llm_rng_below(&r, 0, o->n - context);
    }
    uint64_t epoch = sample / windows, slack = o->n - 1 - windows * context;
    struct llm_rng r = llm_rng_at(o->seed, epoch, LLM_RNG_ORDER, 0, 0, 0);
    uint64_t offset = llm_rng_below(&r, 0, slack + 1);
    return o->first + offset + permuted(o->seed, epoch, sample % windows, windows) * context;
}
