/* Sums in double with a fixed order. */
#ifndef LLM_QUANT_DOUBLE_H
#define LLM_QUANT_DOUBLE_H

#include <stdint.h>

/* Σ x·y in eight sums, which the compiler keeps in vectors. */
static inline double llm_double_dot(const double *x, const double *y, int64_t n)
{
    double sum[8] = {0}, rest = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) sum[k] += x[i + k] * y[i + k];
    for (; i < n; i++) rest += x[i] * y[i];
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7])) + rest;
}

/* y += v·x */
static inline void llm_double_add(double *restrict y, double v, const double *restrict x, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) y[i + k] += v * x[i + k];
    for (; i < n; i++) y[i] += v * x[i];
}

#endif
