/* Pruning against numpy (tests/golden/prune.tsv, made by tests/oracle/prune.py); patterns; ties; threads; what is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/pool.h"
#include "quant/prune.h"

enum { ROWS = 5, K = 160, N = ROWS * K, TOKENS = 400 };
static float w[N], products[K * K], importance[K];

/* What tests/oracle/prune.py has. */
static void fill(void)
{
    static double x[TOKENS][K];
    for (int i = 0; i < N; i++) w[i] = (float)sin(1.7 * i + 0.001 * i * i);
    for (int t = 0; t < TOKENS; t++) {
        for (int c = 0; c < K; c++) {
            x[t][c] = sin(0.37 * t * (1 + c % 7) + c * c) + 0.5 * cos(1.3 * t + 0.05 * c) + c % 5 * 0.1 * sin(t * c * 0.77);
        }
    }
    for (int i = 0; i < K; i++) {
        for (int j = 0; j < K; j++) {
            double sum = 0;
            for (int t = 0; t < TOKENS; t++) sum += x[t][i] * x[t][j];
            products[i * K + j] = (float)sum;
        }
        importance[i] = products[i * (K + 1)] / TOKENS;
    }
}

static struct llm_prune_job job_of(enum llm_prune_method method, const char *pattern)
{
    struct llm_prune_job job = {.w = w, .n = ROWS, .k = K, .method = method, .importance = importance, .products = products};
    assert_int_equal(llm_prune_parse(pattern, &job.pattern), 0);
    fill();
    return job;
}

static enum llm_prune_method method_of(const char *name)
{
    int i = 0;
    while (strcmp(llm_prune_methods[i], name) != 0) i++;
    return (enum llm_prune_method)i;
}

/* The zeros are the same ones; values within 2e-5 of the largest, since errors are made up for in FP32 here. */
static void as_numpy(void **state)
{
    FILE *f = fopen("tests/golden/prune.tsv", "r");
    char method[20], pattern[10];
    int cases = 0;
    (void)state;
    assert_non_null(f);
    while (fscanf(f, "%19s %9s", method, pattern) == 2) {
        struct llm_prune_job job = job_of(method_of(method), pattern);
        enum llm_prune_method used;
        struct llm_err e;
        double damping;
        assert_int_equal(llm_prune(&job, &used, &damping, &e), 0);
        assert_int_equal(used, job.method);
        assert_true(damping == (used == LLM_PRUNE_SPARSEGPT ? 0.01 : 0));
        for (int i = 0; i < N; i++) {
            double expected;
            assert_int_equal(fscanf(f, "%lf", &expected), 1);
            if ((expected == 0) != (w[i] == 0) || fabs(expected - (double)w[i]) > 2e-5) {
                fail_msg("%s %s: element %d: expected %.9g, found %.9g", method, pattern, i, expected, (double)w[i]);
            }
        }
        cases++;
    }
    fclose(f);
    assert_int_equal(cases, 12);
}

static void same_for_any_threads(void **state)
{
    static float first[N];
    struct llm_err e;
    (void)state;
    for (int method = 0; method < LLM_PRUNE_METHODS; method++) {
        for (int threads = 1; threads <= 3; threads += 2) {
            struct llm_prune_job job = job_of((enum llm_prune_method)method, ".6");
            enum llm_prune_method used;
            double damping;
            llm_pool_stop();
            assert_int_equal(llm_pool_start(threads, &e), 0);
            assert_int_equal(llm_prune(&job, &used, &damping, &e), 0);
            if (threads == 1) memcpy(first, w, sizeof first);
            else assert_memory_equal(first, w, sizeof first);
        }
    }
}

/* Equal elements: the first become 0. The last neighbours are fewer than m: no more than n of them stay. */
static void ties_and_ends(void **state)
{
    float equal[14];
    struct llm_prune_job job = {.w = equal, .n = 2, .k = 7, .pattern = {.share = 0.5}};
    enum llm_prune_method used;
    double damping;
    struct llm_err e;
    (void)state;
    for (int i = 0; i < 14; i++) equal[i] = i % 2 ? 1 : -1;
    assert_int_equal(llm_prune(&job, &used, &damping, &e), 0);
    for (int i = 0; i < 14; i++) assert_true((equal[i] == 0) == (i < 7));
    for (int i = 0; i < 14; i++) equal[i] = 1;
    job.pattern = (struct llm_prune_pattern){.kept = 1, .of = 4};
    assert_int_equal(llm_prune(&job, &used, &damping, &e), 0);
    for (int i = 0; i < 14; i++) assert_true((equal[i] == 0) == (i % 7 != 3 && i % 7 != 6));
}

/* Without what a method needs it is the one before it. */
static void what_is_not_known(void **state)
{
    struct llm_prune_job job = job_of(LLM_PRUNE_SPARSEGPT, ".5");
    enum llm_prune_method used;
    double damping;
    struct llm_err e;
    (void)state;
    job.products = NULL;
    assert_int_equal(llm_prune(&job, &used, &damping, &e), 0);
    assert_int_equal(used, LLM_PRUNE_WANDA);
    job.importance = NULL;
    assert_int_equal(llm_prune(&job, &used, &damping, &e), 0);
    assert_int_equal(used, LLM_PRUNE_MAGNITUDE);
    w[3] = NAN;
    assert_int_equal(llm_prune(&job, &used, &damping, &e), -1);
    assert_string_equal(e.text, "expected finite values, found NaN or infinity");
}

static void patterns(void **state)
{
    static const char *const bad[] = {"", "0", "1", "-.5", "nan", ".5x", "2:2", "0:4", "4:2", "2:", ":4", "2:4x", "2:65"};
    struct llm_prune_pattern p;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_int_equal(llm_prune_parse(bad[i], &p), -1);
    assert_int_equal(llm_prune_parse("2:4", &p), 0);
    assert_true(p.kept == 2 && p.of == 4);
    assert_int_equal(llm_prune_parse(".25", &p), 0);
    assert_true(p.share == 0.25 && p.of == 0);
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_numpy), cmocka_unit_test(same_for_any_threads), cmocka_unit_test(ties_and_ends),
                                       cmocka_unit_test(what_is_not_known), cmocka_unit_test(patterns)};
    if (llm_pool_start(2, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
