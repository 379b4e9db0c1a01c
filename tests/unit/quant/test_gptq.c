/* GPTQ: less error of outputs than rounding by itself where inputs are correlated; the same codes where they are not; deficient products; threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "cpu/pool.h"
#include "quant/block.h"
#include "quant/gptq.h"
#include "quant/grid.h"

enum { K = 256, ROWS = 20, N = K * ROWS, TOKENS = 600, RANK = 40 };
static float w[N], x[TOKENS * K], products[K * K], importance[K];

/* Inputs that are mixtures of `rank` hidden ones, with `noise` of their own. */
static void draw(int tokens, int rank, float noise)
{
    struct llm_rng r = llm_rng_at(4, 0, LLM_RNG_TEST, 0, 0, 0), s = llm_rng_at(4, 1, LLM_RNG_TEST, 0, 0, 0);
    static float mixing[RANK * K];
    for (uint32_t i = 0; i < N; i++) w[i] = llm_rng_normal(&r, i);
    for (uint32_t i = 0; i < RANK * K; i++) mixing[i] = llm_rng_normal(&r, N + i);
    memset(products, 0, sizeof products);
    for (int t = 0; t < tokens; t++) {
        for (int j = 0; j < K; j++) {
            float v = noise * llm_rng_normal(&s, (uint32_t)(t * 1000 + j));
            for (int k = 0; k < rank; k++) v += llm_rng_normal(&s, (uint32_t)(t * 1000 + 500 + k)) * mixing[k * K + j] / 6;
            x[t * K + j] = v;
        }
        for (int i = 0; i < K; i++)
            for (int j = 0; j < K; j++) products[i * K + j] += x[t * K + i] * x[t * K + j];
    }
    for (int j = 0; j < K; j++) importance[j] = products[j * K + j] / (float)tokens;
}

/* Σ (x·(w - v))² over all tokens and rows. */
static double output_error(enum llm_dtype t, const void *blocks)
{
    static float v[N];
    double sum = 0;
    llm_dtypes[t].decode(blocks, v, N);
    for (int i = 0; i < ROWS; i++) {
        for (int a = 0; a < K; a++) {
            for (int b = 0; b < K; b++) {
                sum += (double)(w[i * K + a] - v[i * K + a]) * (double)products[a * K + b] * (double)(w[i * K + b] - v[i * K + b]);
            }
        }
    }
    return sum;
}

static struct llm_quant_job job_of(enum llm_dtype t, enum llm_quant_method method, void *out)
{
    return (struct llm_quant_job){.in = w, .out = out, .from = LLM_F32, .to = t, .n = N, .row = K, .importance = importance, .products = products,
                                  .method = method};
}

static bool is_written(int t)
{
    const struct llm_grid_kind *grid = llm_grid_kind_of((enum llm_dtype)t);
    return llm_block_kind_of((enum llm_dtype)t) || (grid && grid->pack);
}

#define EACH_KIND(t) for (int t = 0; t < LLM_N_DTYPES; t++) if (is_written(t))

static void correlated_inputs_lose_less(void **state)
{
    static unsigned char a[N * 2], b[N * 2];
    struct llm_quant_report r;
    struct llm_err e;
    (void)state;
    draw(TOKENS, RANK, 0.1f);
    EACH_KIND(t) {
        struct llm_quant_job plain = job_of((enum llm_dtype)t, LLM_QUANT_SEARCH, a), gptq = job_of((enum llm_dtype)t, LLM_QUANT_GPTQ, b);
        assert_int_equal(llm_quantize_tensor(&plain, &r, &e), 0);
        assert_true(r.damping == 0);
        double rmse = r.rmse;
        assert_int_equal(llm_quantize_tensor(&gptq, &r, &e), 0);
        assert_string_equal(r.method, "gptq");
        assert_true(r.damping == 0.01 && r.weighted && r.rmse > rmse); /* the weights are farther away, the outputs nearer */
        double before = output_error((enum llm_dtype)t, a), after = output_error((enum llm_dtype)t, b);
        if (!(after < before * 0.7)) fail_msg("%s: %g against %g", llm_dtypes[t].name, after, before);
        gptq.products = NULL; /* then the method is the type's own */
        gptq.out = b;
        assert_int_equal(llm_quantize_tensor(&gptq, &r, &e), 0);
        assert_string_equal(r.method, "search");
        assert_memory_equal(a, b, llm_dtype_bytes((enum llm_dtype)t, N));
    }
}

