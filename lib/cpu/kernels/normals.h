/* Random numbers of a normal distribution. */
#ifndef LLM_CPU_KERNELS_NORMALS_H
#define LLM_CPU_KERNELS_NORMALS_H

#include <stdint.h>

struct llm_normals_kernels {
    /* out[i] = what llm_rng_normal (base/rng.h) has for channel i, i < n, with this key and counter: the same bits. */
    void (*normals)(float *out, int64_t n, const uint32_t key[2], const uint32_t counter[3]);
};

#endif
