/* The weights that ggml's quantisers use, so that errors are spread over values as they are there: large values count more than their squared error
 * says, which protects the few that matter most. */
#include "quant/weights.h"

#include <math.h>
#include "cpu/dtype/block.h"

enum { AROUND = LLM_BLOCK_AROUND, ABREAST = 4 /* sums side by side: each waits for its own additions only */ };

static inline double square_of(float x)
{
    return (double)x * (double)x;
}

/* Of ABREAST runs of AROUND values. The sums are variables, which compilers keep in registers. */
static void squares_abreast(const float *x, float *square)
{
    double a = 0, b = 0, c = 0, d = 0;
    for (int i = 0; i < AROUND; i++) {
        a += square_of(x[i]);
        b += square_of(x[i + AROUND]);
        c += square_of(x[i + 2 * AROUND]);
        d += square_of(x[i + 3 * AROUND]);
    }
    square[0] = (float)(a / AROUND);
    square[1] = (float)(b / AROUND);
    square[2] = (float)(c / AROUND);
    square[3] = (float)(d / AROUND);
}

void llm_block_squares(const float *x, size_t n, float *square)
{
    size_t at = 0;
    for (; at + ABREAST * AROUND <= n; at += ABREAST * AROUND, square += ABREAST) squares_abreast(x + at, square);
    for (; at < n; at += AROUND) {
        const size_t here = n - at < AROUND ? n - at : AROUND;
        double sum = 0;
        for (size_t i = at; i < at + here; i++) sum += square_of(x[i]);
        *square++ = (float)(sum / (double)here);
    }
}

void llm_block_weights(enum llm_dtype t, const float *values, float square, const float *importance, float *w)
{
    const struct llm_block_kind *kind = llm_block_kind_of(t);
    const size_t size = (size_t)llm_dtypes[t].block_size;
    const float twice = size == AROUND && t != LLM_Q2_K && t != LLM_IQ2_XS ? 2 * square : square;
    const bool sizes = t != LLM_Q6_K && t != LLM_Q4_K && t != LLM_IQ4_XS; /* importances count more for large values */
    const float least = kind && kind->low_max > 0 && t != LLM_Q2_K ? sqrtf(square) : 0;
    if (kind && importance) {
        for (size_t j = 0; j < size; j++) w[j] = sizes ? importance[j] * sqrtf(twice + values[j] * values[j]) : importance[j];
    } else if (!kind) {
        for (size_t j = 0; j < size; j++) w[j] = (importance ? importance[j] : 1) * sqrtf(twice + values[j] * values[j]);
    } else if (kind->low_max > 0 || t == LLM_Q2_K) {
        for (size_t j = 0; j < size; j++) w[j] = least + fabsf(values[j]);
    } else {
        for (size_t j = 0; j < size; j++) w[j] = values[j] * values[j];
    }
}
