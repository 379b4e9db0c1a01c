/* Attention's operands: how elements stand in units, and the packing of matrices and caches into forms A and B. Part of kernels/attention.c;
 * kernels/attention.h has the contracts. */
#ifndef LLM_CPU_KERNELS_ATTENTION_FORMS_H
#define LLM_CPU_KERNELS_ATTENTION_FORMS_H

#include "cpu/kernels.h"
#include "cpu/simd/transpose.h"

#define TILE LLM_ATTN_TILE
#define INLINE static inline __attribute__((always_inline))

/* How numbers stand in units. */
enum form { FLOATS, ROUNDED, PAIRS };

#ifdef LLM_ISA_avx512bf16
#define NATIVE PAIRS
INLINE V dot_pairs(V a, V b, V c)
{
    return _mm512_dpbf16_ps(c, (__m512bh)v_bits(a), (__m512bh)v_bits(b));
}
/* 32 floats to 16 units along a row. */
INLINE V pairs_along(V low, V high)
{
    return v_from_bits((__m512i)_mm512_cvtne2ps_pbh(high, low));
}
/* Two floats, each a lane of its own, to one unit a lane. */
INLINE V pairs_across(V low, V high)
{
    const __m512i order = _mm512_setr_epi32(0x100000, 0x110001, 0x120002, 0x130003, 0x140004, 0x150005, 0x160006, 0x170007, 0x180008, 0x190009,
                                            0x1a000a, 0x1b000b, 0x1c000c, 0x1d000d, 0x1e000e, 0x1f000f);
    return v_from_bits(_mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(high, low)));
}
#else
#define NATIVE ROUNDED
#define dot_pairs v_fma
INLINE V pairs_along(V low, V high)
{
    (void)high;
    return low;
}
#define pairs_across pairs_along
#endif

INLINE V as_unit(V x, enum form f) { return f == FLOATS ? x : v_round_bf16(x); }

INLINE int64_t at_least_0(int64_t n) { return n > 0 ? n : 0; }
INLINE int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
INLINE int64_t depth_units(int64_t depth, enum form f) { return f == PAIRS ? round_up(depth, 32) / 2 : depth; }

/* Numbers [i, i + VN) of a row of n of any of the types that are packed as they are, zeros beyond; rows of blocks have whole blocks. */
INLINE V numbers(const char *row, int64_t n, int64_t i, const enum llm_dtype type)
{
    size_t left = (size_t)at_least_0(n - i);
    if (!left) return v_zero();
    const uint16_t *halves = (const uint16_t *)(const void *)row + i;
    if (type == LLM_F32) return v_load_n((const float *)(const void *)row + i, left);
    if (type == LLM_F16) return left >= VN ? v_load_f16(halves) : v_load_f16_n(halves, left);
    if (type == LLM_BF16) return left >= VN ? v_load_bf16(halves) : v_load_bf16_n(halves, left);
    const char *block = row + i / 32 * (type == LLM_Q8_0 ? 34 : 18);
    V d = v_set1_f16((const uint16_t *)(const void *)block);
    if (type == LLM_Q8_0) return v_mul(v_load_i8((const int8_t *)block + 2 + i % 32), d);
    VI both = v_to_i32(v_load_i8((const int8_t *)block + 2 + i % 16)); /* Q4_0: element i % 16 and the one 16 after it */
    VI q = vi_and(i % 32 < 16 ? both : vi_shr(both, 4), vi_set1(15));
    return v_mul(v_from_i32(vi_sub(q, vi_set1(8))), d);
}

/* Bytes of n numbers. */
INLINE int64_t row_bytes(int64_t n, const enum llm_dtype type)
{
    return type == LLM_F32 ? n * 4 : type == LLM_Q8_0 ? n / 32 * 34 : type == LLM_Q4_0 ? n / 32 * 18 : n * 2;
}

/* Units [u, u + VN) of the row x of n numbers, zeros beyond. */
INLINE V row_units(const char *x, int64_t n, int64_t u, enum form f, const enum llm_dtype type)
{
    if (f != PAIRS) return as_unit(numbers(x, n, u, type), type == LLM_BF16 ? FLOATS : f); /* BF16 is rounded already */
    return pairs_along(numbers(x, n, 2 * u, type), numbers(x, n, 2 * u + VN, type));
}
/* Columns [c, c + VN) of unit u of the matrix x with `have` rows of so many bytes, the depth running down the rows. */
INLINE V column_units(const char *x, int64_t bytes, int64_t have, int64_t cols, int64_t u, int64_t c, enum form f, const enum llm_dtype type)
{
    if (c >= cols) return v_zero();
    if (f != PAIRS) return u < have ? as_unit(numbers(x + u * bytes, cols, c, type), type == LLM_BF16 ? FLOATS : f) : v_zero();
    V low = 2 * u < have ? numbers(x + 2 * u * bytes, cols, c, type) : v_zero();
    V high = 2 * u + 1 < have ? numbers(x + (2 * u + 1) * bytes, cols, c, type) : v_zero();
    return pairs_across(low, high);
}

