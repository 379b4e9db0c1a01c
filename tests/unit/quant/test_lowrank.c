/* Eigenvectors by their definition; low-rank factors: as near as numpy's singular values say, for each knowledge of the inputs; threads; ranks
 * from energies; products with a matrix of zeros beside factors. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "cpu/matmul.h"
#include "cpu/pool.h"
#include "quant/eigen.h"
#include "quant/lowrank.h"

enum { MAX = 90, TOKENS = 400, SIDE = 40 };

/* a·v = λ·v, and vectors of length 1 at right angles. */
static void check_eigen(const double *of, int64_t n)
{
    static double a[MAX * MAX], again[MAX * MAX], values[MAX];
    struct llm_err e;
    double scale = 0;
    memcpy(a, of, (size_t)(n * n) * sizeof *a);
    assert_int_equal(llm_eigen(a, n, values, &e), 0);
    for (int64_t i = 0; i < n * n; i++) scale = fmax(scale, fabs(of[i]));
    for (int64_t i = 0; i < n; i++) {
        assert_true(i == 0 || values[i] <= values[i - 1]);
        for (int64_t j = 0; j < n; j++) {
            double product = 0, dot = 0;
            for (int64_t k = 0; k < n; k++) {
                product += of[j * n + k] * a[i * n + k];
                dot += a[i * n + k] * a[j * n + k];
            }
            assert_true(fabs(product - values[i] * a[i * n + j]) <= 1e-13 * scale * (double)n);
            assert_true(fabs(dot - (i == j)) <= 1e-13 * (double)n);
        }
    }
    llm_pool_stop();
    assert_int_equal(llm_pool_start(3, &e), 0);
    memcpy(again, of, (size_t)(n * n) * sizeof *a);
    assert_int_equal(llm_eigen(again, n, values, &e), 0);
    assert_memory_equal(a, again, (size_t)(n * n) * sizeof *a);
    llm_pool_stop();
    assert_int_equal(llm_pool_start(1, &e), 0);
}

static void eigenvectors_are_those_of_the_definition(void **state)
{
    static const int64_t sizes[] = {1, 2, 3, 7, 33, MAX};
    static double a[MAX * MAX];
    struct llm_rng r = llm_rng_at(7, 0, LLM_RNG_TEST, 0, 0, 0);
    struct llm_err e;
    (void)state;
    assert_int_equal(llm_pool_start(1, &e), 0);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const int64_t n = sizes[s];
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j <= i; j++) a[i * n + j] = a[j * n + i] = (double)llm_rng_normal(&r, (uint32_t)(i * n + j));
        check_eigen(a, n);
        memset(a, 0, sizeof a);
        check_eigen(a, n);
        for (int64_t i = 0; i < n; i++) a[i * n + i] = 3; /* one value many times */
        check_eigen(a, n);
        for (int64_t i = 0; i < n * n; i++) a[i] = (double)(i / n + 1) * (double)(i % n + 1); /* rank 1 */
        check_eigen(a, n);
        for (int64_t i = 0; i < n; i++) a[i * n + i] += pow(10, (double)(i % 12)); /* of very different sizes */
        check_eigen(a, n);
    }
    double values[2], bad[4] = {1, (double)NAN, (double)NAN, 1};
    assert_int_equal(llm_eigen(bad, 2, values, &e), -1);
    llm_pool_stop();
}

static float w[SIDE * SIDE], products[SIDE * SIDE], importance[SIDE], zeros[SIDE * SIDE];

/* As tests/oracle/lowrank.py has them. */
static void make(int64_t rows, int64_t cols)
{
    static double x[TOKENS * SIDE];
    for (int64_t i = 0; i < rows * cols; i++) w[i] = (float)sin(1.7 * (double)i + 0.001 * (double)i * (double)i);
    for (int t = 0; t < TOKENS; t++) {
        for (int64_t c = 0; c < cols; c++) {
            x[t * cols + c] = sin(0.37 * t * (double)(1 + c % 7) + (double)(c * c)) + 0.5 * cos(1.3 * t + 0.05 * (double)c)
                + (double)(c % 5) * 0.1 * sin(t * (double)c * 0.77);
        }
    }
    for (int64_t i = 0; i < cols; i++) {
        for (int64_t j = 0; j < cols; j++) {
            double sum = 0;
            for (int t = 0; t < TOKENS; t++) sum += x[t * cols + i] * x[t * cols + j];
            products[i * cols + j] = (float)sum;
        }
        importance[i] = products[i * cols + i] / TOKENS;
    }
}

/* |(w - b·a)·R|² */
static double error_of(const struct llm_lora_factors *f, int64_t n, int64_t k, const char *known)
{
    static double d[SIDE];
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t c = 0; c < k; c++) {
            d[c] = (double)w[i * k + c];
            for (int64_t r = 0; r < f->rank; r++) d[c] -= (double)f->b[i * f->rank + r] * (double)f->a[r * k + c];
        }
        for (int64_t c = 0; c < k; c++) {
            if (strcmp(known, "products") != 0) sum += d[c] * d[c] * (strcmp(known, "squares") == 0 ? (double)importance[c] : 1);
            for (int64_t j = 0; j < k && strcmp(known, "products") == 0; j++) sum += d[c] * d[j] * (double)products[c * k + j];
        }
    }
    return sum;
}

static struct llm_lowrank_job job_of(int64_t n, int64_t k, const char *known)
{
    return (struct llm_lowrank_job){.of = w, .stored = zeros, .of_type = LLM_F32, .stored_type = LLM_ZERO, .n = n, .k = k,
                                    .products = strcmp(known, "products") == 0 ? products : NULL,
                                    .importance = strcmp(known, "squares") == 0 ? importance : NULL};
}

