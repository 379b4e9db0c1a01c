/* Blocks: what is packed decodes to the values of its parts; searched scales leave less weighted error than those of the range; odd inputs; bytes do
 * not depend on threads or on what else is in the piece. */
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
#include "quant/block.h"
#include "quant/quant.h"

#define EACH_KIND(t, kind) \
    for (int t = 0; t < LLM_N_DTYPES; t++) \
        for (const struct llm_block_kind *kind = llm_block_kind_of((enum llm_dtype)t); kind; kind = NULL)

static int draw(struct llm_rng *r, uint32_t at, int from, int to)
{
    return from + (int)(llm_rng_uniform(r, at) * (float)(to - from));
}

static void what_is_packed_decodes_to_its_parts(void **state)
{
    (void)state;
    EACH_KIND(t, kind) {
        for (uint32_t turn = 0; turn < 50; turn++) {
            struct llm_rng r = llm_rng_at(7, turn, LLM_RNG_TEST, (uint32_t)t, 0, 0);
            struct llm_block b = {.d = kind->round(llm_rng_uniform(&r, 0) + 0.01f), .least = kind->low_max ? kind->round(llm_rng_uniform(&r, 1)) : 0};
            unsigned char packed[300];
            float values[LLM_BLOCK_MAX];
            if (kind->low_max == 1 && turn % 2) b.least = -b.least;
            for (uint32_t g = 0; g < LLM_BLOCK_GROUPS; g++) {
                b.scale[g] = kind->scales ? kind->scales[draw(&r, 10 + g, 0, kind->n_scales)]
                                          : draw(&r, 10 + g, kind->scale_min, kind->scale_max + 1);
                b.low[g] = (uint8_t)(kind->low_max == 1 ? 1 : draw(&r, 30 + g, 0, kind->low_max + 1));
            }
            for (uint32_t j = 0; j < (uint32_t)kind->size; j++) b.q[j] = (uint8_t)draw(&r, 50 + j, kind->first_code, kind->n_codes);
            kind->pack(&b, packed);
            llm_dtypes[t].decode(packed, values, (size_t)kind->size);
            for (int j = 0; j < kind->size; j++) {
                float want = llm_block_value(kind, &b, j / kind->group, b.q[j]);
                if (values[j] != want) fail_msg("%s: element %d: %g, not %g", llm_dtypes[t].name, j, (double)values[j], (double)want);
            }
        }
    }
}

/* Values as weights of models have them, a few of them large; weights between 0 and 2. */
static void values_of(uint32_t turn, float *x, float *w)
{
    struct llm_rng r = llm_rng_at(8, turn, LLM_RNG_TEST, 0, 0, 0);
    for (uint32_t j = 0; j < LLM_BLOCK_MAX; j++) {
        x[j] = llm_rng_normal(&r, j) * (j % 61 == 7 ? 0.3f : 0.04f) + (turn % 3 == 0 ? 0.03f : 0);
        w[j] = llm_rng_uniform(&r, 1000 + j) * 2;
    }
}

static double error_of(const struct llm_block_kind *kind, const struct llm_block *b, const float *x, const float *w)
{
    double sum = 0;
    for (int j = 0; j < kind->size; j++) {
        double d = (double)(x[j] - llm_block_value(kind, b, j / kind->group, b->q[j]));
        sum += (double)w[j] * d * d;
    }
    return sum;
}

static void searched_scales_leave_less_error(void **state)
{
    float x[LLM_BLOCK_MAX], w[LLM_BLOCK_MAX];
    struct llm_block b;
    (void)state;
    EACH_KIND(t, kind) {
        double plain = 0, searched = 0;
        for (uint32_t turn = 0; turn < 60; turn++) {
            values_of(turn, x, w);
            llm_block_choose(kind, x, w, LLM_BLOCK_RTN, &b);
            plain += error_of(kind, &b, x, w);
            llm_block_choose(kind, x, w, LLM_BLOCK_SEARCH, &b);
            searched += error_of(kind, &b, x, w);
            for (int j = 0; j < kind->size; j++) assert_in_range(b.q[j], kind->first_code, kind->n_codes - 1);
            for (int g = 0; g < kind->size / kind->group; g++) {
                assert_true(b.scale[g] >= kind->scale_min && b.scale[g] <= kind->scale_max && b.low[g] <= kind->low_max);
            }
        }
        if (!(searched < plain * (t == LLM_Q8_0 ? 1.0001 : 0.97))) fail_msg("%s: %g against %g", llm_dtypes[t].name, searched, plain);
    }
}

