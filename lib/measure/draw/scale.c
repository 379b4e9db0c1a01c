#include "measure/draw/scale.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"

enum { SAMPLES = 1 << 16, OUTSTANDS = 20, DECADES = 6, ONE_IN = 50 };

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The ends of numbers above 0, of which `sorted` is a sample. */
static void logarithmic(struct llm_scale *s, const float *sorted, size_t n, double least, double max)
{
    s->kind = LLM_SCALE_LOG;
    s->high = max;
    s->low = fmax(sorted[n / ONE_IN], max * pow(10, -DECADES));
    s->clipped = least < s->low;
}

int llm_scale_init(struct llm_scale *s, enum llm_scaling kind, const float *v, size_t n, struct llm_err *e)
{
    double least = INFINITY, max = -INFINITY;
    size_t stride = n / SAMPLES + 1, samples = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(v[i])) continue;
        least = fmin(least, (double)v[i]);
        max = fmax(max, (double)v[i]);
    }
    *s = (struct llm_scale){.low = least, .high = max, .kind = kind == LLM_SCALE_AUTO ? LLM_SCALE_LINEAR : kind};
    if (least > max) return llm_fail(e, EX_DATAERR, "picture: expected finite numbers, found none");
    if (kind == LLM_SCALE_LINEAR) return 0;
    if (kind == LLM_SCALE_AUTO && (least < 0 || max <= 0)) return 0;
    if (least < 0 || max <= 0) return llm_fail(e, EX_DATAERR, "picture: expected numbers above 0 for a logarithmic scale, found %g", least);
    if (kind == LLM_SCALE_RATIO) {
        s->high = fmax(max, least > 0 ? 1 / least : max);
        s->low = 1 / s->high;
        return 0;
    }
    float *sorted = llm_alloc(n / stride + 2, sizeof *sorted, "a scale", e);
    if (!sorted) return -1;
    for (size_t i = 0; i < n; i += stride) {
        if (isfinite(v[i]) && v[i] > 0) sorted[samples++] = v[i];
    }
    if (samples == 0) sorted[samples++] = (float)max;
    qsort(sorted, samples, sizeof *sorted, by_value);
    if (kind == LLM_SCALE_LOG || max > OUTSTANDS * (double)sorted[samples / 2]) logarithmic(s, sorted, samples, least, max);
    free(sorted);
    return 0;
}

double llm_scale_at(const struct llm_scale *s, double v)
{
    double x;
    if (s->high <= s->low) return .5;
    if (s->kind == LLM_SCALE_LINEAR) x = (v - s->low) / (s->high - s->low);
    else x = v > 0 ? log(v / s->low) / log(s->high / s->low) : 0;
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

double llm_scale_step(double span, int n)
{
    double raw = span / n, power = pow(10, floor(log10(raw))), m = raw / power;
    return power * (m <= 1.0001 ? 1 : m <= 2.0001 ? 2 : m <= 5.0001 ? 5 : 10);
}

static int linear_ticks(const struct llm_scale *s, double *ticks)
{
    int n = 0;
    double step = llm_scale_step(s->high - s->low, 6);
    for (double i = ceil(s->low / step - 1e-6); i * step <= s->high + 1e-6 * step && n < LLM_SCALE_TICKS; i++)
        ticks[n++] = i * step + 0.0; /* no -0 */
    return n;
}

/* Powers of `base`, every `stride`-th. */
static int powers(const struct llm_scale *s, double base, int stride, double *ticks)
{
    int n = 0, from = (int)ceil(log(s->low) / log(base) - 1e-6), to = (int)floor(log(s->high) / log(base) + 1e-6);
    for (int i = from; i <= to && n < LLM_SCALE_TICKS; i++) {
        if (i % stride == 0) ticks[n++] = pow(base, i);
    }
    return n;
}

/* 1, 2 and 5 times powers of 10. */
static int steps_125(const struct llm_scale *s, double *ticks)
{
    static const double steps[] = {1, 2, 5};
    int n = 0;
    for (int i = (int)floor(log10(s->low)); i <= (int)ceil(log10(s->high)); i++) {
        for (int k = 0; k < 3 && n < LLM_SCALE_TICKS; k++) {
            double v = steps[k] * pow(10, i);
            if (v >= s->low * (1 - 1e-6) && v <= s->high * (1 + 1e-6)) ticks[n++] = v;
        }
    }
    return n;
}

int llm_scale_ticks(const struct llm_scale *s, double ticks[LLM_SCALE_TICKS])
{
    if (s->high <= s->low) {
        ticks[0] = s->low;
        return 1;
    }
    double span = s->kind == LLM_SCALE_LINEAR ? 0 : log10(s->high / s->low);
    int n = 0;
    if (s->kind == LLM_SCALE_RATIO && span >= 2 * log10(2)) n = powers(s, 2, 1 + (int)(span / log10(2) / 9), ticks);
    else if (s->kind == LLM_SCALE_LOG && span >= 2.5) n = powers(s, 10, 1 + (int)(span / 9), ticks);
    else if (s->kind == LLM_SCALE_LOG && span > .7) n = steps_125(s, ticks);
    return n >= 2 ? n : linear_ticks(s, ticks);
}

void llm_scale_number(double v, char *out, size_t room)
{
    double size = fabs(v);
    snprintf(out, room, size >= 1000 && size < 1e6 ? "%.0f" : "%.3g", v);
    char *e = strchr(out, 'e');
    if (!e) return;
    /* e-05 becomes e-5, e+06 e6 */
    char *from = e + 2, *to = e + 1 + (e[1] == '-');
    while (*from == '0' && from[1]) from++;
    memmove(to, from, strlen(from) + 1);
}
