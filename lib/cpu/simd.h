/* One vocabulary of FP32 vectors for every instruction set. A kernel family (cpu/kernels/<family>.c) is written once with it and compiled once for
 * each: the Makefile defines LLM_ISA_<isa>. Include it in kernel sources only.
 *
 *   V, VI, M         a vector of VN floats, of VN int32, a mask of VN lanes
 *   v_load, v_store  VN floats, no alignment needed
 *   v_load_n(p, n)   the first min(n, VN) floats, the rest zero; touches nothing beyond. v_store_n stores so
 *   m_first(n)       lanes [0, n) set; v_iota: 0, 1, 2, …
 *   v_fma(a, b, c)   a·b + c, in one rounding but for the scalar build; v_fnma: c − a·b
 *   v_max, v_min     where one is NaN: b. v_round: to nearest even; v_to_i32 rounds so too
 *   v_in_register(x) x, which the compiler may not load again for each of its uses (GCC folds such loads into its FMAs, and they become the limit)
 *   v_lt, v_le, v_eq false where one is NaN. v_select(m, a, b): a where m, else b
 *   v_sums(out, x, n)     the sums of n vectors, each of a fixed order that may be another one than v_sum's
 *   v_scale(x, n)    x · 2^n, rounded once, for an integer n in [-252, 254]
 *   v_split(x, &n)   for x ≤ 127: an integer n and what it returns, in [-1/2, 1/2], such that v_scale(2^what, n) is 2^x, 0 far below as well
 *   v_sum            a fixed tree: upper half added to lower half until one is left; v_hmax
 *   v_bits, v_from_bits   the same bits as integers; vi_shr is logical, vi_sar arithmetic (constant counts)
 *   vi_sum; vi_store_i8   the sum of the lanes; VN bytes, each lane from -128 to 127
 *   vi_shrv               logical, by the counts in another vector (0 to 31)
 *   vi_mul_even(a, b)     of the lanes 0, 2, 4, … as unsigned numbers: the product's low half there, its high half in the lane after
 *   vi_odd_to_even(a)     lane i is lane i + 1 for even i, zero for odd ones
 *   vi_store_evens(p, a, b, c, d)   2 VN numbers: lane 0 of each, lane 2 of each, … (these three where LLM_SIMD_HAS_EVEN is defined)
 *   vi_lookup(t, i)       for each byte of i, which is 0 to 15, that byte of t
 *   vi_table(t, i)        t[i mod 8] for each lane of i, of eight words t
 *   vi_bytes(x, i)        for each byte of i, 0 to 3: that byte of x's lane; 128: 0
 *   vi_chosen(p, i)       for each byte of i, which is 0 to 7, p[that byte]
 *   v_set1_f16(p)         one half-precision number in all lanes
 *   v_load_bf16, v_load_f16, v_load_i8, v_store_bf16, v_store_f16 and _n: conversion to nearest even, NaN stays NaN, subnormals kept
 *
 * and from cpu/simd/math.h: v_exp v_tanh v_erf v_sigmoid v_abs v_neg v_round_bf16. */
#ifndef LLM_CPU_SIMD_H
#define LLM_CPU_SIMD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "cpu/half.h"

#if defined LLM_ISA_avx512 || defined LLM_ISA_avx512bf16 || defined LLM_ISA_amx
#include "cpu/simd/avx512.h"
#elif defined LLM_ISA_avx2
#include "cpu/simd/avx2.h"
#elif defined LLM_ISA_neon || defined LLM_ISA_i8mm
#include "cpu/simd/neon.h"
#else
#include "cpu/simd/scalar.h"
#endif

#include "cpu/simd/math.h"

#endif
