/* cpu/simd.h on AVX2. */
#if defined __x86_64__
#if defined __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi2"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c,bmi2")
#endif
#define LLM_ISA_avx2
#endif
#include "simd_check.h"
#if defined __x86_64__ && defined __clang__
#pragma clang attribute pop
#endif

int main(void) { return simd_main("avx2"); }