/* tr(out·delta·products·deltaᵀ): the error that the factors of the curvature measure. */
static double curved_error(enum llm_dtype t, const void *blocks, const float *out)
{
    static float v[N];
    static double right[ROWS][K];
    double sum = 0;
    llm_dtypes[t].decode(blocks, v, N);
    for (int i = 0; i < ROWS; i++) {
        for (int b = 0; b < K; b++) {
            right[i][b] = 0;
            for (int a = 0; a < K; a++) right[i][b] += (double)(w[i * K + a] - v[i * K + a]) * (double)products[a * K + b];
        }
    }
    for (int i = 0; i < ROWS; i++) {
        for (int h = 0; h < ROWS; h++) {
            for (int b = 0; b < K; b++) sum += (double)out[i * ROWS + h] * right[i][b] * (double)(w[h * K + b] - v[h * K + b]);
        }
    }
    return sum;
}

/* Outputs whose gradients are correlated make up for each other's errors. If they are not correlated the codes are those of GPTQ. */
static void correlated_outputs_lose_less(void **state)
{
    static unsigned char a[N * 2], b[N * 2];
    static float out[ROWS * ROWS];
    struct llm_quant_report r;
    struct llm_err e;
    (void)state;
    draw(TOKENS, RANK, 0.1f);
    EACH_KIND(t) {
        struct llm_quant_job gptq = job_of((enum llm_dtype)t, LLM_QUANT_GPTQ, a), kl = job_of((enum llm_dtype)t, LLM_QUANT_KL, b);
        for (int i = 0; i < ROWS * ROWS; i++) out[i] = i / ROWS == i % ROWS ? 1 + (float)(i % ROWS) / 100 : 0;
        kl.gradients = out;
        assert_int_equal(llm_quantize_tensor(&gptq, &r, &e), 0);
        assert_int_equal(llm_quantize_tensor(&kl, &r, &e), 0);
        assert_string_equal(r.method, "kl");
        assert_true(fabs(curved_error((enum llm_dtype)t, a, out) / curved_error((enum llm_dtype)t, b, out) - 1) < 0.01);
        for (int i = 0; i < ROWS * ROWS; i++) out[i] = i / ROWS == i % ROWS ? 1 : 0.9f;
        llm_pool_stop();
        assert_int_equal(llm_pool_start(1, &e), 0);
        assert_int_equal(llm_quantize_tensor(&kl, &r, &e), 0);
        double before = curved_error((enum llm_dtype)t, a, out), after = curved_error((enum llm_dtype)t, b, out);
        if (!(after < before * 0.8)) fail_msg("%s: %g against %g", llm_dtypes[t].name, after, before);
        llm_pool_stop();
        assert_int_equal(llm_pool_start(3, &e), 0);
        kl.out = a;
        assert_int_equal(llm_quantize_tensor(&kl, &r, &e), 0);
        assert_memory_equal(a, b, llm_dtype_bytes((enum llm_dtype)t, N));
    }
}

/* Gradients of fewer tokens than there are rows say little of other texts: where outputs are in truth not correlated, less is lost by believing
 * them than with the damping of inputs (three to six times the error). */
