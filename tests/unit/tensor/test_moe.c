/* Properties of routers and mixtures, of Gumbel-softmax and straight-through gradients too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/pool.h"
#include "tensor/ops.h"
#include "tests/unit/near.h"

enum { TOKENS = 40, HIDDEN = 24, WIDTH = 32, EXPERTS = 6 };

struct fixture {
    struct llm_ctx c;
    float *w[3 * EXPERTS];
    struct llm_param p[3 * EXPERTS], *at[3 * EXPERTS];
    struct llm_experts experts;
    struct llm_tensor *x, *logits;
};

static float *normals(int64_t n, uint32_t number, double spread)
{
    float *v = malloc((size_t)n * sizeof *v);
    struct llm_rng r = llm_rng_at(31, 0, LLM_RNG_TEST, number, 0, 0);
    for (int64_t i = 0; i < n; i++) v[i] = (float)(spread * (double)llm_rng_normal(&r, (uint32_t)i));
    return v;
}

/* equal: all experts have the weights of the first. */
static void make(struct fixture *f, bool equal)
{
    struct llm_err e;
    memset(f, 0, sizeof *f);
    assert_int_equal(llm_ctx_init(&f->c, (size_t)64 << 20, (size_t)64 << 20, true, &e), 0);
    f->c.n_rows = 2;
    f->c.row_len = TOKENS / 2;
    f->c.seed = 3;
    for (uint32_t i = 0; i < 3 * EXPERTS; i++) {
        bool down = i >= 2 * EXPERTS;
        f->w[i] = normals(HIDDEN * WIDTH, equal ? i / EXPERTS : i, .3);
        f->p[i] = (struct llm_param){.name = "w", .n_dims = 2, .shape = {down ? HIDDEN : WIDTH, down ? WIDTH : HIDDEN},
                                     .weight = {.data = f->w[i], .dtype = LLM_F32, .n = down ? HIDDEN : WIDTH, .k = down ? WIDTH : HIDDEN}};
        f->at[i] = &f->p[i];
    }
    f->experts = (struct llm_experts){EXPERTS, f->at, f->at + EXPERTS, f->at + 2 * EXPERTS, LLM_ACT_SILU, NULL};
    float *x = normals(TOKENS * HIDDEN, 100, 1), *logits = normals(TOKENS * EXPERTS, 101, 2);
    f->x = llm_tensor_create(&f->c, TOKENS, HIDDEN);
    f->logits = llm_tensor_create(&f->c, TOKENS, EXPERTS);
    memcpy(f->x->data, x, TOKENS * HIDDEN * sizeof *x);
    memcpy(f->logits->data, logits, TOKENS * EXPERTS * sizeof *x);
    f->x->needs_grad = f->logits->needs_grad = true;
    free(x);
    free(logits);
}

static void drop(struct fixture *f)
{
    assert_int_equal(f->c.err.status, 0);
    for (int i = 0; i < 3 * EXPERTS; i++) {
        llm_weight_release(&f->p[i].weight);
        free(f->w[i]);
    }
    llm_ctx_release(&f->c);
}

static struct llm_tensor *dense(struct fixture *f, int expert)
{
    struct llm_tensor *gate = llm_linear(&f->c, f->x, &f->p[expert], NULL), *up = llm_linear(&f->c, f->x, &f->p[EXPERTS + expert], NULL);
    return llm_linear(&f->c, llm_gated(&f->c, gate, up, LLM_ACT_SILU), &f->p[2 * EXPERTS + expert], NULL);
}

static void agree(const struct llm_tensor *found, const float *expected)
{
    for (int64_t i = 0; i < found->rows * found->cols; i++) near((double)found->data[i], (double)expected[i], 0, 1e-5);
}

static void test_equal_experts_are_dense(void **state)
{
    struct fixture f;
    const int32_t *chosen;
    (void)state;
    make(&f, true);
    const struct llm_route o = {.k = 3, .normalise = true, .scale = 1};
    struct llm_tensor *weights = llm_route(&f.c, f.logits, &o, &chosen);
    agree(llm_mixture(&f.c, f.x, weights, chosen, &f.experts), dense(&f, 0)->data);
    drop(&f);
}

static void test_all_experts_are_the_full_mixture(void **state)
{
    struct fixture f;
    const int32_t *chosen;
    static float want[TOKENS * HIDDEN];
    (void)state;
    make(&f, false);
    const struct llm_route o = {.k = EXPERTS, .scale = 1};
    struct llm_tensor *weights = llm_route(&f.c, f.logits, &o, &chosen), *p = llm_softmax(&f.c, f.logits);
    memset(want, 0, sizeof want);
    for (int e = 0; e < EXPERTS; e++) {
        struct llm_tensor *y = dense(&f, e);
        for (int t = 0; t < TOKENS; t++)
            for (int i = 0; i < HIDDEN; i++) want[t * HIDDEN + i] += p->data[t * EXPERTS + e] * y->data[t * HIDDEN + i];
    }
    agree(llm_mixture(&f.c, f.x, weights, chosen, &f.experts), want);
    drop(&f);
}

