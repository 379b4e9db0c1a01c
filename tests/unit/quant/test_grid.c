/* Grid types: what is packed opens to its parts, whatever they are; points are the best for their scale, signs are those of the values; searched
 * scales leave less error than those of the range; bytes do not depend on threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "base/cli.h"
#include "base/rng.h"
#include "cpu/pool.h"
#include "quant/grid.h"
#include "quant/quant.h"

#define EACH_WRITTEN(t, kind) \
    for (int t = 0; t < LLM_N_DTYPES; t++) \
        for (const struct llm_grid_kind *kind = llm_grid_kind_of((enum llm_dtype)t); kind && kind->pack; kind = NULL)
enum { N = LLM_GRID_BLOCK };

static void what_is_packed_opens_to_its_parts(void **state)
{
    (void)state;
    EACH_WRITTEN(t, kind) {
        for (uint32_t turn = 0; turn < 50; turn++) {
            const struct llm_rng r = llm_rng_at(7, turn, LLM_RNG_TEST, (uint32_t)t, 0, 0);
            struct llm_grid_block b = {.d = llm_block_round_f16(llm_rng_uniform(&r, 0) + 0.01f)}, back = {0};
            unsigned char packed[300];
            float values[N], want[N];
            for (uint32_t g = 0; g < (uint32_t)(N / kind->group); g++) b.scale[g] = (uint8_t)(llm_rng_uniform(&r, 10 + g) * 16);
            for (uint32_t i = 0; i < (uint32_t)(N / kind->grid->dims); i++) {
                b.point[i] = (uint16_t)(llm_rng_uniform(&r, 50 + i) * (float)kind->grid->points);
            }
            for (uint32_t i = 0; i < 32; i++) {
                b.negative[i] = (uint8_t)(llm_rng_uniform(&r, 200 + i) * 256);
                if (kind->even && __builtin_parity(b.negative[i])) b.negative[i] ^= 128;
            }
            kind->pack(&b, packed);
            kind->open(packed, &back);
            assert_memory_equal(&back, &b, sizeof b);
            llm_dtypes[t].decode(packed, values, N);
            llm_grid_values(kind, &b, want);
            assert_memory_equal(values, want, sizeof want);
        }
    }
}

static void draw(uint32_t turn, float *x, float *w)
{
    const struct llm_rng r = llm_rng_at(8, turn, LLM_RNG_TEST, 0, 0, 0);
    for (uint32_t j = 0; j < N; j++) {
        x[j] = llm_rng_normal(&r, j) * (j % 61 == 7 ? 0.3f : 0.04f);
        w[j] = llm_rng_uniform(&r, 1000 + j) * 2 + 0.01f;
    }
}

static double error_of(const float *x, const float *y, const float *w, int n)
{
    double sum = 0;
    for (int j = 0; j < n; j++) sum += (double)w[j] * (double)(x[j] - y[j]) * (double)(x[j] - y[j]);
    return sum;
}

/* Of a block's first point: no other is better, but for what FP32 leaves open. */
static void points_are_the_best(void **state)
{
    (void)state;
    EACH_WRITTEN(t, kind) {
        for (uint32_t turn = 0; turn < 20; turn++) {
            float x[N], w[N], y[N];
            struct llm_grid_block b;
            draw(turn, x, w);
            llm_grid_choose(kind, x, w, LLM_BLOCK_SEARCH, &b);
            llm_grid_values(kind, &b, y);
            const double here = error_of(x, y, w, kind->grid->dims);
            for (int p = 0; p < kind->grid->points; p++) {
                b.point[0] = (uint16_t)p;
                llm_grid_values(kind, &b, y);
                const double other = error_of(x, y, w, kind->grid->dims);
                if (other < here * 0.9999 - 1e-9) fail_msg("%s: point %d leaves %g, the chosen one %g", llm_dtypes[t].name, p, other, here);
            }
            int wrong = 0;
            for (int j = 0; j < N; j++) wrong += (b.negative[j / 8] >> j % 8 & 1) != (x[j] < 0);
            assert_true(wrong <= (kind->even ? 32 : 0));
        }
    }
}

static void searched_scales_leave_less_error(void **state)
{
    (void)state;
    EACH_WRITTEN(t, kind) {
        double plain = 0, searched = 0;
        for (uint32_t turn = 0; turn < 20; turn++) {
            float x[N], w[N], y[N];
            struct llm_grid_block b;
            draw(turn, x, w);
            llm_grid_choose(kind, x, w, LLM_BLOCK_RTN, &b);
            llm_grid_values(kind, &b, y);
            plain += error_of(x, y, w, N);
            llm_grid_choose(kind, x, w, LLM_BLOCK_SEARCH, &b);
            llm_grid_values(kind, &b, y);
            searched += error_of(x, y, w, N);
        }
        if (!(searched < plain * 0.97)) fail_msg("%s: %g against %g", llm_dtypes[t].name, searched, plain);
    }
}

