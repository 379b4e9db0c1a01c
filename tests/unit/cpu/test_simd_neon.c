/* cpu/simd.h on AArch64, where it needs no flags. */
#if defined __aarch64__
#define LLM_ISA_neon
#endif
#include "simd_check.h"

int main(void) { return simd_main("neon"); }
