/* Sines in double, many abreast in loops that a compiler makes vectors of. */
#ifndef LLM_CPU_KERNELS_SINE_H
#define LLM_CPU_KERNELS_SINE_H

/* sin r for r in [-π/2, π/2]: its series up to r^17. */
static inline double llm_sine_series(double r)
{
    const double w = r * r;
    double sum = 1 / 355687428096000.0;
    sum = sum * w - 1 / 1307674368000.0;
    sum = sum * w + 1 / 6227020800.0;
    sum = sum * w - 1 / 39916800.0;
    sum = sum * w + 1 / 362880.0;
    sum = sum * w - 1 / 5040.0;
    sum = sum * w + 1 / 120.0;
    sum = sum * w - 1 / 6.0;
    return r + r * w * sum;
}

#endif
