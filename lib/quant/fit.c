/* One group of a block: the scale, and the offset where the type has one, that fit its values best. Candidates for the scale differ in how much of
 * the range of values the levels cover. For each candidate the values are rounded to levels, and least squares gives the best scale for those levels.
 * Sums have eight chains, so that their order does not depend on how the compiler arranges them. */
#include <math.h>
#include "quant/block.h"

enum { LANES = 8 };

static float sum8(const float *v)
{
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

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

/* Levels of x · inverse, as floats. */
static void round_all(const struct llm_block_kind *kind, const float *x, float inverse, float shift, int n, float *level)
{
    const float least = (float)(kind->first_code - kind->zero), most = (float)(kind->n_codes - 1 - kind->zero);
    if (kind->levels) {
        for (int j = 0; j < n; j++) level[j] = (float)kind->levels[llm_block_code(kind, x[j] * inverse)];
    } else {
        for (int j = 0; j < n; j++) level[j] = nearest(clamp(x[j] * inverse + shift, least, most));
    }
}

/* ---- without offsets ---- */

static void sums_of_products(const float *x, const float *w, const float *level, int n, float *xl, float *ll)
{
    float a[LANES] = {0}, b[LANES] = {0};
    for (int j = 0; j < n; j += LANES) {
        for (int i = 0; i < LANES; i++) {
            float wl = w[j + i] * level[j + i];
            a[i] += wl * x[j + i];
            b[i] += wl * level[j + i];
        }
    }
    *xl = sum8(a);
    *ll = sum8(b);
}

/* The level that the element of largest size takes in candidate i of [0, n). */
static float top_level(const struct llm_block_kind *kind, int i, int n)
{
    float first = kind->levels ? (float)kind->levels[0] : (float)(kind->first_code - kind->zero), span = (float)kind->n_codes / 2;
    if (has_sign(kind)) return 4 + (float)(i % n); /* MXFP4: its round function leaves powers of two of these */
    return kind->levels ? first + (float)(i - n / 2) * 2 : first + (float)(i - n / 2) * fminf(0.1f * fmaxf(1, span / 8), 0.2f);
}

static struct llm_group_fit fit_scale(const struct llm_block_kind *kind, const float *x, const float *w, int n, enum llm_block_effort effort)
{
    float top = 0, level[LLM_BLOCK_MAX], best = -1, xl, ll;
    struct llm_group_fit fit = {0};
    for (int j = 0; j < n; j++) top = fabsf(x[j]) > fabsf(top) ? x[j] : top;
    if (fabsf(top) < 1e-30f) return fit;
    const bool powers = has_sign(kind);
    if (effort == LLM_BLOCK_RTN) return (struct llm_group_fit){powers ? fabsf(top) / 12 : top / top_level(kind, 0, 1), 0};
    const int tries = 19;
    for (int i = 0; i < tries; i++) {
        float aim = top_level(kind, i, tries);
        for (int sign = 0; sign < (kind->levels && !powers ? 2 : 1); sign++) { /* levels that are not symmetric */
            round_all(kind, x, (sign ? -aim : aim) / (powers ? fabsf(top) : top), 0, n, level);
            sums_of_products(x, w, level, n, &xl, &ll);
            if (ll > 0 && xl * xl > best * ll) {
                best = xl * xl / ll;
                fit.scale = xl / ll;
            }
        }
    }
    for (int i = 0; i < 4 && fit.scale != 0; i++) { /* rounding and least squares in turn, as long as they gain */
        round_all(kind, x, 1 / fit.scale, 0, n, level);
        sums_of_products(x, w, level, n, &xl, &ll);
        if (!(ll > 0 && xl * xl > best * ll)) break;
        best = xl * xl / ll;
        fit.scale = xl / ll;
    }
    return fit;
}

/* ---- with offsets ---- */

struct sums { double w, x, l, xl, ll, xx; };

static struct sums sums_of(const float *x, const float *w, const float *level, int n)
{
    float l[LANES] = {0}, xl[LANES] = {0}, ll[LANES] = {0};
    for (int j = 0; j < n; j += LANES) {
        for (int i = 0; i < LANES; i++) {
            float wl = w[j + i] * level[j + i];
            l[i] += wl;
            xl[i] += wl * x[j + i];
            ll[i] += wl * level[j + i];
        }
    }
    return (struct sums){.l = (double)sum8(l), .xl = (double)sum8(xl), .ll = (double)sum8(ll)};
}

/* Least squares for value = scale · level - low; without negative offsets if `positive`. Returns the error, less Σ w x². */
static double solve(const struct sums *s, bool positive, double *scale, double *low)
{
    double det = s->w * s->ll - s->l * s->l;
    if (det <= 1e-12 * s->w * s->ll) return INFINITY;
    *scale = (s->w * s->xl - s->x * s->l) / det;
    *low = -(s->ll * s->x - s->l * s->xl) / det;
    if (positive && *low < 0) {
        *low = 0;
        *scale = s->xl / s->ll;
    }
    double a = *scale, m = *low;
    return a * a * s->ll + m * m * s->w - 2 * a * m * s->l - 2 * a * s->xl + 2 * m * s->x;
}

static struct llm_group_fit fit_offset(const struct llm_block_kind *kind, const float *x, const float *w, int n, enum llm_block_effort effort)
{
    const bool positive = kind->low_max > 1;
    const float most = (float)(kind->n_codes - 1);
    float low = x[0], top = x[0], level[LLM_BLOCK_MAX];
    double best = INFINITY;
    struct sums all = {0};
    for (int j = 0; j < n; j++) {
        low = x[j] < low ? x[j] : low;
        top = x[j] > top ? x[j] : top;
        all.w += (double)w[j];
        all.x += (double)w[j] * (double)x[j];
    }
    if (positive && low > 0) low = 0;
    if (positive && top < 0) top = 0;
    struct llm_group_fit fit = {(top - low) / most, -low};
    if (!(top - low > 1e-30f)) return (struct llm_group_fit){0, -low};
    if (effort == LLM_BLOCK_RTN) return fit;
    const int tries = 28;
    for (int i = 0; i < tries + 4; i++) {
        float inverse = i < tries ? (most - 0.9f + 0.07f * (float)i) / (top - low) : fit.scale != 0 ? 1 / fit.scale : 0;
        round_all(kind, x, inverse, (i < tries ? -low : fit.low) * inverse, n, level);
        struct sums s = sums_of(x, w, level, n);
        double scale = 0, offset = 0;
        s.w = all.w;
        s.x = all.x;
        double error = solve(&s, positive, &scale, &offset);
        if (error < best) {
            best = error;
            fit = (struct llm_group_fit){(float)scale, (float)offset};
        } else if (i >= tries) {
            break;
        }
    }
    return fit;
}

struct llm_group_fit llm_group_fit(const struct llm_block_kind *kind, const float *x, const float *w, int n, enum llm_block_effort effort)
{
    return kind->low_max ? fit_offset(kind, x, w, n, effort) : fit_scale(kind, x, w, n, effort);
}
