/* cpu/simd.h, vectors of one element. */
#define LLM_ISA_scalar
#include "simd_check.h"

int main(void) { return simd_main("scalar"); }