/* A token's result is the same bits alone and in company. */
static void test_alone_and_together(void **state)
{
    struct fixture f;
    const int32_t *chosen;
    float *whole = malloc(TOKENS * HIDDEN * sizeof *whole);
    (void)state;
    make(&f, false);
    const struct llm_route o = {.k = 2, .normalise = true, .scale = 1};
    struct llm_tensor *weights = llm_route(&f.c, f.logits, &o, &chosen);
    memcpy(whole, llm_mixture(&f.c, f.x, weights, chosen, &f.experts)->data, TOKENS * HIDDEN * sizeof *whole);
    f.c.n_rows = 1;
    for (int64_t t = 0; t < TOKENS; t++) {
        struct llm_tensor *x = llm_tensor_create(&f.c, 1, HIDDEN), *logits = llm_tensor_create(&f.c, 1, EXPERTS);
        memcpy(x->data, f.x->data + t * HIDDEN, HIDDEN * sizeof(float));
        memcpy(logits->data, f.logits->data + t * EXPERTS, EXPERTS * sizeof(float));
        weights = llm_route(&f.c, logits, &o, &chosen);
        assert_memory_equal(llm_mixture(&f.c, x, weights, chosen, &f.experts)->data, whole + t * HIDDEN, HIDDEN * sizeof(float));
    }
    free(whole);
    drop(&f);
}

/* DeepSeek-V3: the bias chooses, scores without it weigh. */
static void test_bias_chooses_alone(void **state)
{
    struct fixture f;
    const int32_t *chosen;
    float b[EXPERTS] = {0, 0, 0, 0, 9, 9};
    struct llm_param bias = {.name = "bias", .n_dims = 1, .shape = {EXPERTS}, .weight = {.data = b, .dtype = LLM_F32, .n = EXPERTS, .k = 1}};
    (void)state;
    make(&f, false);
    const struct llm_route o = {.k = 2, .sigmoid = true, .scale = 2.5, .bias = &bias};
    struct llm_tensor *weights = llm_route(&f.c, f.logits, &o, &chosen);
    for (int t = 0; t < TOKENS; t++) {
        for (int s = 0; s < 2; s++) {
            double logit = (double)f.logits->data[t * EXPERTS + 4 + s];
            assert_int_equal(chosen[t * 2 + s], 4 + s);
            assert_true(fabs((double)weights->data[t * 2 + s] - 2.5 / (1 + exp(-logit))) < 1e-6);
        }
    }
    drop(&f);
}

/* Of 4 groups of 2, the best by their best two; experts outside are never chosen. */
static void test_groups(void **state)
{
    struct llm_err e;
    struct llm_ctx c = {.n_rows = 1};
    const int32_t *chosen;
    (void)state;
    assert_int_equal(llm_ctx_init(&c, (size_t)1 << 20, 64, false, &e), 0);
    struct llm_tensor *x = llm_tensor_create(&c, 1, 8);
    memcpy(x->data, (const float[]){5, -9, 2, 2.1f, 1, 1, 2.2f, 1.8f}, 8 * sizeof(float));
    const struct llm_route two = {.k = 3, .sigmoid = true, .scale = 1, .n_group = 4, .topk_group = 2, .group_top = 2};
    const struct llm_route one = {.k = 3, .sigmoid = true, .scale = 1, .n_group = 4, .topk_group = 2, .group_top = 1};
    llm_route(&c, x, &two, &chosen);
    assert_memory_equal(chosen, ((const int32_t[]){2, 3, 6}), 3 * sizeof(int32_t));
    llm_route(&c, x, &one, &chosen);
    assert_memory_equal(chosen, ((const int32_t[]){0, 6, 7}), 3 * sizeof(int32_t));
    llm_ctx_release(&c);
}

