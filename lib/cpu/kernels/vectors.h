/* Loops over arrays of any length, for the kernels that work element by element. Included by a source that is compiled for each instruction set. */
#ifndef LLM_CPU_KERNELS_VECTORS_H
#define LLM_CPU_KERNELS_VECTORS_H

#include "cpu/simd.h"

/* Runs the statements for each vector of n elements: at element i, with `count` lanes in use (VN but for the last). In them LOAD(p) is elements [i, i
 * + count) of the array p, and STORE(p, x) writes them. */
#define FOR_VECTORS(n, ...)                                                     \
    do {                                                                        \
        size_t i = 0;                                                           \
        for (; i + VN <= (n); i += VN) { const size_t count = VN; __VA_ARGS__ } \
        if (i < (n)) { const size_t count = (n) - i; __VA_ARGS__ }              \
    } while (0)
#define LOAD(p) (count == VN ? v_load((p) + i) : v_load_n((p) + i, count))
#define STORE(p, x) do { if (count == VN) v_store((p) + i, x); else v_store_n((p) + i, x, count); } while (0)

#endif
