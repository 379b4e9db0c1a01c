/* Pairs of BF16 and their dot product by FMAs.
 *
 * Some processors take as long for vdpbf16ps as for four FMAs, which do twice its work. Its result is that of two FMAs, of the pair's second numbers
 * and then of the first, with subnormal operands and results taken as zero. So products by FMAs have its bits. */
#ifndef LLM_CPU_KERNELS_PAIRS_H
#define LLM_CPU_KERNELS_PAIRS_H

#include "cpu/kernels/gemm.h"

/* A product by dot products of pairs and by FMAs (micro/gemm_pairs_avx512bf16.c). */
void llm_gemm_pairs_by_dots(const struct llm_gemm_job *job);
void llm_gemm_pairs_by_fmas(const struct llm_gemm_job *job);

#ifdef LLM_ISA_avx512bf16
#include <immintrin.h>

/* The numbers of 16 pairs as bits of floats. */
static inline __m512i llm_first_of_pairs(__m512i pairs) { return _mm512_slli_epi32(pairs, 16); }
static inline __m512i llm_second_of_pairs(__m512i pairs) { return _mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000u)); }

/* Sets MXCSR and returns what it was. Neither calls nor loads of memory that others can see move across; results in registers must be kept in place
 * by the caller. */
static inline unsigned llm_subnormals_are_zero(void)
{
    const unsigned usual = _mm_getcsr(), zero = usual | _MM_FLUSH_ZERO_ON | 0x40; /* denormals are zero */
    __asm__ volatile("ldmxcsr %0" : : "m"(zero) : "memory");
    return usual;
}
static inline void llm_subnormals_as(unsigned usual) { __asm__ volatile("ldmxcsr %0" : : "m"(usual) : "memory"); }
#endif

#endif
