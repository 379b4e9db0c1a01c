/* Vectors of 8 elements: AVX2, FMA, F16C. Part of cpu/simd.h, which has the contracts. */
#ifndef LLM_CPU_SIMD_AVX2_H
#define LLM_CPU_SIMD_AVX2_H

#include <immintrin.h>

#define VN 8
typedef __m256 V;
typedef __m256i VI;
typedef __m256 M; /* all bits of a lane */

static inline __m256i m_first_(size_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n >= 8 ? 8 : (int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline M m_first(size_t n) { return _mm256_castsi256_ps(m_first_(n)); }

static inline V v_zero(void) { return _mm256_setzero_ps(); }
static inline V v_set1(float x) { return _mm256_set1_ps(x); }
static inline V v_in_register(V x)
{
    __asm__("" : "+x"(x));
    return x;
}
static inline V v_iota(void) { return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7); }
static inline V v_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void v_store(float *p, V x) { _mm256_storeu_ps(p, x); }
static inline V v_load_n(const float *p, size_t n)
{
    return n >= 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, m_first_(n));
}
static inline void v_store_n(float *p, V x, size_t n)
{
    if (n >= 8) _mm256_storeu_ps(p, x);
    else _mm256_maskstore_ps(p, m_first_(n), x);
}

static inline V v_add(V a, V b) { return _mm256_add_ps(a, b); }
static inline V v_sub(V a, V b) { return _mm256_sub_ps(a, b); }
static inline V v_mul(V a, V b) { return _mm256_mul_ps(a, b); }
static inline V v_div(V a, V b) { return _mm256_div_ps(a, b); }
static inline V v_fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
static inline V v_fnma(V a, V b, V c) { return _mm256_fnmadd_ps(a, b, c); }
static inline V v_max(V a, V b) { return _mm256_max_ps(a, b); }
static inline V v_min(V a, V b) { return _mm256_min_ps(a, b); }
static inline V v_sqrt(V a) { return _mm256_sqrt_ps(a); }
static inline V v_round(V a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

static inline VI v_bits(V a) { return _mm256_castps_si256(a); }
static inline V v_from_bits(VI a) { return _mm256_castsi256_ps(a); }
static inline VI v_to_i32(V a) { return _mm256_cvtps_epi32(a); }
static inline V v_from_i32(VI a) { return _mm256_cvtepi32_ps(a); }

static inline float v_sum(V a)
{
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
static inline float v_hmax(V a)
{
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

static inline M v_lt(V a, V b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
static inline M v_le(V a, V b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
static inline M v_eq(V a, V b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
static inline V v_select(M m, V a, V b) { return _mm256_blendv_ps(b, a, m); }
static inline M m_and(M a, M b) { return _mm256_and_ps(a, b); }
static inline M m_or(M a, M b) { return _mm256_or_ps(a, b); }
static inline M m_not(M a) { return _mm256_xor_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(-1))); }
static inline int m_any(M a) { return _mm256_movemask_ps(a) != 0; }

static inline VI vi_set1(int32_t x) { return _mm256_set1_epi32(x); }
static inline VI vi_iota(void) { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
static inline VI vi_load(const int32_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
static inline void vi_store(int32_t *p, VI x) { _mm256_storeu_si256((__m256i *)p, x); }
static inline VI vi_load_n(const int32_t *p, size_t n) { return _mm256_maskload_epi32(p, m_first_(n)); }
static inline VI vi_add(VI a, VI b) { return _mm256_add_epi32(a, b); }
static inline VI vi_sub(VI a, VI b) { return _mm256_sub_epi32(a, b); }
static inline VI vi_mul(VI a, VI b) { return _mm256_mullo_epi32(a, b); }
static inline VI vi_and(VI a, VI b) { return _mm256_and_si256(a, b); }
static inline VI vi_or(VI a, VI b) { return _mm256_or_si256(a, b); }
static inline VI vi_xor(VI a, VI b) { return _mm256_xor_si256(a, b); }
#define vi_shl(a, bits) _mm256_slli_epi32(a, bits)
#define vi_shr(a, bits) _mm256_srli_epi32(a, bits)
#define vi_sar(a, bits) _mm256_srai_epi32(a, bits)
#define LLM_SIMD_HAS_EVEN
static inline VI vi_mul_even(VI a, VI b) { return _mm256_mul_epu32(a, b); }
static inline VI vi_odd_to_even(VI a) { return _mm256_srli_epi64(a, 32); }
static inline void vi_store_evens(uint32_t *p, VI a, VI b, VI c, VI d)
{
    VI ab = _mm256_blend_epi32(a, _mm256_slli_epi64(b, 32), 0xaa), cd = _mm256_blend_epi32(c, _mm256_slli_epi64(d, 32), 0xaa);
    VI x = _mm256_unpacklo_epi64(ab, cd), y = _mm256_unpackhi_epi64(ab, cd);
    _mm256_storeu_si256((VI *)(void *)p, _mm256_permute2x128_si256(x, y, 0x20));
    _mm256_storeu_si256((VI *)(void *)(p + 8), _mm256_permute2x128_si256(x, y, 0x31));
}
static inline int32_t vi_sum(VI a)
{
    __m128i c = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    c = _mm_add_epi32(c, _mm_unpackhi_epi64(c, c));
    return _mm_cvtsi128_si32(_mm_add_epi32(c, _mm_shuffle_epi32(c, 1)));
}
static inline void vi_store_i8(int8_t *p, VI x)
{
    __m128i c = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packs_epi16(c, c));
}
static inline VI vi_shrv(VI a, VI bits) { return _mm256_srlv_epi32(a, bits); }
static inline VI vi_lookup(const uint8_t *table, VI index)
{
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table)), index);
}
static inline VI vi_table(const uint32_t *table, VI i) { return _mm256_permutevar8x32_epi32(_mm256_loadu_si256((const VI *)(const void *)table), i); }
static inline VI vi_bytes(VI x, VI i)
{
    const VI lane = _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404, 0x08080808, 0x0c0c0c0c);
    return _mm256_shuffle_epi8(x, _mm256_or_si256(i, lane));
}
static inline VI vi_chosen(const int8_t *p, VI i)
{
    int64_t eight;
    memcpy(&eight, p, 8);
    return _mm256_shuffle_epi8(_mm256_set1_epi64x(eight), i);
}
static inline M vi_lt(VI a, VI b) { return _mm256_castsi256_ps(_mm256_cmpgt_epi32(b, a)); }
static inline M vi_eq(VI a, VI b) { return _mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b)); }
static inline VI vi_select(M m, VI a, VI b) { return _mm256_blendv_epi8(b, a, _mm256_castps_si256(m)); }

