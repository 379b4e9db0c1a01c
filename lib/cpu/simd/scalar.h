/* Vectors of one element: the reference that every other instruction set is compared with. Part of cpu/simd.h, which has the contracts. */
#ifndef LLM_CPU_SIMD_SCALAR_H
#define LLM_CPU_SIMD_SCALAR_H

#include <math.h>

#define VN 1
typedef float V;
typedef int32_t VI;
typedef int M;

static inline V v_zero(void) { return 0; }
static inline V v_set1(float x) { return x; }
static inline V v_in_register(V x) { return x; }
static inline V v_iota(void) { return 0; }
static inline V v_load(const float *p) { return *p; }
static inline void v_store(float *p, V x) { *p = x; }
static inline V v_load_n(const float *p, size_t n) { return n ? *p : 0; }
static inline void v_store_n(float *p, V x, size_t n) { if (n) *p = x; }

static inline V v_add(V a, V b) { return a + b; }
static inline V v_sub(V a, V b) { return a - b; }
static inline V v_mul(V a, V b) { return a * b; }
static inline V v_div(V a, V b) { return a / b; }
static inline V v_fma(V a, V b, V c) { return a * b + c; }
static inline V v_fnma(V a, V b, V c) { return c - a * b; }
static inline V v_max(V a, V b) { return a > b ? a : b; }
static inline V v_min(V a, V b) { return a < b ? a : b; }
static inline V v_sqrt(V a) { return sqrtf(a); }
static inline V v_round(V a) { return rintf(a); }

static inline VI v_bits(V a) { return (VI)llm_float_bits(a); }
static inline V v_from_bits(VI a) { return llm_bits_float((uint32_t)a); }
static inline VI v_to_i32(V a) { return (VI)rintf(a); }
static inline V v_from_i32(VI a) { return (float)a; }

static inline float v_sum(V a) { return a; }
static inline float v_hmax(V a) { return a; }

static inline M v_lt(V a, V b) { return a < b; }
static inline M v_le(V a, V b) { return a <= b; }
static inline M v_eq(V a, V b) { return a == b; }
static inline V v_select(M m, V a, V b) { return m ? a : b; }
static inline M m_and(M a, M b) { return a & b; }
static inline M m_or(M a, M b) { return a | b; }
static inline M m_not(M a) { return !a; }
static inline int m_any(M a) { return a; }
static inline M m_first(size_t n) { return n > 0; }

static inline VI vi_set1(int32_t x) { return x; }
static inline VI vi_iota(void) { return 0; }
static inline VI vi_load(const int32_t *p) { return *p; }
static inline void vi_store(int32_t *p, VI x) { *p = x; }
static inline VI vi_load_n(const int32_t *p, size_t n) { return n ? *p : 0; }
static inline VI vi_add(VI a, VI b) { return (VI)((uint32_t)a + (uint32_t)b); }
static inline VI vi_sub(VI a, VI b) { return (VI)((uint32_t)a - (uint32_t)b); }
static inline VI vi_mul(VI a, VI b) { return (VI)((uint32_t)a * (uint32_t)b); }
static inline VI vi_and(VI a, VI b) { return a & b; }
static inline VI vi_or(VI a, VI b) { return a | b; }
static inline VI vi_xor(VI a, VI b) { return a ^ b; }
#define vi_shl(a, bits) ((VI)((uint32_t)(a) << (bits)))
#define vi_shr(a, bits) ((VI)((uint32_t)(a) >> (bits)))
#define vi_sar(a, bits) ((VI)((a) >> (bits)))
static inline int32_t vi_sum(VI a) { return a; }
static inline void vi_store_i8(int8_t *p, VI x) { *p = (int8_t)x; }
static inline VI vi_shrv(VI a, VI bits) { return vi_shr(a, bits); }
static inline VI vi_lookup(const uint8_t *table, VI index)
{
    uint32_t i = (uint32_t)index;
    return (VI)(table[i & 15] | (uint32_t)table[i >> 8 & 15] << 8 | (uint32_t)table[i >> 16 & 15] << 16 | (uint32_t)table[i >> 24 & 15] << 24);
}
static inline VI vi_table(const uint32_t *table, VI i) { return (VI)table[i & 7]; }
static inline VI vi_bytes(VI x, VI i)
{
    uint32_t out = 0;
    for (int j = 0; j < 32; j += 8) {
        const uint32_t from = (uint32_t)i >> j & 255;
        if (from < 128) out |= ((uint32_t)x >> from * 8 & 255) << j;
    }
    return (VI)out;
}
static inline VI vi_chosen(const int8_t *p, VI i)
{
    uint32_t out = 0;
    for (int j = 0; j < 32; j += 8) out |= (uint32_t)(uint8_t)p[(uint32_t)i >> j & 7] << j;
    return (VI)out;
}
static inline M vi_lt(VI a, VI b) { return a < b; }
static inline M vi_eq(VI a, VI b) { return a == b; }
static inline VI vi_select(M m, VI a, VI b) { return m ? a : b; }

static inline V v_load_bf16(const uint16_t *p) { return llm_bf16_decode(*p); }
static inline V v_load_bf16_n(const uint16_t *p, size_t n) { return n ? llm_bf16_decode(*p) : 0; }
static inline void v_store_bf16(uint16_t *p, V x) { *p = llm_bf16_encode(x); }
static inline void v_store_bf16_n(uint16_t *p, V x, size_t n) { if (n) *p = llm_bf16_encode(x); }
static inline V v_load_f16(const uint16_t *p) { return llm_f16_decode(*p); }
static inline V v_load_f16_n(const uint16_t *p, size_t n) { return n ? llm_f16_decode(*p) : 0; }
static inline V v_set1_f16(const uint16_t *p) { return llm_f16_decode(*p); }
static inline void v_store_f16(uint16_t *p, V x) { *p = llm_f16_encode(x); }
static inline void v_store_f16_n(uint16_t *p, V x, size_t n) { if (n) *p = llm_f16_encode(x); }
static inline V v_load_i8(const int8_t *p) { return (float)*p; }
static inline V v_load_i8_n(const int8_t *p, size_t n) { return n ? (float)*p : 0; }

#endif
