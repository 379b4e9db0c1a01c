/* Small statistics of measurements. */
#ifndef LLM_MEASURE_STATS_H
#define LLM_MEASURE_STATS_H

#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

double llm_mean(const double *v, size_t n);      /* NaN for n = 0 */
double llm_deviation(const double *v, size_t n); /* of the sample (n - 1); 0 for n < 2 */
double llm_median(double *v, size_t n);          /* sorts v; NaN for n = 0 */
/* The interval between the quantiles `tail` and 1 - tail of v [n > 0], which is sorted; between neighbours interpolated. */
void llm_interval(double *v, size_t n, double tail, double low_high[2]);
/* The tail of bootstrap percentiles for 95% when the replicates come from residuals with `freedom` > 0 degrees of freedom: the normal distribution's
 * beyond the .975 quantile of Student's t (Hesterberg's expanded percentiles). Below .025, and that in the limit. */
double llm_tail95(size_t freedom);

/* The interval of 95% of a median, from n ≥ 1 values drawn from v [n] with repetition, `resamples` times: percentiles expanded by llm_tail95(n - 1),
 * since plain ones would hold the median of 7 values in 87.5% of all cases only. */
int llm_bootstrap_median(const double *v, size_t n, int resamples, uint64_t seed, double low_high[2], struct llm_err *e) LLM_MUST_CHECK;

/* Mean of values that come one after another, with a standard error that counts how neighbours go together: from the means of consecutive runs
 * of LLM_RUN values (method of batch means). Zero-initialise. */
#define LLM_RUN 64
struct llm_running {
    size_t n, n_runs;
    double sum, run_sum;
    double run_mean, run_m2; /* Welford, over means of whole runs */
    double m2, mean;         /* Welford, over values */
};
void llm_running_add(struct llm_running *r, double v);
double llm_running_mean(const struct llm_running *r);
/* From whole runs when there are eight or more, else as if values were independent; NaN for n < 2. */
double llm_running_error(const struct llm_running *r);

/* The interval of 95% of Σ v_j / Σ v_0 for each column j of rows [n, k], from `resamples` draws of n rows with repetition: low_high[k][2]. Rows
 * are what goes together, as a run of neighbouring tokens does, and column 0 says how much a row counts. The percentiles are expanded by
 * llm_tail95(n - 1): plain ones would hold the mean of 8 values in 88% of all cases only. n ≥ 1. */
int llm_bootstrap_rows(const double *rows, size_t n, size_t k, int resamples, uint64_t seed, double (*low_high)[2], struct llm_err *e) LLM_MUST_CHECK;

#endif