static void factors_are_as_near_as_numpys(void **state)
{
    char known[16];
    int64_t n, k, rank, got;
    double left, all, energy, share;
    int lines = 0;
    struct llm_err e;
    FILE *f = fopen("tests/golden/lowrank.tsv", "r");
    (void)state;
    assert_non_null(f);
    while (fscanf(f, "%ld %ld %15s %ld %lf %lf", &n, &k, known, &rank, &left, &all) == 6) {
        struct llm_lowrank one = {.rank = rank}, other = {.rank = rank};
        make(n, k);
        const struct llm_lowrank_job j = job_of(n, k, known);
        assert_int_equal(llm_pool_start(1, &e), 0);
        assert_int_equal(llm_lowrank_add(&one, &j, &got, &energy, &e), 0);
        llm_pool_stop();
        assert_int_equal(llm_pool_start(3, &e), 0);
        assert_int_equal(llm_lowrank_add(&other, &j, &got, &share, &e), 0);
        llm_pool_stop();
        assert_true(share == energy && (got == rank || (got < rank && left <= 1e-9 * all))); /* what is left is rounding */
        assert_memory_equal(one.v[0].a, other.v[0].a, (size_t)(got * k) * sizeof(float));
        assert_memory_equal(one.v[0].b, other.v[0].b, (size_t)(n * got) * sizeof(float));
        const double error = error_of(&one.v[0], n, k, known);
        if (!(fabs(error - left) <= 1e-6 * left + 1e-10 * all)) fail_msg("%ld x %ld, %s, rank %ld: %g, numpy %g", n, k, known, rank, error, left);
        assert_true(fabs(energy - (all - left) / all) <= 1e-6);
        llm_lowrank_release(&one);
        llm_lowrank_release(&other);
        lines++;
    }
    fclose(f);
    assert_int_equal(lines, 30);
}

static void energies_choose_the_least_rank(void **state)
{
    struct llm_err e;
    int64_t rank, least = 0;
    double energy;
    (void)state;
    make(24, 40);
    assert_int_equal(llm_pool_start(2, &e), 0);
    const struct llm_lowrank_job j = job_of(24, 40, "products");
    struct llm_lowrank l = {.energy = 0.9};
    assert_int_equal(llm_lowrank_add(&l, &j, &rank, &energy, &e), 0);
    assert_true(energy >= 0.9 && rank > 1);
    least = rank - 1;
    l = (struct llm_lowrank){.rank = least, .v = l.v, .n = l.n, .room = l.room};
    assert_int_equal(llm_lowrank_add(&l, &j, &rank, &energy, &e), 0);
    assert_true(energy < 0.9);
    /* nothing is lost: factors of zeros */
    struct llm_lowrank_job same = j;
    same.stored = w;
    same.stored_type = LLM_F32;
    assert_int_equal(llm_lowrank_add(&l, &same, &rank, &energy, &e), 0);
    assert_true(rank == 1 && energy == 1 && l.v[2].a[3] == 0 && l.v[2].b[3] == 0);
    products[5] = NAN;
    assert_int_equal(llm_lowrank_add(&l, &j, &rank, &energy, &e), -1);
    assert_non_null(strstr(e.text, "finite"));
    llm_lowrank_release(&l);
    llm_pool_stop();
}

static void a_matrix_of_zeros_multiplies(void **state)
{
    float x[2 * 32], y[2 * 48], bias[16], dense[16 * 32];
    struct llm_err e;
    (void)state;
    assert_int_equal(llm_pool_start(2, &e), 0);
    for (int i = 0; i < 64; i++) x[i] = (float)i;
    for (int i = 0; i < 16; i++) bias[i] = (float)(i + 1);
    for (int i = 0; i < 16 * 32; i++) dense[i] = 1;
    for (int precision = 0; precision < 2; precision++) {
        struct llm_weight zero = {.dtype = LLM_ZERO, .n = 16, .k = 32}, one = {.data = dense, .dtype = LLM_F32, .n = 16, .k = 32};
        struct llm_weight *weights[] = {&zero, &one, &zero};
        struct llm_matmul a[3];
        for (int i = 0; i < 3; i++) {
            a[i] = (struct llm_matmul){.m = 2, .x = x, .ldx = 32, .y = y + 16 * i, .ldy = 48, .bias = i == 2 ? bias : NULL,
                                       .compute = (enum llm_compute)precision};
        }
        assert_int_equal(llm_matmul_several(a, weights, 3, &e), 0);
        for (int i = 0; i < 2; i++) {
            for (int j = 0; j < 16; j++) assert_true(y[i * 48 + j] == 0 && y[i * 48 + 16 + j] == (i ? 1520 : 496) && y[i * 48 + 32 + j] == bias[j]);
        }
        a[0] = (struct llm_matmul){.m = 2, .x = x, .ldx = 16, .y = y, .ldy = 32, .accumulate = true, .compute = (enum llm_compute)precision};
        y[3] = 7;
        assert_int_equal(llm_matmul_dx(a, &zero, &e), 0);
        assert_true(y[3] == 7);
        a[0].accumulate = false;
        assert_int_equal(llm_matmul_dx(a, &zero, &e), 0);
        assert_true(y[3] == 0);
    }
    llm_pool_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(eigenvectors_are_those_of_the_definition), cmocka_unit_test(factors_are_as_near_as_numpys),
                                       cmocka_unit_test(energies_choose_the_least_rank), cmocka_unit_test(a_matrix_of_zeros_multiplies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
