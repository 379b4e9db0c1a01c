/* Curvature: the factors of one product against sums written out; the predicted divergence of a small change against the measured one; any number of
 * threads. KL: 0 of a model with itself, positive and the same whatever the window's neighbours of a changed one. */
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
#include "quant/curvature.h"
#include "quant/kl.h"
#include "tensor/ops.h"
#include "tests/unit/model_of.h"

static const char dense[] = "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":2,"
                            "\"num_attention_heads\":2,\"initializer_range\":0.2,\"tie_word_embeddings\":true}";
enum { TOKENS = 4096, CONTEXT = 64, T = 7, K = 5, OUT = 3 };
static int32_t ids[TOKENS];

static void one_product(void **state)
{
    struct llm_err e = {0};
    struct llm_ctx c;
    const struct llm_rng r = llm_rng_at(3, 0, LLM_RNG_TEST, 0, 0, 0);
    float w[OUT * K], in[K * K] = {0}, out[OUT * OUT] = {0}, x[T * K], g[T * OUT];
    const struct llm_kronecker f = {in, out};
    struct llm_param p = {.name = "w", .n_dims = 2, .shape = {OUT, K}, .weight = {.data = w, .dtype = LLM_F32, .n = OUT, .k = K}, .kronecker = &f};
    (void)state;
    for (uint32_t i = 0; i < OUT * K; i++) w[i] = llm_rng_normal(&r, i);
    for (uint32_t i = 0; i < T * K; i++) x[i] = llm_rng_normal(&r, 100 + i);
    for (uint32_t i = 0; i < T * OUT; i++) g[i] = llm_rng_normal(&r, 200 + i);
    assert_int_equal(llm_ctx_init(&c, 1 << 22, 1 << 22, true, &e), 0);
    struct llm_tensor *a = llm_tensor_create(&c, T, K);
    memcpy(a->data, x, sizeof x);
    struct llm_tensor *y = llm_linear(&c, a, &p, NULL);
    memcpy(llm_tensor_grad(&c, y), g, sizeof g);
    llm_backward(&c);
    assert_false(llm_ctx_failed(&c));
    llm_ctx_release(&c);
    for (int i = 0; i < K * K + OUT * OUT; i++) {
        double sum = 0;
        for (int t = 0; t < T; t++) {
            double gg = 0, xx = 0;
            for (int j = 0; j < OUT; j++) gg += (double)g[t * OUT + j] * (double)g[t * OUT + j];
            for (int j = 0; j < K; j++) xx += (double)x[t * K + j] * (double)x[t * K + j];
            if (i < K * K) sum += gg * (double)x[t * K + i / K] * (double)x[t * K + i % K];
            else sum += xx * (double)g[t * OUT + (i - K * K) / OUT] * (double)g[t * OUT + (i - K * K) % OUT];
        }
        const double found = (double)(i < K * K ? in[i] : out[i - K * K]);
        assert_true(fabs(found - sum) <= 1e-4 * (1 + fabs(sum))); /* FP32 sums of 7 products of weighted rows */
    }
}

static void one_embedding(void **state)
{
    enum { ROWS = 4 };
    const int32_t looked_up[T] = {2, 0, 2, 1, 1, 3, 2};
    struct llm_err e = {0};
    struct llm_ctx c;
    const struct llm_rng r = llm_rng_at(4, 0, LLM_RNG_TEST, 0, 0, 0);
    float w[ROWS * K], in[K * K] = {0}, g[T * K];
    const struct llm_kronecker f = {in, NULL};
    struct llm_param p = {.name = "w", .n_dims = 2, .shape = {ROWS, K}, .weight = {.data = w, .dtype = LLM_F32, .n = ROWS, .k = K}, .kronecker = &f};
    (void)state;
    for (uint32_t i = 0; i < ROWS * K; i++) w[i] = llm_rng_normal(&r, i);
    for (uint32_t i = 0; i < T * K; i++) g[i] = llm_rng_normal(&r, 100 + i);
    assert_int_equal(llm_ctx_init(&c, 1 << 22, 1 << 22, true, &e), 0);
    struct llm_tensor *y = llm_embedding(&c, looked_up, T, &p, 3);
    memcpy(llm_tensor_grad(&c, y), g, sizeof g);
    llm_backward(&c);
    assert_false(llm_ctx_failed(&c));
    llm_ctx_release(&c);
    for (int i = 0; i < K * K; i++) {
        double sum = 0;
        for (int t = 0; t < T; t++) sum += 9 * (double)g[t * K + i / K] * (double)g[t * K + i % K];
        assert_true(fabs((double)in[i] - sum) <= 1e-4 * (1 + fabs(sum))); /* FP32 sums of 7 products */
    }
}

static struct llm_moments moments_of(struct llm_model *m)
{
    struct llm_moments moments = {0};
    struct llm_err e = {0};
    assert_int_equal(llm_moments_init(&moments, m, &e), 0);
    assert_int_equal(llm_moments_gather(&moments, m, ids, TOKENS, CONTEXT, &e), 0);
    assert_int_equal(llm_curvature_gather(&moments, m, ids, TOKENS, CONTEXT, &e), 0);
    return moments;
}

