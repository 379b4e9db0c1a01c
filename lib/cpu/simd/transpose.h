/* Square blocks of vectors, for sources that pack: v_transpose(r) makes row i of r column i. Include after cpu/simd.h. */
#ifndef LLM_CPU_SIMD_TRANSPOSE_H
#define LLM_CPU_SIMD_TRANSPOSE_H

#include "cpu/simd.h"

#if VN == 16
static inline __attribute__((always_inline)) void v_transpose(V r[VN])
{
    V t[VN];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        for (int j = 0; j < 2; j++) {
            __m512d a = _mm512_castps_pd(t[i + j]), b = _mm512_castps_pd(t[i + j + 2]);
            r[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    }
    for (int j = 0; j < 4; j++) {
        V a = _mm512_shuffle_f32x4(r[j], r[4 + j], 0x88), b = _mm512_shuffle_f32x4(r[j], r[4 + j], 0xdd);
        V c = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0x88), d = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0xdd);
        t[j] = _mm512_shuffle_f32x4(a, c, 0x88);
        t[4 + j] = _mm512_shuffle_f32x4(b, d, 0x88);
        t[8 + j] = _mm512_shuffle_f32x4(a, c, 0xdd);
        t[12 + j] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
    for (int i = 0; i < VN; i++) r[i] = t[i];
}
#elif VN == 8
static inline __attribute__((always_inline)) void v_transpose(V r[VN])
{
    V t[VN];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        for (int j = 0; j < 2; j++) {
            r[i + 2 * j] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], 0x44);
            r[i + 2 * j + 1] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], 0xee);
        }
    }
    for (int j = 0; j < 4; j++) {
        t[j] = _mm256_permute2f128_ps(r[j], r[4 + j], 0x20);
        t[4 + j] = _mm256_permute2f128_ps(r[j], r[4 + j], 0x31);
    }
    for (int i = 0; i < VN; i++) r[i] = t[i];
}
#else
static inline void v_transpose(V r[VN])
{
    float t[VN][VN], column[VN];
    for (int i = 0; i < VN; i++) v_store(t[i], r[i]);
    for (int i = 0; i < VN; i++) {
        for (int j = 0; j < VN; j++) column[j] = t[j][i];
        r[i] = v_load(column);
    }
}
#endif

#endif
