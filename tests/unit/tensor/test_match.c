/* Distances of vectors from given ones against PyTorch's in double precision (tests/oracle/match.py), with a projection and without; vectors of no
 * length have no direction. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "cpu/pool.h"
#include "tensor/ops.h"
#include "tests/unit/near.h"

enum { MAX_ROWS = 16, MAX_COLS = 64 };

static float number(int64_t i, int64_t j, int64_t cols, int k)
{
    return (float)sin(1 + k + 1.7 * (double)(i * cols) + 1.7 * (double)j + .3 * (double)(i * j));
}

static void fill(float *x, int64_t rows, int64_t cols, int k)
{
    for (int64_t i = 0; i < rows * cols; i++) x[i] = number(i / cols, i % cols, cols, k);
}

static void measure(const float *g, int64_t rows, int64_t cols, int k, double *norm, double *product)
{
    *norm = *product = 0;
    for (int64_t i = 0; i < rows * cols; i++) {
        *norm += (double)g[i] * (double)g[i];
        *product += (double)g[i] * (double)number(i / cols, i % cols, cols, k);
    }
    *norm = sqrt(*norm);
}

/* loss, and norm and product of the gradients by x and by w */
static void run(int64_t n, int64_t d, int64_t e, bool cosine, double got[5])
{
    struct llm_ctx c;
    struct llm_err err;
    float w[MAX_ROWS * 2 * MAX_COLS], dw[MAX_ROWS * 2 * MAX_COLS] = {0}, loss[MAX_ROWS], cosines[MAX_ROWS];
    int32_t counts[MAX_ROWS];
    int64_t counted = 0;
    fill(w, e, d, 2);
    struct llm_param p = {.name = "w", .n_dims = 2, .shape = {e, d}, .weight = {.data = w, .dtype = LLM_F32, .n = e, .k = d}, .grad = dw};
    assert_int_equal(llm_ctx_init(&c, 1 << 24, 1 << 24, true, &err), 0);
    c.training = true;
    c.compute = LLM_COMPUTE_F32;
    struct llm_tensor *x = llm_tensor_create(&c, n, d), *target = llm_tensor_create(&c, n, e ? e : d);
    fill(x->data, n, d, 0);
    fill(target->data, n, e ? e : d, 3);
    x->needs_grad = true;
    const float *dx = llm_tensor_grad(&c, x);
    for (int64_t i = 0; i < n; i++) counted += (counts[i] = i % 3 == 2 ? -1 : 0) == 0;
    const struct llm_match o = {.cosine = cosine, .grad_scale = 1.0 / (double)counted, .target = target, .counts = counts, .loss = loss,
                                .cosines = cosines};
    llm_match(&c, e ? llm_linear(&c, x, &p, NULL) : x, &o);
    llm_backward(&c);
    if (llm_ctx_failed(&c)) fail_msg("%s", c.err.text);
    got[0] = 0;
    for (int64_t i = 0; i < n; i++) got[0] += (double)loss[i] / (double)counted;
    for (int64_t i = 0; i < n; i++) assert_true(counts[i] == 0 || (loss[i] == 0.0f && cosines[i] == 0.0f));
    measure(dx, n, d, 5, &got[1], &got[2]);
    measure(dw, e, d, 6, &got[3], &got[4]);
    llm_weight_release(&p.weight);
    llm_ctx_release(&c);
}

static void test_golden(void **state)
{
    FILE *f = fopen("tests/golden/match.tsv", "re");
    long long n, d, e;
    int cosine, lines = 0;
    double want[5], got[5];
    (void)state;
    assert_non_null(f);
    while (fscanf(f, "%lld %lld %lld %d %lf %lf %lf %lf %lf", &n, &d, &e, &cosine, &want[0], &want[1], &want[2], &want[3], &want[4]) == 9) {
        run(n, d, e, cosine, got);
        for (int i = 0; i < 5; i++) near(got[i], want[i], 1e-6, 1e-6);
        lines++;
    }
    fclose(f);
    assert_int_equal(lines, 10);
}

static void test_no_length(void **state)
{
    struct llm_ctx c;
    struct llm_err err;
    const int32_t counts[2] = {0, 0};
    float loss[2], cosines[2];
    (void)state;
    assert_int_equal(llm_ctx_init(&c, 1 << 20, 1 << 20, true, &err), 0);
    c.training = true;
    struct llm_tensor *x = llm_tensor_create(&c, 2, 3), *target = llm_tensor_create(&c, 2, 3);
    for (int i = 0; i < 6; i++) x->data[i] = i < 3 ? 0 : 1, target->data[i] = i < 3 ? 1 : 0;
    x->needs_grad = true;
    const float *dx = llm_tensor_grad(&c, x);
    llm_match(&c, x, &(struct llm_match){.cosine = true, .grad_scale = 1, .target = target, .counts = counts, .loss = loss, .cosines = cosines});
    for (int i = 0; i < 2; i++) assert_true(loss[i] == 1.0f && cosines[i] == 0.0f);
    for (int i = 0; i < 6; i++) assert_true(dx[i] == 0.0f);
    llm_ctx_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_no_length)};
    struct llm_err e;
    if (llm_pool_start(2, &e) < 0) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
