/* For llama.cpp as tests/bench/all builds it. GCC 12 believes that _tile_loadconfig reads eight bytes, and leaves out the stores to the
 * other 56 of llama.cpp's configuration, so that its AMX products end with SIGSEGV. This macro says that it reads 64. */
#if defined __AMX_TILE__ && defined __cplusplus && !defined __clang__
#include <immintrin.h>
#define _tile_loadconfig(config) ({ __asm__ volatile("ldtilecfg %0" : : "m"(*(const char (*)[64])(config))); })
#endif
