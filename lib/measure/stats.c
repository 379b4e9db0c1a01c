#include "measure/stats.h"

#include <math.h>
#include <stdlib.h>
#include "base/buf.h"
#include "base/rng.h"
#include "base/student.h"

enum { FEWEST_RUNS = 8 };

double llm_mean(const double *v, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += v[i];
    return n ? sum / (double)n : (double)NAN;
}

double llm_deviation(const double *v, size_t n)
{
    double mean = llm_mean(v, n), squares = 0;
    if (n < 2) return 0;
    for (size_t i = 0; i < n; i++) squares += (v[i] - mean) * (v[i] - mean);
    return sqrt(squares / (double)(n - 1));
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double llm_median(double *v, size_t n)
{
    if (n == 0) return (double)NAN;
    qsort(v, n, sizeof *v, ascending);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static double quantile(const double *sorted, size_t n, double q)
{
    double at = q * (double)(n - 1);
    size_t i = (size_t)at;
    return i + 1 < n ? sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]) : sorted[n - 1];
}

void llm_interval(double *v, size_t n, double tail, double low_high[2])
{
    qsort(v, n, sizeof *v, ascending);
    low_high[0] = quantile(v, n, tail);
    low_high[1] = quantile(v, n, 1 - tail);
}

double llm_tail95(size_t freedom)
{
    return erfc(llm_student975(freedom) / sqrt(2)) / 2;
}

static void welford(double *mean, double *m2, size_t n, double v)
{
    double off = v - *mean;
    *mean += off / (double)n;
    *m2 += off * (v - *mean);
}

void llm_running_add(struct llm_running *r, double v)
{
    r->sum += v;
    welford(&r->mean, &r->m2, ++r->n, v);
    r->run_sum += v;
    if (r->n % LLM_RUN == 0) {
        welford(&r->run_mean, &r->run_m2, ++r->n_runs, r->run_sum / LLM_RUN);
        r->run_sum = 0;
    }
}

double llm_running_mean(const struct llm_running *r)
{
    return r->n ? r->sum / (double)r->n : (double)NAN;
}

double llm_running_error(const struct llm_running *r)
{
    if (r->n < 2) return (double)NAN;
    if (r->n_runs < FEWEST_RUNS) return sqrt(r->m2 / (double)(r->n - 1) / (double)r->n);
    return sqrt(r->run_m2 / (double)(r->n_runs - 1) / (double)r->n_runs);
}

int llm_bootstrap_rows(const double *rows, size_t n, size_t k, int resamples, uint64_t seed, double (*low_high)[2], struct llm_err *e)
{
    const size_t draws = (size_t)resamples;
    double *values = llm_calloc(k, draws * sizeof *values, "resamples", e); /* [k, draws] */
    if (!values) return -1;
    for (size_t r = 0; r < draws; r++) {
        struct llm_rng rng = llm_rng_of_item(seed, 0, r, LLM_RNG_ORDER, 1, 0);
        for (size_t i = 0; i < n; i++) {
            const double *row = rows + llm_rng_below(&rng, (uint32_t)i, n) * k;
            for (size_t j = 0; j < k; j++) values[j * draws + r] += row[j];
        }
        for (size_t j = k; j-- > 0;) values[j * draws + r] /= values[r];
    }
    const double tail = n > 1 ? llm_tail95(n - 1) : .025;
    for (size_t j = 0; j < k; j++) llm_interval(values + j * draws, draws, tail, low_high[j]);
    free(values);
    return 0;
}

int llm_bootstrap_median(const double *v, size_t n, int resamples, uint64_t seed, double low_high[2], struct llm_err *e)
{
    double *medians = llm_alloc((size_t)resamples + n, sizeof *medians, "resamples", e);
    if (!medians) return -1;
    double *drawn = medians + resamples;
    for (int r = 0; r < resamples; r++) {
        struct llm_rng rng = llm_rng_of_item(seed, 0, (uint64_t)r, LLM_RNG_ORDER, 1, 0);
        for (size_t i = 0; i < n; i++) drawn[i] = v[llm_rng_below(&rng, (uint32_t)i, n)];
        medians[r] = llm_median(drawn, n);
    }
    llm_interval(medians, (size_t)resamples, n > 1 ? llm_tail95(n - 1) : .025, low_high);
    free(medians);
    return 0;
}
