/* The contrastive loss against PyTorch's in double precision (tests/oracle/contrastive.py), and what must hold of it: equal vectors cost ln n each,
 * the scale begins at ln(1/.07), and beyond 100 only what brings it back moves it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "cpu/pool.h"
#include "model/model.h"
#include "tests/unit/near.h"

enum { MOST = 64 };

static double number(int64_t i, int64_t j, int64_t cols, int k)
{
    return sin(1 + k + 1.7 * (double)(i * cols) + 1.7 * (double)j + .3 * (double)(i * j));
}

struct result { double loss, d_scale, norm, product; };

static struct result run(int64_t n, int64_t d, float s, bool equal, bool fixed)
{
    struct llm_ctx c;
    struct llm_err e;
    float losses[MOST], d_scale = 0;
    struct result r = {0};
    struct llm_param scale = {.name = "logit_scale", .n_dims = 1, .shape = {1}, .weight = {.data = &s, .dtype = LLM_F32}, .grad = &d_scale};
    assert_int_equal(llm_ctx_init(&c, 1 << 24, 1 << 24, true, &e), 0);
    c.training = true;
    struct llm_tensor *x = llm_tensor_create(&c, 2 * n, d);
    x->needs_grad = true;
    for (int64_t i = 0; i < 2 * n; i++) {
        for (int64_t j = 0; j < d; j++) x->data[i * d + j] = (float)(equal ? 1 : number(i, j, d, 0));
    }
    float *dx = llm_tensor_grad(&c, x);
    assert_non_null(dx);
    llm_contrastive(&c, llm_unit(&c, x), &scale, &(struct llm_contrastive){.grad_scale = 1.0 / (double)n, .fixed = fixed, .loss = losses});
    llm_backward(&c);
    if (llm_ctx_failed(&c)) fail_msg("%s", c.err.text);
    for (int64_t i = 0; i < n; i++) r.loss += (double)losses[i] / (double)n;
    for (int64_t i = 0; i < 2 * n * d; i++) {
        double g = (double)x->grad[i];
        r.norm += g * g;
        r.product += g * number(i / d, i % d, d, 5);
    }
    r.norm = sqrt(r.norm);
    r.d_scale = (double)d_scale;
    llm_ctx_release(&c);
    return r;
}

static void test_golden(void **state)
{
    FILE *f = fopen("tests/golden/contrastive.tsv", "re");
    long long n, d;
    double s;
    struct result want;
    int lines = 0;
    (void)state;
    assert_non_null(f);
    while (fscanf(f, "%lld %lld %lf %lf %lf %lf %lf", &n, &d, &s, &want.loss, &want.d_scale, &want.norm, &want.product) == 7) {
        struct result r = run(n, d, (float)s, false, false);
        near(r.loss, want.loss, 2e-6, 2e-6);
        if (s < log(100.0)) near(r.d_scale, want.d_scale, 5e-6, 5e-6);
        near(r.norm, want.norm, 5e-6, 5e-6);
        near(r.product, want.product, 1e-5, 1e-5);
        lines++;
    }
    fclose(f);
    assert_int_equal(lines, 5);
}

static void test_laws(void **state)
{
    struct llm_config c;
    struct llm_err e;
    (void)state;
    near(run(9, 6, 2.6592f, true, false).loss, log(9), 1e-6, 1e-6);
    near(run(9, 6, 2.6592f, true, false).norm, 0, 1e-6, 1e-6);
    assert_true(run(9, 6, 2.6592f, false, true).d_scale == 0);
    /* this batch is ordered badly: a smaller scale is better, and is let through */
    assert_true(run(6, 9, 4.7f, false, false).d_scale > 0);
    static const char *const sets[] = {"contrastive=true", "vocab_size=10", "hidden_size=8", "num_attention_heads=1", "num_key_value_heads=1"};
    if (llm_config_load(&c, "tiny", sets, 5, &e) < 0) fail_msg("%s", e.text);
    struct llm_model *m = llm_model_create(&c, 1, &e);
    assert_non_null(m);
    near(((const float *)llm_model_find(m, "logit_scale")->weight.data)[0], log(1 / .07), 1e-4, 1e-4);
    llm_model_destroy(m);
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_laws)};
    if (llm_pool_start(2, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
