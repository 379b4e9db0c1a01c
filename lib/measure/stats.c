#include "measure/stats.h"

#include <math.h>
#include <stdlib.h>

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
