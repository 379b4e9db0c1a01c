/* Records of n-grams for counting and building: a key of up to 128 bits, tokens from its top, and a number. */
#ifndef LLM_MODEL_NGRAM_RECORDS_H
#define LLM_MODEL_NGRAM_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

struct llm_ngram_key { uint64_t hi, lo; };
struct llm_ngram_record { struct llm_ngram_key key; uint64_t n; };

static inline bool llm_key_less(struct llm_ngram_key a, struct llm_ngram_key b)
{
    return a.hi < b.hi || (a.hi == b.hi && a.lo < b.lo);
}

static inline bool llm_key_equal(struct llm_ngram_key a, struct llm_ngram_key b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

/* n bits to the right (left), 0 ≤ n ≤ 128. */
static inline struct llm_ngram_key llm_key_right(struct llm_ngram_key k, int n)
{
    if (n >= 128) return (struct llm_ngram_key){0, 0};
    if (n >= 64) return (struct llm_ngram_key){0, k.hi >> (n - 64)};
    if (n == 0) return k;
    return (struct llm_ngram_key){k.hi >> n, k.lo >> n | k.hi << (64 - n)};
}

static inline struct llm_ngram_key llm_key_left(struct llm_ngram_key k, int n)
{
    if (n >= 128) return (struct llm_ngram_key){0, 0};
    if (n >= 64) return (struct llm_ngram_key){k.lo << (n - 64), 0};
    if (n == 0) return k;
    return (struct llm_ngram_key){k.hi << n | k.lo >> (64 - n), k.lo << n};
}

/* The first `n` bits alone. */
static inline struct llm_ngram_key llm_key_first(struct llm_ngram_key k, int n)
{
    if (n <= 0) return (struct llm_ngram_key){0, 0};
    if (n >= 128) return k;
    if (n > 64) return (struct llm_ngram_key){k.hi, k.lo & ~(uint64_t)0 << (128 - n)};
    return (struct llm_ngram_key){k.hi & ~(uint64_t)0 << (64 - n), 0};
}

/* Token i of a key whose tokens have `bits` bits (at most 32) each. */
static inline uint32_t llm_key_token(struct llm_ngram_key k, int i, int bits)
{
    return (uint32_t)(llm_key_left(k, i * bits).hi >> (64 - bits));
}

static inline struct llm_ngram_key llm_key_put(struct llm_ngram_key k, int i, int bits, uint32_t token)
{
    struct llm_ngram_key t = llm_key_right((struct llm_ngram_key){(uint64_t)token << (64 - bits), 0}, i * bits);
    return (struct llm_ngram_key){k.hi | t.hi, k.lo | t.lo};
}

/* Sorts by key, of which `bits` count; `scratch` has room for as many. All threads of the pool; the result does not depend on them when keys that are
 * equal have equal numbers. -1: memory is short. */
int llm_records_sort(struct llm_ngram_record *r, struct llm_ngram_record *scratch, size_t n, int bits, struct llm_err *e) LLM_MUST_CHECK;
/* Merges adjacent records with equal keys into one with the sum of their numbers. Returns the number of records left. */
size_t llm_records_merge(struct llm_ngram_record *r, size_t n);

#endif