/* Late tokens of a row find no place; each row has its own. */
static void test_capacity(void **state)
{
    struct fixture f;
    const int32_t *chosen;
    int64_t room = (int64_t)ceil(.5 * 2 * (TOKENS / 2) / (double)EXPERTS);
    (void)state;
    make(&f, false);
    f.c.training = true;
    const struct llm_route o = {.k = 2, .normalise = true, .scale = 1, .capacity = .5};
    struct llm_tensor *weights = llm_route(&f.c, f.logits, &o, &chosen);
    int64_t dropped = 0;
    for (int64_t row = 0; row < 2; row++) {
        int64_t load[EXPERTS] = {0};
        for (int64_t i = row * TOKENS; i < (row + 1) * TOKENS; i++) {
            int32_t id = chosen[i] < 0 ? ~chosen[i] : chosen[i];
            assert_int_equal(chosen[i] < 0, load[id]++ >= room);
            assert_int_equal(chosen[i] < 0, weights->data[i] == 0);
            dropped += chosen[i] < 0;
        }
    }
    assert_true(dropped > 0);
    struct llm_tensor *y = llm_mixture(&f.c, f.x, weights, chosen, &f.experts);
    for (int64_t t = 0; t < TOKENS; t++) { /* nothing comes of a token that found no place at all */
        if (chosen[t * 2] < 0 && chosen[t * 2 + 1] < 0) assert_true(y->data[t * HIDDEN] == 0);
    }
    f.c.training = false;
    llm_route(&f.c, f.logits, &o, &chosen);
    for (int64_t i = 0; i < 2 * TOKENS; i++) assert_true(chosen[i] >= 0);
    drop(&f);
}

/* Gumbel noise: the first choice of many tokens with one row of logits is distributed as softmax. */
static void test_gumbel_frequencies(void **state)
{
    enum { DRAWS = 20000 };
    static const float logits[EXPERTS] = {.5f, -1, 0, 1, -.3f, .2f};
    struct llm_err e;
    struct llm_ctx c = {.n_rows = 1};
    const int32_t *chosen;
    double p[EXPERTS], sum = 0, chi2 = 0, counts[EXPERTS] = {0};
    (void)state;
    assert_int_equal(llm_ctx_init(&c, (size_t)64 << 20, 64, false, &e), 0);
    c.training = true;
    struct llm_tensor *x = llm_tensor_create(&c, DRAWS, EXPERTS);
    for (int t = 0; t < DRAWS; t++) memcpy(x->data + t * EXPERTS, logits, sizeof logits);
    const struct llm_route o = {.k = 1, .scale = 1, .gumbel = true, .temperature = .5};
    struct llm_tensor *y = llm_route(&c, x, &o, &chosen);
    for (int t = 0; t < DRAWS; t++) counts[chosen[t]]++;
    for (int i = 0; i < EXPERTS; i++) sum += p[i] = exp((double)logits[i]);
    for (int i = 0; i < EXPERTS; i++) {
        double want = DRAWS * p[i] / sum;
        chi2 += (counts[i] - want) * (counts[i] - want) / want;
    }
    assert_true(chi2 < 20.5); /* 5 degrees of freedom, one in a thousand */
    const struct llm_route cold = {.k = 1, .scale = 1, .gumbel = true, .temperature = 1e-3};
    y = llm_route(&c, x, &cold, &chosen);
    int64_t hot = 0;
    for (int t = 0; t < DRAWS; t++) hot += y->data[t] > .999f;
    assert_true(hot > DRAWS * 99 / 100); /* one-hot as the temperature falls */
    llm_ctx_release(&c);
}

/* Straight-through: weights of 1/k going forth, the gradient of shares coming back. */
static void test_straight_through(void **state)
{
    struct fixture f;
    const int32_t *chosen;
    float dy[TOKENS * 2], *soft = malloc(TOKENS * EXPERTS * sizeof *soft);
    (void)state;
    make(&f, false);
    for (int i = 0; i < TOKENS * 2; i++) dy[i] = (float)(i % 7) - 3;
    for (int hard = 0; hard < 2; hard++) {
        const struct llm_route o = {.k = 2, .normalise = true, .scale = 1, .straight_through = hard};
        struct llm_tensor *y = llm_route(&f.c, f.logits, &o, &chosen);
        if (hard) {
            for (int i = 0; i < TOKENS * 2; i++) assert_true(y->data[i] == .5f);
        }
        memcpy(llm_tensor_grad(&f.c, y), dy, sizeof dy);
        f.logits->grad = NULL;
        llm_backward(&f.c);
        if (!hard) memcpy(soft, f.logits->grad, TOKENS * EXPERTS * sizeof *soft);
        else assert_memory_equal(soft, f.logits->grad, TOKENS * EXPERTS * sizeof *soft);
    }
    free(soft);
    drop(&f);
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_experts_are_dense), cmocka_unit_test(test_all_experts_are_the_full_mixture),
        cmocka_unit_test(test_alone_and_together),      cmocka_unit_test(test_bias_chooses_alone),
        cmocka_unit_test(test_groups),                  cmocka_unit_test(test_capacity),
        cmocka_unit_test(test_gumbel_frequencies),      cmocka_unit_test(test_straight_through)};
    if (llm_pool_start(0, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