/* Of the values x and of these alone: as long as x within what half precision leaves of scales, and little more error. */
static void stretched_values_are_as_long_as_the_given_ones(void **state)
{
    float x[LLM_BLOCK_MAX], w[LLM_BLOCK_MAX];
    struct llm_block b;
    (void)state;
    EACH_KIND(t, kind) {
        for (uint32_t turn = 0; turn < 60; turn++) {
            double xx = 0, xy = 0;
            values_of(turn, x, w);
            llm_block_choose(kind, x, w, LLM_BLOCK_SEARCH, &b);
            const struct llm_block before = b;
            const double error = error_of(kind, &b, x, w);
            llm_block_stretch(kind, x, w, &b);
            for (int j = 0; j < kind->size; j++) {
                xx += (double)w[j] * (double)x[j] * (double)x[j];
                xy += (double)w[j] * (double)x[j] * (double)llm_block_value(kind, &b, j / kind->group, b.q[j]);
            }
            if (kind->scales || kind->round(3) != 3) assert_memory_equal(&b, &before, sizeof b); /* lists and powers of two */
            else if (error < 0.15 * xx && xy < xx * 0.998) fail_msg("%s: turn %u: %g for %g", llm_dtypes[t].name, turn, xy, xx);
            if (error < 0.15 * xx && error_of(kind, &b, x, w) > error * 1.3 + xx * 1e-5) fail_msg("%s: turn %u: error", llm_dtypes[t].name, turn);
        }
    }
}

static void odd_blocks(void **state)
{
    float x[LLM_BLOCK_MAX] = {0}, w[LLM_BLOCK_MAX] = {0}, y[LLM_BLOCK_MAX];
    unsigned char packed[300];
    struct llm_block b;
    (void)state;
    EACH_KIND(t, kind) {
        for (int turn = 0; turn < (kind->scales ? 5 : 6); turn++) { /* all 0; constants; one value; tiny ones; huge ones, beyond NVFP4's 2,688 */
            for (int j = 0; j < LLM_BLOCK_MAX; j++) {
                x[j] = turn == 0 ? 0 : turn == 1 ? 0.5f : turn == 2 ? -0.5f : turn == 3 ? (j == 5 ? 3.0f : 0)
                    : (turn == 4 ? 1e-20f : 1e4f) * (float)(j % 7 - 3);
                w[j] = turn % 2 ? 1.0f : 0.0f; /* weights that are all 0 count as 1 */
            }
            for (int effort = LLM_BLOCK_RTN; effort <= LLM_BLOCK_SEARCH; effort++) {
                float top = 0;
                llm_block_choose(kind, x, w, (enum llm_block_effort)effort, &b);
                kind->pack(&b, packed);
                llm_dtypes[t].decode(packed, y, (size_t)kind->size);
                for (int j = 0; j < kind->size; j++) top = fmaxf(top, fabsf(x[j]));
                for (int j = 0; j < kind->size; j++) {
                    if (!(fabsf(x[j] - y[j]) <= top * 0.35f + 1e-7f)) {
                        fail_msg("%s: case %d: element %d: %g for %g", llm_dtypes[t].name, turn, j, (double)y[j], (double)x[j]);
                    }
                }
            }
        }
    }
}

