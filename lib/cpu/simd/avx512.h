/* Vectors of 16 elements: AVX-512 F, BW, VL, DQ. Part of cpu/simd.h, which has the contracts. */
#ifndef LLM_CPU_SIMD_AVX512_H
#define LLM_CPU_SIMD_AVX512_H

#include <immintrin.h>

#define VN 16
typedef __m512 V;
typedef __m512i VI;
typedef __mmask16 M;

static inline M m_first(size_t n) { return (M)(n >= 16 ? 0xffffu : (1u << n) - 1); }

static inline V v_zero(void) { return _mm512_setzero_ps(); }
static inline V v_set1(float x) { return _mm512_set1_ps(x); }
static inline V v_in_register(V x)
{
    __asm__("" : "+v"(x));
    return x;
}
static inline V v_iota(void) { return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }
static inline V v_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void v_store(float *p, V x) { _mm512_storeu_ps(p, x); }
static inline V v_load_n(const float *p, size_t n) { return _mm512_maskz_loadu_ps(m_first(n), p); }
static inline void v_store_n(float *p, V x, size_t n) { _mm512_mask_storeu_ps(p, m_first(n), x); }

static inline V v_add(V a, V b) { return _mm512_add_ps(a, b); }
static inline V v_sub(V a, V b) { return _mm512_sub_ps(a, b); }
static inline V v_mul(V a, V b) { return _mm512_mul_ps(a, b); }
static inline V v_div(V a, V b) { return _mm512_div_ps(a, b); }
static inline V v_fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
static inline V v_fnma(V a, V b, V c) { return _mm512_fnmadd_ps(a, b, c); }
static inline V v_max(V a, V b) { return _mm512_max_ps(a, b); }
static inline V v_min(V a, V b) { return _mm512_min_ps(a, b); }
static inline V v_sqrt(V a) { return _mm512_sqrt_ps(a); }
static inline V v_round(V a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

#define LLM_SIMD_HAS_SCALE
static inline V v_scale(V x, V n) { return _mm512_scalef_ps(x, n); }
static inline V v_split(V x, V *n)
{
    V f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    *n = v_sub(x, f);
    return f;
}

static inline VI v_bits(V a) { return _mm512_castps_si512(a); }
static inline V v_from_bits(VI a) { return _mm512_castsi512_ps(a); }
static inline VI v_to_i32(V a) { return _mm512_cvtps_epi32(a); }
static inline V v_from_i32(VI a) { return _mm512_cvtepi32_ps(a); }

static inline float v_sum(V a)
{
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
#define LLM_SIMD_HAS_SUMS
static inline void v_sums(float *out, const V *x, size_t n)
{
    V r[8];
    for (size_t i = 0; n != 16 && i < n; i++) out[i] = v_sum(x[i]);
    if (n != 16) return;
    for (int i = 0; i < 8; i++) r[i] = v_add(_mm512_unpacklo_ps(x[2 * i], x[2 * i + 1]), _mm512_unpackhi_ps(x[2 * i], x[2 * i + 1]));
    for (int i = 0; i < 4; i++) {
        __m512d a = _mm512_castps_pd(r[2 * i]), b = _mm512_castps_pd(r[2 * i + 1]);
        r[i] = v_add(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    for (int i = 0; i < 2; i++) {
        r[i] = v_add(_mm512_shuffle_f32x4(r[2 * i], r[2 * i + 1], 0x88), _mm512_shuffle_f32x4(r[2 * i], r[2 * i + 1], 0xdd));
    }
    v_store(out, v_add(_mm512_shuffle_f32x4(r[0], r[1], 0x88), _mm512_shuffle_f32x4(r[0], r[1], 0xdd)));
}
static inline float v_hmax(V a) { return _mm512_reduce_max_ps(a); }

static inline M v_lt(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
static inline M v_le(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
static inline M v_eq(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
static inline V v_select(M m, V a, V b) { return _mm512_mask_blend_ps(m, b, a); }
static inline M m_and(M a, M b) { return (M)(a & b); }
static inline M m_or(M a, M b) { return (M)(a | b); }
static inline M m_not(M a) { return (M)~a; }
static inline int m_any(M a) { return a != 0; }

static inline VI vi_set1(int32_t x) { return _mm512_set1_epi32(x); }
static inline VI vi_iota(void) { return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }
static inline VI vi_load(const int32_t *p) { return _mm512_loadu_si512(p); }
static inline void vi_store(int32_t *p, VI x) { _mm512_storeu_si512(p, x); }
static inline VI vi_load_n(const int32_t *p, size_t n) { return _mm512_maskz_loadu_epi32(m_first(n), p); }
static inline VI vi_add(VI a, VI b) { return _mm512_add_epi32(a, b); }
static inline VI vi_sub(VI a, VI b) { return _mm512_sub_epi32(a, b); }
static inline VI vi_mul(VI a, VI b) { return _mm512_mullo_epi32(a, b); }
static inline VI vi_and(VI a, VI b) { return _mm512_and_si512(a, b); }
static inline VI vi_or(VI a, VI b) { return _mm512_or_si512(a, b); }
static inline VI vi_xor(VI a, VI b) { return _mm512_xor_si512(a, b); }
#define vi_shl(a, bits) _mm512_slli_epi32(a, bits)
#define vi_shr(a, bits) _mm512_srli_epi32(a, bits)
#define vi_sar(a, bits) _mm512_srai_epi32(a, bits)
#define LLM_SIMD_HAS_EVEN
static inline VI vi_mul_even(VI a, VI b) { return _mm512_mul_epu32(a, b); }
static inline VI vi_odd_to_even(VI a) { return _mm512_srli_epi64(a, 32); }
static inline void vi_store_evens(uint32_t *p, VI a, VI b, VI c, VI d)
{
    VI ab = _mm512_mask_blend_epi32(0xaaaa, a, _mm512_slli_epi64(b, 32)), cd = _mm512_mask_blend_epi32(0xaaaa, c, _mm512_slli_epi64(d, 32));
    VI x = _mm512_unpacklo_epi64(ab, cd), y = _mm512_unpackhi_epi64(ab, cd);
    _mm512_storeu_si512(p, _mm512_permutex2var_epi64(x, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), y));
    _mm512_storeu_si512(p + 16, _mm512_permutex2var_epi64(x, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), y));
}
static inline int32_t vi_sum(VI a) { return _mm512_reduce_add_epi32(a); }
static inline void vi_store_i8(int8_t *p, VI x) { _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(x)); }
static inline VI vi_shrv(VI a, VI bits) { return _mm512_srlv_epi32(a, bits); }
static inline VI vi_lookup(const uint8_t *table, VI index)
{
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table)), index);
}
static inline VI vi_table(const uint32_t *table, VI i)
{
    return _mm512_permutexvar_epi32(i, _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(const void *)table)));
}
static inline VI vi_bytes(VI x, VI i)
{
    return _mm512_shuffle_epi8(x, _mm512_or_si512(i, _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c))));
}
static inline VI vi_chosen(const int8_t *p, VI i)
{
    int64_t eight;
    memcpy(&eight, p, 8);
    return _mm512_shuffle_epi8(_mm512_set1_epi64(eight), i);
}
static inline M vi_lt(VI a, VI b) { return _mm512_cmplt_epi32_mask(a, b); }
static inline M vi_eq(VI a, VI b) { return _mm512_cmpeq_epi32_mask(a, b); }
static inline VI vi_select(M m, VI a, VI b) { return _mm512_mask_blend_epi32(m, b, a); }

