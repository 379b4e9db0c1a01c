/* Products of one vector with rows of a matrix that a search chooses, and the choice of scores. */
#ifndef LLM_CPU_KERNELS_SEARCH_H
#define LLM_CPU_KERNELS_SEARCH_H

#include <stdint.h>

/* out[i] = v · row rows[i] of `data` [*, dims], for n rows. While rows of a walk are read, 4 at a time, the next 4 are prefetched. A sum's terms are
 * added in two interleaved chains of vectors, which are then joined. So its order depends on dims alone. */
typedef void (*llm_search_dots)(float *out, const float *v, const void *data, const uint32_t *rows, int64_t n, int64_t dims);

struct llm_search_kernels {
    llm_search_dots exact;   /* data in F32 */
    llm_search_dots rounded; /* data in F32, whose elements are rounded to BF16 first: the bits of `bf16` on the rounded data */
    llm_search_dots bf16;    /* data in BF16 */
    /* The first i from `from` on with x[i] ≥ limit; n if there is none. */
    int64_t (*reaches)(const float *x, int64_t from, int64_t n, float limit);
};

#endif
