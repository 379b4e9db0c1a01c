/* cpu/simd.h on AVX-512. */
#if defined __x86_64__
#if defined __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512vl,avx512dq,avx512cd"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512vl,avx512dq,avx512cd")
#endif
#define LLM_ISA_avx512
#endif
#include "simd_check.h"
#if defined __x86_64__ && defined __clang__
#pragma clang attribute pop
#endif

int main(void) { return simd_main("avx512"); }