/* Up to eight 16-bit or 8-bit numbers through memory of their own, so that nothing beyond p[n - 1] is touched. */
static inline __m128i v_load16_n_(const uint16_t *p, size_t n)
{
    uint16_t t[8] = {0};
    memcpy(t, p, (n < 8 ? n : 8) * sizeof *p);
    return _mm_loadu_si128((const __m128i *)t);
}
static inline void v_store16_n_(uint16_t *p, __m128i x, size_t n)
{
    uint16_t t[8];
    _mm_storeu_si128((__m128i *)t, x);
    memcpy(p, t, (n < 8 ? n : 8) * sizeof *p);
}
static inline V v_widen_bf16_(__m128i h) { return v_from_bits(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16)); }
static inline __m128i v_narrow_bf16_(V x)
{
    VI u = v_bits(x), odd = vi_and(vi_shr(u, 16), vi_set1(1));
    VI rounded = vi_shr(vi_add(u, vi_add(odd, vi_set1(0x7fff))), 16);
    VI quiet = vi_or(vi_shr(u, 16), vi_set1(0x40));
    VI r = vi_select(_mm256_cmp_ps(x, x, _CMP_UNORD_Q), quiet, rounded);
    return _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
}
static inline V v_load_bf16(const uint16_t *p) { return v_widen_bf16_(_mm_loadu_si128((const __m128i *)p)); }
static inline V v_load_bf16_n(const uint16_t *p, size_t n) { return v_widen_bf16_(v_load16_n_(p, n)); }
static inline void v_store_bf16(uint16_t *p, V x) { _mm_storeu_si128((__m128i *)p, v_narrow_bf16_(x)); }
static inline void v_store_bf16_n(uint16_t *p, V x, size_t n) { v_store16_n_(p, v_narrow_bf16_(x), n); }
static inline V v_load_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
static inline V v_load_f16_n(const uint16_t *p, size_t n) { return _mm256_cvtph_ps(v_load16_n_(p, n)); }
static inline V v_set1_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_set1_epi16((short)*p)); }
static inline void v_store_f16(uint16_t *p, V x) { _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x, 0)); }
static inline void v_store_f16_n(uint16_t *p, V x, size_t n) { v_store16_n_(p, _mm256_cvtps_ph(x, 0), n); }
static inline V v_load_i8(const int8_t *p) { return v_from_i32(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p))); }
static inline V v_load_i8_n(const int8_t *p, size_t n)
{
    int8_t t[8] = {0};
    memcpy(t, p, n < 8 ? n : 8);
    return v_load_i8(t);
}

#endif
