/* Coarse matrices: the largest elements stay where they were, ties go to the first; factors give back what has their rank, and
 * most of what has more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "cpu/pool.h"
#include "tensor/approximate.h"

static void the_largest_stay(void **state)
{
    enum { ROWS = 3, COLS = 10 };
    const float x[ROWS * COLS] = {0, -8, 1, 2, 0, 0, 4, -1, 0, .5f, 3, 3, -3, 3, 3, 3, 3, 3, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1};
    const float want[ROWS * COLS] = {0, -8, 0, 2, 0, 0, 4, 0, 0, 0, 3, 3, -3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1};
    float got[ROWS * COLS];
    char stored[ROWS * COLS * 4];
    (void)state;
    assert_int_equal(llm_top_kept(.3, COLS), 3);
    assert_int_equal(llm_top_kept(.21, COLS), 3);
    assert_int_equal(llm_top_kept(.001, COLS), 1);
    assert_int_equal(llm_top_kept(1, COLS), COLS);
    assert_true(llm_top_fits(65536) && !llm_top_fits(65537));
    assert_int_equal(llm_top_bytes(ROWS, 3), ROWS * 3 * 4);
    assert_true(llm_top_encode(x, ROWS, COLS, 3, stored, 0));
    llm_top_decode(stored, ROWS, COLS, 3, got);
    for (int i = 0; i < ROWS * COLS; i++) assert_true(got[i] == want[i]);
}

static void what_stays_is_the_largest_of_any_row(void **state)
{
    enum { COLS = 777, KEPT = 100 };
    float x[COLS], got[COLS], least = INFINITY, most = 0;
    char stored[KEPT * 4];
    struct llm_rng r = llm_rng_at(1, 0, LLM_RNG_TEST, 0, 0, 0);
    int kept = 0;
    (void)state;
    for (uint32_t i = 0; i < COLS; i++) x[i] = llm_rng_normal(&r, i);
    assert_true(llm_top_encode(x, 1, COLS, KEPT, stored, 0));
    llm_top_decode(stored, 1, COLS, KEPT, got);
    for (int i = 0; i < COLS; i++) {
        if (got[i] == 0) {
            most = fmaxf(most, fabsf(x[i]));
            continue;
        }
        assert_true(fabsf(got[i] - x[i]) <= fabsf(x[i]) / 256);
        least = fminf(least, fabsf(x[i]));
        kept++;
    }
    assert_int_equal(kept, KEPT);
    assert_true(least >= most);
}

/* x [parts · rows, cols]: each part a matrix of this rank and noise. */
static void make(float *x, int64_t parts, int64_t rows, int64_t cols, int rank, float noise)
{
    struct llm_rng r = llm_rng_at(2, 0, LLM_RNG_TEST, 0, 0, 0);
    float *a = malloc((size_t)(parts * rows * rank) * sizeof *a), *b = malloc((size_t)(parts * rank * cols) * sizeof *b);
    uint32_t at = 0;
    for (int64_t i = 0; i < parts * rows * rank; i++) a[i] = llm_rng_normal(&r, at++);
    for (int64_t i = 0; i < parts * rank * cols; i++) b[i] = llm_rng_normal(&r, at++);
    for (int64_t i = 0; i < parts * rows; i++) {
        for (int64_t j = 0; j < cols; j++) {
            double sum = (double)noise * (double)llm_rng_normal(&r, at++);
            for (int k = 0; k < rank; k++) sum += (double)a[i * rank + k] * (double)b[(i / rows * rank + k) * cols + j];
            x[i * cols + j] = (float)sum;
        }
    }
    free(a);
    free(b);
}

static void factors_give_back_their_rank(void **state)
{
    enum { PARTS = 3, ROWS = 40, COLS = 67, RANK = 5, N = PARTS * ROWS * COLS };
    static const struct { int rank; float noise; double limit; } cases[] = {{RANK, 0, 1e-5}, {2, 0, 1e-5}, {RANK, .1f, .06}};
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y), *z = malloc(N * sizeof *z);
    void *whole = malloc(llm_rank_bytes(PARTS * ROWS, ROWS, COLS, RANK)), *one = malloc(llm_rank_bytes(ROWS, ROWS, COLS, RANK));
    struct llm_err e = {0};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double error = 0, size = 0;
        make(x, PARTS, ROWS, COLS, cases[i].rank, cases[i].noise);
        for (int threads = 1; threads <= 3; threads += 2) {
            llm_pool_stop();
            assert_int_equal(llm_pool_start(threads, &e), 0);
            assert_int_equal(llm_rank_encode(x, PARTS * ROWS, ROWS, COLS, RANK, whole, &e), 0);
            assert_int_equal(llm_rank_decode(whole, PARTS * ROWS, ROWS, COLS, RANK, threads == 1 ? y : z, &e), 0);
        }
        assert_memory_equal(y, z, N * sizeof *y);
        for (int p = 0; p < PARTS; p++) { /* a part alone has the same bits */
            assert_int_equal(llm_rank_encode(x + p * ROWS * COLS, ROWS, ROWS, COLS, RANK, one, &e), 0);
            assert_int_equal(llm_rank_decode(one, ROWS, ROWS, COLS, RANK, z, &e), 0);
            assert_memory_equal(z, y + p * ROWS * COLS, ROWS * COLS * sizeof *z);
        }
        for (int j = 0; j < N; j++) {
            error += ((double)x[j] - (double)y[j]) * ((double)x[j] - (double)y[j]);
            size += (double)x[j] * (double)x[j];
        }
        if (!(sqrt(error / size) < cases[i].limit)) fail_msg("case %zu: expected below %g, found %g", i, cases[i].limit, sqrt(error / size));
    }
    memset(x, 0, N * sizeof *x);
    assert_int_equal(llm_rank_encode(x, PARTS * ROWS, ROWS, COLS, RANK, whole, &e), 0);
    assert_int_equal(llm_rank_decode(whole, PARTS * ROWS, ROWS, COLS, RANK, y, &e), 0);
    for (int j = 0; j < N; j++) assert_true(y[j] == 0);
    llm_pool_stop();
    free(x);
    free(y);
    free(z);
    free(whole);
    free(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_largest_stay), cmocka_unit_test(what_stays_is_the_largest_of_any_row),
                                       cmocka_unit_test(factors_give_back_their_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
