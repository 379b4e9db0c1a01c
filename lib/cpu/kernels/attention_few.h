/* Attention's products of a few query rows (decoding) with keys and values as they are stored: a tile that is used once is not packed. Part of
 * kernels/attention.c; kernels/attention.h has the contracts. Sums have the order of packed products. */
#ifndef LLM_CPU_KERNELS_ATTENTION_FEW_H
#define LLM_CPU_KERNELS_ATTENTION_FEW_H

#include "cpu/kernels/attention_forms.h"

enum { FEW_TOGETHER = 4 }; /* rows whose sums stay in registers beside a transposed square of keys */

/* VN elements of a stored row, from element i on. */
INLINE V stored(const char *row, int64_t i, enum form f, const enum llm_dtype type)
{
    return as_unit(numbers(row, i + VN, i, type), type == LLM_BF16 ? FLOATS : f);
}

/* Scores of `rows` query rows with 2·VN keys, of which the first `left` are there: squares of keys are transposed in registers. `whole`: all are
 * there, and their addresses need no registers. */
INLINE void few_keys(float *s, const float *q, int64_t ldq, const char *k, int64_t bytes, int64_t left, int64_t d_k, const bool whole,
                     const int rows, enum form f, const enum llm_dtype type)
{
    const char *key[2 * VN];
    V sum[2][FEW_TOGETHER];
    for (int i = 0; i < 2 * VN; i++) key[i] = k + (whole || i < left ? i : 0) * bytes;
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) sum[0][r] = sum[1][r] = v_zero();
    for (int64_t u = 0; u < d_k; u += VN)
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            V square[VN];
#pragma GCC unroll 16
            for (int i = 0; i < VN; i++) square[i] = stored(key[half * VN + i], u, f, type);
            v_transpose(square);
#pragma GCC unroll 16
            for (int i = 0; i < VN; i++)
#pragma GCC unroll 4
                for (int r = 0; r < rows; r++) sum[half][r] = v_fma(v_set1(q[r * ldq + u + i]), square[i], sum[half][r]);
        }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            const M there = v_lt(v_iota(), v_set1((float)(left - half * VN)));
            v_store(s + r * TILE + half * VN, whole ? sum[half][r] : v_select(there, sum[half][r], v_zero()));
        }
}

INLINE void few_scores(float *s, const float *q, int64_t ldq, const char *k, int64_t bytes, int64_t have, int64_t d_k, int64_t keys,
                       const int rows, enum form f, const enum llm_dtype type)
{
    int64_t c = 0;
    if (type == LLM_F32) /* of other types elements are unpacked, which hides the loads of addresses */
        for (; c < keys && c + 2 * VN <= have; c += 2 * VN) few_keys(s + c, q, ldq, k + c * bytes, bytes, 2 * VN, d_k, true, rows, f, type);
    for (; c < keys && c < have; c += 2 * VN) few_keys(s + c, q, ldq, k + c * bytes, bytes, have - c, d_k, false, rows, f, type);
    for (; c < keys; c += VN)
        for (int r = 0; r < rows; r++) v_store(s + r * TILE + c, v_zero());
}

/* Columns [c, c + nv·VN) of the outputs of `rows` rows. */
INLINE void few_columns(float *o, int64_t ldo, const float *p, const char *v, int64_t bytes, int64_t have, int64_t c, const int rows, const int nv,
                        enum form f, const enum llm_dtype type)
{
    V sum[FEW_TOGETHER][8];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int j = 0; j < nv; j++) sum[r][j] = v_load(o + r * ldo + c + j * VN);
    for (int64_t u = 0; u < have; u++)
#pragma GCC unroll 8
        for (int j = 0; j < nv; j++) {
            V x = v_in_register(stored(v + u * bytes, c + j * VN, f, type));
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) sum[r][j] = v_fma(v_set1(p[r * TILE + u]), x, sum[r][j]);
        }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int j = 0; j < nv; j++) v_store(o + r * ldo + c + j * VN, sum[r][j]);
}

INLINE void few_values(float *o, int64_t ldo, const float *p, const char *v, int64_t bytes, int64_t have, int64_t d_v, const int rows, enum form f,
                       const enum llm_dtype type)
{
    const int step = LLM_ATTN_LANES / VN < 4 ? LLM_ATTN_LANES / VN : 4, wide = rows == 1 && VN == 8 ? 8 : 4;
    int64_t c = 0;
    for (; c + wide * VN <= d_v; c += wide * VN) few_columns(o, ldo, p, v, bytes, have, c, rows, wide, f, type);
    for (; c < d_v; c += step * VN) few_columns(o, ldo, p, v, bytes, have, c, rows, step, f, type);
}

INLINE void scores_of(float *s, const float *q, int64_t ldq, int64_t rows, const void *k, int64_t lds, int64_t have, int64_t d_k, int64_t keys,
                      enum form f, const enum llm_dtype type)
{
    const int64_t bytes = row_bytes(lds, type);
    for (; rows > 0; rows -= FEW_TOGETHER, s += FEW_TOGETHER * TILE, q += FEW_TOGETHER * ldq)
        switch (rows) {
        case 1: few_scores(s, q, ldq, k, bytes, have, d_k, keys, 1, f, type); break;
        case 2: few_scores(s, q, ldq, k, bytes, have, d_k, keys, 2, f, type); break;
        case 3: few_scores(s, q, ldq, k, bytes, have, d_k, keys, 3, f, type); break;
        default: few_scores(s, q, ldq, k, bytes, have, d_k, keys, FEW_TOGETHER, f, type); break;
        }
}

INLINE void values_of(float *o, int64_t ldo, const float *p, int64_t rows, const void *v, int64_t lds, int64_t have, int64_t d_v, enum form f,
                      const enum llm_dtype type)
{
    const int64_t bytes = row_bytes(lds, type);
    for (; rows > 0; rows -= FEW_TOGETHER, o += FEW_TOGETHER * ldo, p += FEW_TOGETHER * TILE)
        switch (rows) {
        case 1: few_values(o, ldo, p, v, bytes, have, d_v, 1, f, type); break;
        case 2: few_values(o, ldo, p, v, bytes, have, d_v, 2, f, type); break;
        case 3: few_values(o, ldo, p, v, bytes, have, d_v, 3, f, type); break;
        default: few_values(o, ldo, p, v, bytes, have, d_v, FEW_TOGETHER, f, type); break;
        }
}

#define FEW(name, f, which, type) \
    static void scores_##name##_##which(float *s, const float *q, int64_t ldq, int64_t rows, const void *k, int64_t lds, int64_t have, int64_t d_k, \
                                        int64_t keys) \
    { scores_of(s, q, ldq, rows, k, lds, have, d_k, keys, f, type); } \
    static void values_##name##_##which(float *o, int64_t ldo, const float *p, int64_t rows, const void *v, int64_t lds, int64_t have, int64_t d_v) \
    { values_of(o, ldo, p, rows, v, lds, have, d_v, f, type); }
#define FEW_TYPES(X, name, f) X(name, f, f32, LLM_F32) X(name, f, f16, LLM_F16) X(name, f, bf16, LLM_BF16) X(name, f, q8_0, LLM_Q8_0)
#define SCORES_OF(name, f, which, type) [type] = scores_##name##_##which,
#define VALUES_OF(name, f, which, type) [type] = values_##name##_##which,

#endif
