/* The nearest levels, and scales from a group's range of values. The search is cpu/kernels/fit.c. */
#include <math.h>
#include "cpu/kernels.h"
#include "quant/block.h"

/* To the nearest integer, halves to even; |x| < 2^22. */
static inline float nearest(float x)
{
    return (x + 12582912.0f) - 12582912.0f;
}

static inline float clamp(float x, float least, float most)
{
    x = x > least ? x : least;
    return x < most ? x : most;
}

int llm_block_level(const struct llm_block_kind *kind, int code)
{
    return kind->levels ? kind->levels[code] : code - kind->zero;
}

/* Whether the levels are those of MXFP4: eight sizes in ascending order, then the same with the other sign. */
static bool has_sign(const struct llm_block_kind *kind)
{
    return kind->levels && kind->levels[0] == 0;
}

int llm_block_code(const struct llm_block_kind *kind, float x)
{
    if (!kind->levels) {
        return (int)nearest(clamp(x, (float)(kind->first_code - kind->zero), (float)(kind->n_codes - 1 - kind->zero))) + kind->zero;
    }
    const bool sign = has_sign(kind);
    const int n = sign ? kind->n_codes / 2 : kind->n_codes;
    const float size = sign ? fabsf(x) : x;
    int code = 0;
    for (int q = 1; q < n; q++) code += size * 2 > (float)(kind->levels[q - 1] + kind->levels[q]);
    return sign && x < 0 && code > 0 ? code + n : code;
}

static struct llm_group_fit of_range(const struct llm_block_kind *kind, const float *x, int n)
{
    float low = x[0], top = x[0], largest = x[0];
    for (int j = 1; j < n; j++) {
        low = x[j] < low ? x[j] : low;
        top = x[j] > top ? x[j] : top;
        largest = fabsf(x[j]) > fabsf(largest) ? x[j] : largest;
    }
    if (!kind->low_max) {
        if (fabsf(largest) < 1e-30f) return (struct llm_group_fit){0};
        if (has_sign(kind)) return (struct llm_group_fit){fabsf(largest) / 12, 0};
        return (struct llm_group_fit){largest / (float)llm_block_level(kind, kind->first_code), 0};
    }
    const bool positive = kind->low_max > 1;
    if (positive && low > 0) low = 0;
    if (positive && top < 0) top = 0;
    return (struct llm_group_fit){top - low > 1e-30f ? (top - low) / (float)(kind->n_codes - 1) : 0, -low};
}

struct llm_group_fit llm_group_fit(const struct llm_block_kind *kind, const float *x, const float *w, int n, enum llm_block_effort effort)
{
    return effort == LLM_BLOCK_RTN ? of_range(kind, x, n) : llm_k.fit.group(kind, x, w, n);
}
