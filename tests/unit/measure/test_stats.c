/* Statistics against values worked out by hand, and the error of a mean against runs that are known to go together. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "measure/stats.h"
#include "quant/kl.h"
#include "tests/unit/near.h"

static void of_few_values(void **state)
{
    double v[] = {4, 1, 3, 2}, odd[] = {9, -1, 5};
    (void)state;
    near(llm_mean(v, 4), 2.5, 0, 0);
    near(llm_deviation(v, 4), sqrt(5.0 / 3), 0, 1e-15);
    near(llm_median(v, 4), 2.5, 0, 0);
    near(llm_median(odd, 3), 5, 0, 0);
    near(llm_median(odd, 1), -1, 0, 0);
    near(llm_deviation(v, 1), 0, 0, 0);
    assert_true(isnan(llm_mean(v, 0)));
    assert_true(isnan(llm_median(v, 0)));
}

static void an_interval_of_95_percent(void **state)
{
    double v[201], one[] = {3}, two[] = {9, 5}, found[2];
    (void)state;
    for (int i = 0; i < 201; i++) v[i] = (i * 77) % 201; /* 0 to 200 in another order */
    llm_interval(v, 201, .025, found);
    near(found[0], 5, 0, 1e-12);
    near(found[1], 195, 0, 1e-12);
    llm_interval(two, 2, .025, found); /* between neighbours */
    near(found[0], 5.1, 0, 1e-12);
    near(found[1], 8.9, 0, 1e-12);
    llm_interval(one, 1, .025, found);
    near(found[0], 3, 0, 0);
    near(found[1], 3, 0, 0);
}