INLINE void pack_a(float *dst, int64_t ldd, const float *src, int64_t lds, int64_t rows, int64_t depth, enum form f)
{
    int64_t units = depth_units(depth, f);
    for (int64_t r = 0; r < rows; r++) {
        int64_t u = 0;
        for (; f != PAIRS && u + VN <= units; u += VN) v_store(dst + r * ldd + u, as_unit(v_load(src + r * lds + u), f));
        for (; u < units; u += VN)
            v_store_n(dst + r * ldd + u, row_units((const char *)(src + r * lds), depth, u, f, LLM_F32), (size_t)(units - u));
    }
}

INLINE void pack_at(float *dst, int64_t ldd, const float *src, int64_t lds, int64_t have, int64_t cols, int64_t depth, enum form f)
{
    int64_t units = depth_units(depth, f);
    for (int64_t u = 0; u < units; u += VN)
        for (int64_t c = 0; c < cols; c += VN) {
            V r[VN];
            const bool whole = f != PAIRS && u + VN <= have && c + VN <= cols; /* a square without edges */
            if (whole)
                for (int i = 0; i < VN; i++) r[i] = as_unit(v_load(src + (u + i) * lds + c), f);
            else
                for (int i = 0; i < VN; i++) r[i] = column_units((const char *)src, lds * 4, have, cols, u + i, c, f, LLM_F32);
            v_transpose(r);
            if (whole)
                for (int i = 0; i < VN; i++) v_store(dst + (c + i) * ldd + u, r[i]);
            else
                for (int i = 0; i < VN && c + i < cols; i++) v_store_n(dst + (c + i) * ldd + u, r[i], (size_t)(units - u));
        }
}

INLINE void pack_b(float *dst, int64_t ldd, const void *src, int64_t lds, int64_t have, int64_t cols, int64_t depth, enum form f,
                   const enum llm_dtype type)
{
    int64_t units = depth_units(depth, f), u = 0;
    for (; type == LLM_F32 && f != PAIRS && cols == ldd && u < units && u < have; u++) {
        const float *row = (const float *)src + u * lds;
        for (int64_t c = 0; c < ldd; c += VN) v_store(dst + u * ldd + c, as_unit(v_load(row + c), f));
    }
    for (; u < units; u++)
        for (int64_t c = 0; c < ldd; c += VN) v_store(dst + u * ldd + c, column_units(src, row_bytes(lds, type), have, cols, u, c, f, type));
}

INLINE void pack_bt(float *dst, int64_t ldd, const void *src, int64_t lds, int64_t have, int64_t depth, enum form f, const enum llm_dtype type)
{
    const char *x = src;
    int64_t units = depth_units(depth, f);
    for (int64_t c = 0; c < ldd; c += VN)
        for (int64_t u = 0; u < units; u += VN) {
            V r[VN];
            const bool whole = type == LLM_F32 && f != PAIRS && c + VN <= have && u + VN <= depth; /* a square without edges */
            if (whole)
                for (int i = 0; i < VN; i++) r[i] = as_unit(v_load((const float *)src + (c + i) * lds + u), f);
            else
                for (int i = 0; i < VN; i++) r[i] = c + i < have ? row_units(x + (c + i) * row_bytes(lds, type), depth, u, f, type) : v_zero();
            v_transpose(r);
            if (whole)
                for (int i = 0; i < VN; i++) v_store(dst + (u + i) * ldd + c, r[i]);
            else
                for (int i = 0; i < VN && u + i < units; i++) v_store(dst + (u + i) * ldd + c, r[i]);
        }
}

#ifdef LLM_ISA_avx512bf16
static void pack_b_pairs(float *dst, int64_t ldd, const void *matrix, int64_t lds, int64_t have, int64_t cols, int64_t depth)
{
    const uint16_t *src = matrix;
    int64_t units = depth_units(depth, PAIRS);
    for (int64_t u = 0; u < units; u++)
        for (int64_t c = 0; c < ldd; c += VN) {
            M low = 2 * u < have ? m_first((size_t)at_least_0(cols - c)) : 0, high = 2 * u + 1 < have ? low : 0;
            const uint16_t *at = src + 2 * u * lds + c;
            VI a = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(low, low ? at : src));
            VI b = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(high, high ? at + lds : src));
            v_store(dst + u * ldd + c, v_from_bits(vi_or(a, vi_shl(b, 16))));
        }
}

static void pack_bt_pairs(float *dst, int64_t ldd, const void *matrix, int64_t lds, int64_t have, int64_t depth)
{
    const uint16_t *src = matrix;
    int64_t units = depth_units(depth, PAIRS);
    for (int64_t c = 0; c < ldd; c += VN)
        for (int64_t u = 0; u < units; u += VN) {
            int64_t n = at_least_0(depth - 2 * u);
            __mmask32 there = n >= 32 ? ~(__mmask32)0 : ((__mmask32)1 << n) - 1;
            V r[VN];
            for (int i = 0; i < VN; i++) {
                const uint16_t *at = c + i < have && there ? src + (c + i) * lds + 2 * u : src;
                r[i] = v_from_bits(_mm512_maskz_loadu_epi16(c + i < have ? there : 0, at));
            }
            v_transpose(r);
            for (int i = 0; i < VN && u + i < units; i++) v_store(dst + (u + i) * ldd + c, r[i]);
        }
}
#endif

#endif