static void predicted_is_measured(void **state)
{
    struct llm_err e = {0};
    struct llm_kl_base base = {0};
    struct llm_kl kl;
    const struct llm_rng r = llm_rng_at(5, 0, LLM_RNG_TEST, 0, 0, 0);
    int seen = 0;
    (void)state;
    struct llm_model *m = model_of(dense), *before = model_of(dense);
    struct llm_moments moments = moments_of(m);
    assert_int_equal(llm_kl_base_init(&base, before, ids, TOKENS, CONTEXT, &e), 0);
    assert_int_equal(llm_kl_windows(&base), TOKENS / CONTEXT);
    assert_int_equal(llm_kl_measure(&base, m, &kl, NULL, &e), 0);
    assert_true(fabs(kl.mean) < 1e-12 && kl.same_top == 1 && kl.tokens == TOKENS);
    for (size_t i = 0; i < m->n_params; i++) {
        const struct llm_kronecker *f = llm_moments_kronecker(&moments, i);
        struct llm_weight *w = &m->params[i].weight;
        if (!f || !f->out) continue;
        const size_t n = (size_t)(w->n * w->k);
        float *delta = calloc(n, sizeof *delta), *data = (float *)(uintptr_t)w->data;
        assert_non_null(delta);
        for (uint32_t j = 0; j < n; j++) delta[j] = 0.02f * llm_rng_normal(&r, j);
        for (size_t j = 0; j < n; j++) data[j] += delta[j];
        llm_weight_changed(w);
        const double predicted = llm_curvature_harm(f, moments.tokens, w->n, w->k, delta, &e);
        assert_int_equal(llm_kl_measure(&base, m, &kl, NULL, &e), 0);
        /* Two factors are less than the whole curvature (they know nothing of gradients that tokens share, which matter most for values), and one
         * draw a token is noisy: within a factor of 5 for each of 14 matrices */
        if (!(kl.mean > 0.2 * predicted && kl.mean < 5 * predicted)) fail_msg("%s: predicted %g, measured %g", m->params[i].name, predicted, kl.mean);
        for (size_t j = 0; j < n; j++) data[j] -= delta[j];
        llm_weight_changed(w);
        free(delta);
        seen++;
    }
    assert_int_equal(seen, 14);
    llm_moments_release(&moments);
    llm_kl_base_release(&base);
    llm_model_destroy(m);
    llm_model_destroy(before);
}

/* A head of zeros gives every token the same chance, so each row of logits has a gradient of the same expected length. */
static void of_the_head(void **state)
{
    static const char untied[] = "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":1,"
                                 "\"num_attention_heads\":2,\"initializer_range\":0.2,\"tie_word_embeddings\":false}";
    (void)state;
    struct llm_model *m = model_of(untied);
    struct llm_param *head = llm_model_head(m);
    const int64_t k = head->weight.k;
    memset((float *)(uintptr_t)head->weight.data, 0, (size_t)(head->weight.n * k) * sizeof(float));
    llm_weight_changed(&head->weight);
    struct llm_moments moments = moments_of(m);
    const size_t i = (size_t)(head - m->params);
    const struct llm_kronecker *f = llm_moments_kronecker(&moments, i);
    float squares[32];
    assert_true(f && !f->out && k == 32 && llm_moments_importance(&moments, i, squares));
    for (int64_t j = 0; j < k; j++) {
        const double expected = (1 - 1. / 61) * TOKENS * (double)squares[j], found = (double)f->in[j * (k + 1)];
        assert_true(fabs(found - expected) <= 5e-3 * expected); /* the squares are those of a pass in BF16 */
    }
    llm_moments_release(&moments);
    llm_model_destroy(m);
}

static void threads_change_nothing(void **state)
{
    struct llm_err e;
    struct llm_moments found[2];
    (void)state;
    struct llm_model *m = model_of(dense);
    for (int i = 0; i < 2; i++) {
        llm_pool_stop();
        assert_int_equal(llm_pool_start(i ? 3 : 1, &e), 0);
        found[i] = moments_of(m);
    }
    for (size_t i = 0; i < m->n_params; i++) {
        const struct llm_kronecker *a = llm_moments_kronecker(&found[0], i), *b = llm_moments_kronecker(&found[1], i);
        const struct llm_weight *w = &m->params[i].weight;
        assert_true(!a == !b);
        if (!a) continue;
        assert_memory_equal(a->in, b->in, (size_t)(w->k * w->k) * sizeof(float));
        assert_true(!a->out == !b->out);
        if (a->out) assert_memory_equal(a->out, b->out, (size_t)(w->n * w->n) * sizeof(float));
    }
    llm_moments_release(&found[0]);
    llm_moments_release(&found[1]);
    llm_model_destroy(m);
}

int main(void)
{
    struct llm_err e;
    const struct llm_rng r = llm_rng_at(6, 0, LLM_RNG_TEST, 0, 0, 0);
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_product), cmocka_unit_test(one_embedding), cmocka_unit_test(of_the_head),
                                       cmocka_unit_test(predicted_is_measured),
                                       cmocka_unit_test(threads_change_nothing)};
    for (uint32_t i = 0; i < TOKENS; i++) ids[i] = (int32_t)llm_rng_below(&r, i, 61);
    if (llm_pool_start(2, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
