/* Q8_0 and Q4_0 of rotated values, for keys of a cache: each 32 neighbours are multiplied by the Hadamard matrix of 32, divided by the root of 32,
 * before they are encoded, and again after they are decoded, which undoes it. Channels of keys differ much in size, and a block's largest value sets
 * the step of all 32; rotated ones are alike. Products with queries need no decoded keys: a rotated query has the same product with a rotated key. */
#include <string.h>
#include "cpu/dtype.h"
#include "cpu/dtype/dtype_internal.h"

enum { BLOCK = 32 };

void llm_dtype_rotate(float *x, size_t n)
{
    for (size_t i = 0; i < n; i += BLOCK, x += BLOCK) {
        for (int step = 1; step < BLOCK; step *= 2) {
            float y[BLOCK];
            for (int j = 0; j < BLOCK; j++) y[j] = j & step ? x[j ^ step] - x[j] : x[j] + x[j ^ step];
            memcpy(x, y, sizeof y);
        }
        for (int j = 0; j < BLOCK; j++) x[j] *= 0.17677669529663689f; /* 1 / √32 */
    }
}

enum llm_dtype llm_dtype_unrotated(enum llm_dtype t)
{
    return t == LLM_Q8_0_ROT ? LLM_Q8_0 : t == LLM_Q4_0_ROT ? LLM_Q4_0 : t;
}

#define ROTATED(name, of, bytes)                                      \
    void llm_##name##_decode(const void *in, float *out, size_t n)    \
    {                                                                 \
        llm_##of##_decode(in, out, n);                                \
        llm_dtype_rotate(out, n);                                     \
    }                                                                 \
    void llm_##name##_encode(const float *in, void *out, size_t n)    \
    {                                                                 \
        for (size_t i = 0; i < n / BLOCK; i++) {                      \
            float x[BLOCK];                                           \
            memcpy(x, in + i * BLOCK, sizeof x);                      \
            llm_dtype_rotate(x, BLOCK);                               \
            llm_##of##_encode(x, (char *)out + i * (bytes), BLOCK);   \
        }                                                             \
    }
ROTATED(q8_0_rot, q8_0, 34)
ROTATED(q4_0_rot, q4_0, 18)