/* The .975 quantiles of Student's t as tables have them, to their last digit. */
static void tails_of_student(void **state)
{
    static const struct { size_t freedom; double t; } rows[] = {{1, 12.7062}, {2, 4.30265}, {3, 3.18245}, {4, 2.77645}, {5, 2.57058}, {10, 2.22814},
                                                                {31, 2.03951}, {120, 1.97993}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        near(llm_tail95(rows[i].freedom) / (erfc(rows[i].t / sqrt(2)) / 2), 1, 2e-3, 0);
    near(llm_tail95(100000), .025, 1e-4, 0);
    const struct llm_kl_mean mean = llm_kl_mean_of((const double[]){1, 3}, 2); /* a standard error of 1 */
    near(mean.mean, 2, 1e-12, 0);
    near(mean.half, 12.7062, 1e-4, 0);
    assert_true(isnan(llm_kl_mean_of((const double[]){1}, 1).half));
}

static double uniform(uint32_t i)
{
    struct llm_rng r = llm_rng_at(7, 0, LLM_RNG_TEST, 0, 0, 0);
    return (double)llm_rng_below(&r, i, 1 << 20) / (1 << 20);
}

static void the_error_of_a_mean(void **state)
{
    struct llm_running r = {0}, few = {0};
    (void)state;
    assert_true(isnan(llm_running_mean(&r)));
    assert_true(isnan(llm_running_error(&r)));
    for (int i = 1; i <= 4; i++) llm_running_add(&few, i);
    near(llm_running_mean(&few), 2.5, 0, 0);
    near(llm_running_error(&few), sqrt(5.0 / 3 / 4), 0, 1e-15); /* too few for runs: deviation / sqrt(n) */
    uint32_t n = 200 * LLM_RUN;
    for (uint32_t i = 0; i < n; i++) llm_running_add(&r, uniform(i));
    near(llm_running_mean(&r), 0.5, 0, 4 / sqrt(12.0 * n));
    near(llm_running_error(&r) / (1 / sqrt(12.0 * n)), 1, 0, 0.2); /* independent: as the formula says */
}

static void neighbours_that_go_together_count_less(void **state)
{
    struct llm_running r = {0};
    uint32_t groups = 200, n = groups * LLM_RUN;
    (void)state;
    for (uint32_t i = 0; i < n; i++) llm_running_add(&r, uniform(i / LLM_RUN));
    near(llm_running_error(&r) / (1 / sqrt(12.0 * groups)), 1, 0, 0.2); /* as many values as there are groups */
}

/* Of rows of independent values, a bootstrap's interval is the mean's ± 1.96 standard errors, about; equal rows have one of no width. */
static void intervals_by_bootstrap(void **state)
{
    enum { N = 400 };
    static double rows[N][3];
    double limits[3][2], error = 1 / sqrt(12.0 * N), mean = 0;
    struct llm_err e = {0};
    (void)state;
    for (uint32_t i = 0; i < N; i++) {
        rows[i][0] = 2;                  /* a row of two values: */
        rows[i][1] = 2 * uniform(i);
        rows[i][2] = 6;
        mean += uniform(i) / N;
    }
    assert_int_equal(llm_bootstrap_rows(rows[0], N, 3, 2000, 1, limits, &e), 0);
    near(limits[0][0], 1, 0, 0);
    near(limits[0][1], 1, 0, 0);
    near(limits[2][0], 3, 0, 1e-12);
    near(limits[2][1], 3, 0, 1e-12);
    near((limits[1][1] - mean) / error, 1.96, 0, 0.15);
    near((mean - limits[1][0]) / error, 1.96, 0, 0.15);
}

/* Intervals of 95% hold the true mean in 92 to 98% of 500 cases, of few rows too. */
static void intervals_hold_the_mean(void **state)
{
    enum { CASES = 500, FEW = 8, MANY = 40 };
    struct llm_err e = {0};
    uint32_t at = 0;
    (void)state;
    for (size_t n = FEW; n <= MANY; n += MANY - FEW) {
        int held = 0;
        for (int c = 0; c < CASES; c++) {
            double rows[MANY][2], limits[2][2];
            for (size_t i = 0; i < n; i++) {
                rows[i][0] = 1;
                rows[i][1] = 0;
                for (int k = 0; k < 12; k++) rows[i][1] += uniform(at++); /* about normal, of mean 6 */
            }
            assert_int_equal(llm_bootstrap_rows(rows[0], n, 2, 400, 1, limits, &e), 0);
            held += limits[1][0] <= 6 && limits[1][1] >= 6;
        }
        assert_in_range(held, CASES * 92 / 100, CASES * 98 / 100);
    }
}

/* Of an odd number of values each median that is drawn is one of them. Of 9, a median of 9 draws is the first value in .13% of all cases, and one of
 * the first two in 3.0%: a tail of 1.1% ends at the second. Of 7, the median is the first in 1.03%: a tail of .72% ends there. */
static void interval_of_a_median(void **state)
{
    const double v[] = {7, 1, 9, 3, 5, 2, 8, 4, 6}, seven[] = {7, 1, 3, 5, 2, 4, 6}, one[] = {4};
    double found[2];
    struct llm_err e = {0};
    (void)state;
    assert_int_equal(llm_bootstrap_median(v, 9, 20000, 1, found, &e), 0);
    near(found[0], 2, 0, 0);
    near(found[1], 8, 0, 0);
    assert_int_equal(llm_bootstrap_median(seven, 7, 20000, 1, found, &e), 0);
    near(found[0], 1, 0, 0);
    near(found[1], 7, 0, 0);
    assert_int_equal(llm_bootstrap_median(one, 1, 100, 1, found, &e), 0);
    near(found[0], 4, 0, 0);
    near(found[1], 4, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(of_few_values), cmocka_unit_test(an_interval_of_95_percent),
                                       cmocka_unit_test(tails_of_student),
                                       cmocka_unit_test(the_error_of_a_mean),
                                       cmocka_unit_test(neighbours_that_go_together_count_less),
                                       cmocka_unit_test(intervals_by_bootstrap), cmocka_unit_test(intervals_hold_the_mean),
                                       cmocka_unit_test(interval_of_a_median)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
