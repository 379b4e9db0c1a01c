/* The weights that ggml's quantisers use, so that errors are spread over values as they are there: large values count more than their squared error
 * says, which protects the few that matter most. */
#include "quant/weights.h"

#include <math.h>
#include "cpu/dtype/block.h"

enum { AROUND = 256 }; /* elements whose mean square stands for the size of values; a multiple of every block size */

static float mean_square(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return (float)(sum / (double)n);
}

void llm_block_weights(enum llm_dtype t, const float *x, size_t n, size_t at, const float *importance, float *w)
{
    const struct llm_block_kind *kind = llm_block_kind_of(t);
    const size_t size = (size_t)llm_dtypes[t].block_size, from = at / AROUND * AROUND;
    x += from;
    const float square = mean_square(x, n - from < AROUND ? n - from : AROUND), *values = x + (at - from);
    const float twice = size == AROUND && t != LLM_Q2_K && t != LLM_IQ2_XS ? 2 * square : square;
    for (size_t j = 0; j < size; j++) {
        float v = values[j];
        if (!kind) w[j] = (importance ? importance[j] : 1) * sqrtf(twice + v * v);
        else if (importance) w[j] = t == LLM_Q6_K || t == LLM_Q4_K || t == LLM_IQ4_XS ? importance[j] : importance[j] * sqrtf(twice + v * v);
        else if (t == LLM_Q2_K) w[j] = fabsf(v);
        else if (kind && kind->low_max > 0) w[j] = sqrtf(square) + fabsf(v);
        else w[j] = v * v;
    }
}
