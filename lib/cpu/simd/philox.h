/* Random draws for kernel sources: Philox4x32-10 as in base/rng.c, sixteen counters abreast. */
#ifndef LLM_CPU_SIMD_PHILOX_H
#define LLM_CPU_SIMD_PHILOX_H

#include <stdint.h>
#include "cpu/simd.h"

enum { LLM_PHILOX_BLOCKS = 16, LLM_PHILOX_DRAWS = 4 * LLM_PHILOX_BLOCKS };

/* The 32 bits of channels 4·first … 4·(first + 16) - 1: those of llm_rng_u32. */
static inline void llm_philox_bits(uint32_t out[LLM_PHILOX_DRAWS], uint32_t first, const uint32_t key[2], const uint32_t counter[3])
{
    uint32_t k0 = key[0], k1 = key[1];
#ifdef LLM_SIMD_HAS_EVEN
    /* A counter's words are in even lanes; odd lanes hold what is left of the products. */
    enum { N = LLM_PHILOX_BLOCKS / (VN / 2) };
    const VI m0 = vi_set1((int32_t)0xD2511F53), m1 = vi_set1((int32_t)0xCD9E8D57);
    VI c0[N], c1[N], c2[N], c3[N];
    for (int j = 0; j < N; j++) {
        c0[j] = vi_add(vi_set1((int32_t)first + j * (VN / 2)), vi_shr(vi_iota(), 1));
        c1[j] = vi_set1((int32_t)counter[0]);
        c2[j] = vi_set1((int32_t)counter[1]);
        c3[j] = vi_set1((int32_t)counter[2]);
    }
    for (int round = 0; round < 10; round++) {
        for (int j = 0; j < N; j++) {
            VI a = vi_mul_even(c0[j], m0), b = vi_mul_even(c2[j], m1);
            c0[j] = vi_xor(vi_xor(vi_odd_to_even(b), c1[j]), vi_set1((int32_t)k0));
            c2[j] = vi_xor(vi_xor(vi_odd_to_even(a), c3[j]), vi_set1((int32_t)k1));
            c1[j] = b;
            c3[j] = a;
        }
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    for (int j = 0; j < N; j++) vi_store_evens(out + j * 2 * VN, c0[j], c1[j], c2[j], c3[j]);
#else
    uint32_t c0[LLM_PHILOX_BLOCKS], c1[LLM_PHILOX_BLOCKS], c2[LLM_PHILOX_BLOCKS], c3[LLM_PHILOX_BLOCKS];
    for (uint32_t j = 0; j < LLM_PHILOX_BLOCKS; j++) {
        c0[j] = first + j;
        c1[j] = counter[0];
        c2[j] = counter[1];
        c3[j] = counter[2];
    }
    for (int round = 0; round < 10; round++) {
        for (int j = 0; j < LLM_PHILOX_BLOCKS; j++) {
            uint64_t a = (uint64_t)0xD2511F53 * c0[j], b = (uint64_t)0xCD9E8D57 * c2[j];
            c0[j] = (uint32_t)(b >> 32) ^ c1[j] ^ k0;
            c2[j] = (uint32_t)(a >> 32) ^ c3[j] ^ k1;
            c1[j] = (uint32_t)b;
            c3[j] = (uint32_t)a;
        }
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    for (int j = 0; j < LLM_PHILOX_BLOCKS; j++) {
        out[4 * j] = c0[j];
        out[4 * j + 1] = c1[j];
        out[4 * j + 2] = c2[j];
        out[4 * j + 3] = c3[j];
    }
#endif
}

/* 24-bit draws of the same channels: those of llm_rng_uniform before it divides. */
static inline void llm_philox_draws(uint32_t out[LLM_PHILOX_DRAWS], uint32_t first, const uint32_t key[2], const uint32_t counter[3])
{
    llm_philox_bits(out, first, key, counter);
    for (int j = 0; j < LLM_PHILOX_DRAWS; j++) out[j] >>= 8;
}

#endif