static void few_gradients_are_not_believed(void **state)
{
    static unsigned char a[N * 2], b[N * 2];
    static float out[ROWS * ROWS], of[8 * ROWS];
    struct llm_rng g = llm_rng_at(4, 2, LLM_RNG_TEST, 0, 0, 0);
    struct llm_quant_report r;
    struct llm_err e;
    (void)state;
    draw(TOKENS, RANK, 0.1f);
    for (uint32_t i = 0; i < 8 * ROWS; i++) of[i] = llm_rng_normal(&g, i);
    for (int i = 0; i < ROWS * ROWS; i++) {
        out[i] = 0;
        for (int t = 0; t < 8; t++) out[i] += of[t * ROWS + i / ROWS] * of[t * ROWS + i % ROWS];
    }
    EACH_KIND(t) {
        struct llm_quant_job gptq = job_of((enum llm_dtype)t, LLM_QUANT_GPTQ, a), kl = job_of((enum llm_dtype)t, LLM_QUANT_KL, b);
        kl.gradients = out;
        assert_int_equal(llm_quantize_tensor(&gptq, &r, &e), 0);
        assert_int_equal(llm_quantize_tensor(&kl, &r, &e), 0);
        const double before = output_error((enum llm_dtype)t, a), after = output_error((enum llm_dtype)t, b);
        if (!(after < before * 2)) fail_msg("%s: %g against %g", llm_dtypes[t].name, after, before);
    }
}

/* Without correlations nothing can be made up for: the codes are those of the search. */
static void independent_inputs_change_nothing(void **state)
{
    static unsigned char a[N * 2], b[N * 2];
    struct llm_quant_report r;
    struct llm_err e;
    (void)state;
    draw(TOKENS, 0, 1);
    for (int i = 0; i < K; i++)
        for (int j = 0; j < K; j++)
            if (i != j) products[i * K + j] = 0;
    EACH_KIND(t) {
        struct llm_quant_job plain = job_of((enum llm_dtype)t, LLM_QUANT_SEARCH, a), gptq = job_of((enum llm_dtype)t, LLM_QUANT_GPTQ, b);
        assert_int_equal(llm_quantize_tensor(&plain, &r, &e), 0);
        assert_int_equal(llm_quantize_tensor(&gptq, &r, &e), 0);
        double before = output_error((enum llm_dtype)t, a), after = output_error((enum llm_dtype)t, b);
        assert_true(after <= before * 1.02);
    }
}

/* Five tokens for 256 inputs, some of them always 0, or all: the damping makes the factor exist. */
static void deficient_products(void **state)
{
    static unsigned char a[N * 2], b[N * 2];
    struct llm_quant_report r;
    struct llm_err e;
    (void)state;
    draw(5, RANK, 0);
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < K && turn > 0; i++)
            for (int j = 0; j < K; j++)
                if (turn == 2 || i % 7 == 3 || j % 7 == 3) products[i * K + j] = 0;
        struct llm_quant_job job = job_of(LLM_Q4_K, LLM_QUANT_GPTQ, a);
        llm_pool_stop();
        assert_int_equal(llm_pool_start(1, &e), 0);
        assert_int_equal(llm_quantize_tensor(&job, &r, &e), 0);
        assert_true(r.damping >= 0.01 && isfinite(r.rmse));
        llm_pool_stop();
        assert_int_equal(llm_pool_start(3, &e), 0);
        job.out = b;
        assert_int_equal(llm_quantize_tensor(&job, &r, &e), 0);
        assert_memory_equal(a, b, llm_dtype_bytes(LLM_Q4_K, N));
    }
    products[0] = -1e9f; /* no matrix of products: the damping rises until it is one */
    for (int j = 1; j < K; j++) products[j * K + j] = 1;
    products[1] = products[K] = 50;
    struct llm_quant_job job = job_of(LLM_Q4_K, LLM_QUANT_GPTQ, a);
    int status = llm_quantize_tensor(&job, &r, &e);
    assert_true(status == 0 ? r.damping > 0.01 : e.status == EX_DATAERR);
    products[5] = products[5 * K] = NAN;
    assert_int_equal(llm_quantize_tensor(&job, &r, &e), -1);
    assert_string_equal(e.text, "GPTQ: expected finite products of inputs, found others");
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(correlated_inputs_lose_less), cmocka_unit_test(correlated_outputs_lose_less),
                                       cmocka_unit_test(few_gradients_are_not_believed),
                                       cmocka_unit_test(independent_inputs_change_nothing), cmocka_unit_test(deficient_products)};
    if (llm_pool_start(2, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