/* The same bytes for any number of threads, and for a tensor alone or behind other rows; importances change them. */
/* Of a group with one weighted element, or with equal ones, all levels may be the same: what rounding leaves of them is no slope. */
static void levels_that_are_equal_give_no_scale(void **state)
{
    (void)state;
    EACH_KIND(t, kind) {
        for (uint32_t turn = 0; turn < 400; turn++) {
            struct llm_rng r = llm_rng_at(9, turn, LLM_RNG_TEST, (uint32_t)t, 0, 0);
            float x[LLM_BLOCK_MAX], w[LLM_BLOCK_MAX];
            struct llm_block b;
            for (uint32_t j = 0; j < (uint32_t)kind->size; j++) {
                const bool counts = (int)j % kind->group == (int)turn % kind->group;
                x[j] = turn % 2 ? 0.3f * llm_rng_uniform(&r, j / (uint32_t)kind->group) : 0.05f * llm_rng_normal(&r, j);
                w[j] = counts || turn % 2 ? llm_rng_uniform(&r, 1000 + j) : 0;
            }
            llm_block_choose(kind, x, w, LLM_BLOCK_SEARCH, &b);
            for (int j = 0; j < kind->size; j++) {
                const float y = llm_block_value(kind, &b, j / kind->group, b.q[j]);
                if (!(fabsf(y) < 10)) fail_msg("%s, turn %d, element %d: %g became %g", llm_dtypes[t].name, (int)turn, j, (double)x[j], (double)y);
            }
        }
    }
}

static void bytes_are_a_function_of_the_block(void **state)
{
    enum { ROW = 512, ROWS = 40, N = ROW * ROWS };
    float *x = malloc(N * sizeof *x), importance[ROW];
    unsigned char *first = malloc(N * 2), *second = malloc(N * 2);
    struct llm_rng r = llm_rng_at(9, 0, LLM_RNG_TEST, 0, 0, 0);
    struct llm_quant_report report;
    struct llm_err e;
    (void)state;
    for (uint32_t i = 0; i < N; i++) x[i] = llm_rng_normal(&r, i);
    for (int i = 0; i < ROW; i++) importance[i] = i % 3 == 0 ? 5.0f : 0.1f;
    EACH_KIND(t, kind) {
        for (int method = LLM_QUANT_RTN; method <= LLM_QUANT_SEARCH; method++) {
            struct llm_quant_job job = {.in = x, .out = first, .from = LLM_F32, .to = (enum llm_dtype)t, .n = N, .row = ROW, .importance = importance,
                                        .method = (enum llm_quant_method)method};
            size_t bytes = llm_dtype_bytes(job.to, N), half = llm_dtype_bytes(job.to, N / 2);
            assert_int_equal(llm_pool_start(1, &e), 0);
            assert_int_equal(llm_quantize_tensor(&job, &report, &e), 0);
            assert_string_equal(report.method, llm_quant_methods[method]);
            llm_pool_stop();
            assert_int_equal(llm_pool_start(3, &e), 0);
            job.out = second;
            assert_int_equal(llm_quantize_tensor(&job, &report, &e), 0);
            llm_pool_stop();
            assert_memory_equal(first, second, bytes);
            job.in = x + N / 2;
            job.n = N / 2;
            assert_int_equal(llm_pool_start(2, &e), 0);
            assert_int_equal(llm_quantize_tensor(&job, &report, &e), 0);
            assert_memory_equal(first + half, second, half);
            job.importance = NULL;
            assert_int_equal(llm_quantize_tensor(&job, &report, &e), 0);
            llm_pool_stop();
            if (method == LLM_QUANT_SEARCH && t != LLM_Q8_0) assert_true(memcmp(first + half, second, half) != 0);
        }
    }
    float large[256] = {1e30f};
    struct llm_quant_job job = {.in = large, .out = first, .from = LLM_F32, .to = LLM_Q4_K, .n = 256, .row = 256};
    assert_int_equal(llm_pool_start(1, &e), 0);
    assert_int_equal(llm_quantize_tensor(&job, &report, &e), -1);
    assert_string_equal(e.text, "expected values that q4_k can represent, found larger ones");
    llm_pool_stop();
    free(x);
    free(first);
    free(second);
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_packed_decodes_to_its_parts), cmocka_unit_test(searched_scales_leave_less_error),
                                       cmocka_unit_test(stretched_values_are_as_long_as_the_given_ones), cmocka_unit_test(odd_blocks),
                                       cmocka_unit_test(levels_that_are_equal_give_no_scale),
                                       cmocka_unit_test(bytes_are_a_function_of_the_block)};
    if (llm_pool_start(2, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