static void stretched_values_are_as_long_as_the_given_ones(void **state)
{
    (void)state;
    EACH_WRITTEN(t, kind) {
        for (uint32_t turn = 0; turn < 20; turn++) {
            float x[N], w[N], y[N], zero[N] = {0};
            double xy = 0;
            struct llm_grid_block b;
            draw(turn, x, w);
            llm_grid_choose(kind, x, w, LLM_BLOCK_SEARCH, &b);
            llm_grid_values(kind, &b, y);
            const double xx = error_of(x, zero, w, N), error = error_of(x, y, w, N);
            llm_grid_stretch(kind, x, w, &b);
            llm_grid_values(kind, &b, y);
            for (int j = 0; j < N; j++) xy += (double)w[j] * (double)x[j] * (double)y[j];
            if (error < 0.15 * xx && fabs(xy - xx) > 0.002 * xx) fail_msg("%s: turn %u: %g for %g", llm_dtypes[t].name, turn, xy, xx);
            if (error_of(x, y, w, N) > error * 1.3) fail_msg("%s: turn %u: error", llm_dtypes[t].name, turn);
        }
    }
}

/* All 0, constants, one value, tiny and huge ones, weights that are 0: values stay within the type's reach of them. */
static void odd_blocks(void **state)
{
    (void)state;
    EACH_WRITTEN(t, kind) {
        for (int turn = 0; turn < 6; turn++) {
            float x[N], w[N], y[N], top = 0;
            struct llm_grid_block b;
            for (int j = 0; j < N; j++) {
                x[j] = turn == 0 ? 0 : turn == 1 ? 0.5f : turn == 2 ? -0.5f : turn == 3 ? (j == 5 ? 3.0f : 0)
                    : (turn == 4 ? 1e-20f : 1e3f) * (float)(j % 7 - 3);
                w[j] = turn % 2 ? 1.0f : 0.0f;
                top = fmaxf(top, fabsf(x[j]));
            }
            for (int effort = LLM_BLOCK_RTN; effort <= LLM_BLOCK_SEARCH; effort++) {
                llm_grid_choose(kind, x, w, (enum llm_block_effort)effort, &b);
                llm_grid_values(kind, &b, y);
                for (int j = 0; j < N; j++) {
                    if (fabsf(x[j] - y[j]) <= top * 1.2f + 1e-6f) continue;
                    fail_msg("%s: case %d: %g for %g", llm_dtypes[t].name, turn, (double)y[j], (double)x[j]);
                }
            }
        }
    }
}

static void bytes_are_a_function_of_the_block(void **state)
{
    enum { ROW = 512, ROWS = 20, ALL = ROW * ROWS };
    float *x = malloc(ALL * sizeof *x), importance[ROW];
    (void)state;
    assert_non_null(x);
    const struct llm_rng r = llm_rng_at(9, 0, LLM_RNG_TEST, 0, 0, 0);
    for (uint32_t i = 0; i < ALL; i++) x[i] = llm_rng_normal(&r, i) * 0.05f;
    for (uint32_t i = 0; i < ROW; i++) importance[i] = llm_rng_uniform(&r, ALL + i) + 0.1f;
    EACH_WRITTEN(t, kind) {
        const size_t bytes = llm_dtype_bytes((enum llm_dtype)t, ALL);
        unsigned char *one = malloc(bytes), *two = malloc(bytes), *plain = malloc(bytes);
        struct llm_quant_report report;
        struct llm_err e;
        struct llm_quant_job j = {.in = x, .out = one, .from = LLM_F32, .to = (enum llm_dtype)t, .n = ALL, .row = ROW, .importance = importance,
                                  .method = LLM_QUANT_GPTQ};
        assert_true(one && two && plain);
        llm_pool_stop();
        assert_int_equal(llm_pool_start(1, &e), 0);
        assert_int_equal(llm_quantize_tensor(&j, &report, &e), 0);
        assert_string_equal(report.method, "search"); /* without products of inputs */
        assert_true(report.weighted);
        llm_pool_stop();
        assert_int_equal(llm_pool_start(2, &e), 0);
        j.out = two;
        assert_int_equal(llm_quantize_tensor(&j, &report, &e), 0);
        assert_memory_equal(one, two, bytes);
        j.out = plain;
        j.importance = NULL;
        assert_int_equal(llm_quantize_tensor(&j, &report, &e), 0);
        assert_memory_not_equal(one, plain, bytes);
        free(one);
        free(two);
        free(plain);
    }
    free(x);
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_packed_opens_to_its_parts), cmocka_unit_test(points_are_the_best),
                                       cmocka_unit_test(searched_scales_leave_less_error),
                                       cmocka_unit_test(stretched_values_are_as_long_as_the_given_ones), cmocka_unit_test(odd_blocks),
                                       cmocka_unit_test(bytes_are_a_function_of_the_block)};
    if (llm_pool_start(2, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
