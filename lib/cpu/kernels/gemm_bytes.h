/* Dot products of bytes, for products with block-quantised weights: vectors of VN words, each of four unsigned bytes (weights) or four signed bytes
 * from -127 to 127 (activations).
 *
 *   dot4(sum, w, x)        adds the VN dot products of four bytes to `sum`, in 32 bits
 *
 * SUMS_OF_16 is 1 if the instruction set has no dot product of four bytes. It then has products of two bytes, whose sums have 16 bits, two in each
 * word:
 *
 *   products(w, x)         w[0]·x[0] + w[1]·x[1] for each pair of bytes; the bytes of w are at most 127
 *   products_signed(w, x)  the same with signed bytes of w
 *   add_16(a, b)           adds in 16 bits and wraps
 *   pairs_of(a, times)     the sum of each word's two numbers, multiplied by `times`, in 32 bits
 *   pairs_scaled(a, scale) the same with a word's own factor, which `scale` has in both of its halves */
#ifndef LLM_CPU_KERNELS_GEMM_BYTES_H
#define LLM_CPU_KERNELS_GEMM_BYTES_H

#include "cpu/kernels/gemm_blocks.h"

#if VN == 16 && defined __AVX512VNNI__
INLINE VI dot4(VI sum, VI w, VI x) { return _mm512_dpbusd_epi32(sum, w, x); }
#define SUMS_OF_16 0
#elif VN == 8 && defined __AVXVNNI__
INLINE VI dot4(VI sum, VI w, VI x) { return _mm256_dpbusd_avx_epi32(sum, w, x); }
#define SUMS_OF_16 0
#elif VN == 16
INLINE VI products(VI w, VI x) { return _mm512_maddubs_epi16(w, x); }
INLINE VI add_16(VI a, VI b) { return _mm512_add_epi16(a, b); }
INLINE VI pairs_scaled(VI a, VI scale) { return _mm512_madd_epi16(a, scale); }
INLINE VI products_signed(VI w, VI x)
{
    return _mm512_maddubs_epi16(_mm512_abs_epi8(w), _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x));
}
#define SUMS_OF_16 1
#elif VN == 8
INLINE VI products(VI w, VI x) { return _mm256_maddubs_epi16(w, x); }
INLINE VI add_16(VI a, VI b) { return _mm256_add_epi16(a, b); }
INLINE VI pairs_scaled(VI a, VI scale) { return _mm256_madd_epi16(a, scale); }
INLINE VI products_signed(VI w, VI x) { return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)); }
#define SUMS_OF_16 1
#elif defined LLM_ISA_neon || defined LLM_ISA_i8mm
INLINE VI dot4(VI sum, VI w, VI x) { return vdotq_s32(sum, vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(x)); } /* w up to 127 */
#define SUMS_OF_16 0
#else
INLINE VI dot4(VI sum, VI w, VI x)
{
    int32_t a[VN], b[VN], s[VN];
    vi_store(a, w);
    vi_store(b, x);
    vi_store(s, sum);
    for (int j = 0; j < VN; j++)
        for (int i = 0; i < 32; i += 8) s[j] += (int32_t)((uint32_t)a[j] >> i & 255) * (int8_t)((uint32_t)b[j] >> i & 255);
    return vi_load(s);
}
#define SUMS_OF_16 0
#endif

INLINE VI four_of(const int8_t *q)
{
    int32_t x;
    memcpy(&x, q, 4);
    return vi_set1(x);
}

#if SUMS_OF_16
/* Makes the compiler compute x here. GCC would otherwise reassociate the chains of integer additions and spill the operands that it delays. */
INLINE VI kept(VI x) { return v_bits(v_in_register(v_from_bits(x))); }
INLINE VI twice_16(VI factor) { return vi_or(vi_and(factor, vi_set1(0xffff)), vi_shl(factor, 16)); }
INLINE VI pairs_of(VI a, int times) { return pairs_scaled(a, vi_set1(times * 0x10001)); }
INLINE VI dot4(VI sum, VI w, VI x) { return vi_add(sum, pairs_of(products(w, x), 1)); }

/* The number of words whose products, with the kind's zero subtracted, fit into 16 bits; intermediate sums may wrap. 1: the bytes exceed 127, so a
 * product takes them as signed bytes, or as two halves of four bits, for which the number of words is 8. */
INLINE int words_in_16(const struct kind *k)
{
    const int max = k->top - k->zero > k->zero ? k->top - k->zero : k->zero;
    return 32767 / (2 * 127 * max);
}

/* The initial value of the two 16-bit sums of a part of a group: -zero times the sum of the activations that each of them multiplies. The part's
 * activations are `words` words at q. If zero is 128, the value is for the upper halves of the bytes, whose zero is 8. */
INLINE int32_t start_of(const int8_t *q, int words, int zero, int32_t total)
{
    const __m128i zeros = _mm_set1_epi8((char)(zero == 128 ? 8 : zero)), *x = (const __m128i *)(const void *)q;
    __m128i sum = _mm_maddubs_epi16(zeros, _mm_loadu_si128(x));
    (void)total;
    if (words == 8) sum = _mm_add_epi16(sum, _mm_maddubs_epi16(zeros, _mm_loadu_si128(x + 1)));
    sum = _mm_add_epi16(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi16(sum, _mm_shuffle_epi32(sum, 0xb1));
    return _mm_cvtsi128_si32(_mm_sub_epi16(_mm_setzero_si128(), sum));
}
#else
INLINE int32_t start_of(const int8_t *q, int words, int zero, int32_t total)
{
    (void)q, (void)words;
    return -zero * total;
}
#endif

#endif