static inline V v_widen_bf16_(__m256i h) { return v_from_bits(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16)); }
static inline __m256i v_narrow_bf16_(V x)
{
    VI u = v_bits(x), odd = vi_and(vi_shr(u, 16), vi_set1(1));
    VI rounded = vi_shr(vi_add(u, vi_add(odd, vi_set1(0x7fff))), 16);
    VI quiet = vi_or(vi_shr(u, 16), vi_set1(0x40));
    M nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(vi_select(nan, quiet, rounded));
}
static inline V v_load_bf16(const uint16_t *p) { return v_widen_bf16_(_mm256_loadu_si256((const __m256i *)p)); }
static inline V v_load_bf16_n(const uint16_t *p, size_t n) { return v_widen_bf16_(_mm256_maskz_loadu_epi16(m_first(n), p)); }
static inline void v_store_bf16(uint16_t *p, V x) { _mm256_storeu_si256((__m256i *)p, v_narrow_bf16_(x)); }
static inline void v_store_bf16_n(uint16_t *p, V x, size_t n) { _mm256_mask_storeu_epi16(p, m_first(n), v_narrow_bf16_(x)); }
static inline V v_load_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
static inline V v_load_f16_n(const uint16_t *p, size_t n) { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m_first(n), p)); }
static inline V v_set1_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_set1_epi16((short)*p)); }
static inline void v_store_f16(uint16_t *p, V x) { _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, 0)); }
static inline void v_store_f16_n(uint16_t *p, V x, size_t n) { _mm256_mask_storeu_epi16(p, m_first(n), _mm512_cvtps_ph(x, 0)); }
static inline V v_load_i8(const int8_t *p) { return v_from_i32(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p))); }
static inline V v_load_i8_n(const int8_t *p, size_t n) { return v_from_i32(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(m_first(n), p))); }

#endif
