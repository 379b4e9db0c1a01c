/* MLA: what training computes, keys and values of every head, is what decoding computes from the latent vector alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/pool.h"
#include "infer/engine.h"
#include "model/spec/block.h"
#include "tests/unit/near.h"

enum { TOKENS = 70, VOCAB = 97 };

/* An adapter of rank 2 at the matrix that makes keys and values of latent vectors. */
struct adapted { float a[2 * 64], b[1024]; struct llm_param low, high; struct llm_adapter adapter; };

static void adapt(struct llm_model *m, struct adapted *q)
{
    size_t i = 0;
    while (m->params[i].spec->stem != LLM_STEM_KV_B) i++;
    struct llm_weight *w = &m->params[i].weight;
    assert_true(w->k <= 64 && w->n <= 512);
    for (int64_t k = 0; k < 2 * w->k; k++) q->a[k] = (float)(k * 37 % 11 - 5) * .1f;
    for (int64_t k = 0; k < 2 * w->n; k++) q->b[k] = (float)(k * 17 % 13 - 6) * .1f;
    q->low = (struct llm_param){.name = "a", .weight = {.data = q->a, .n = 2, .k = w->k}};
    q->high = (struct llm_param){.name = "b", .weight = {.data = q->b, .n = w->n, .k = 2}};
    q->adapter = (struct llm_adapter){.a = &q->low, .b = &q->high, .scale = .5f};
    m->params[i].adapter = &q->adapter;
}

/* Largest difference of the two forms' logits by their range, and where both would go on. */
static void compare_forms(const char *const *sets, size_t n_sets, enum llm_dtype cache, double most, struct adapted *q)
{
    struct llm_config c;
    struct llm_err e;
    struct llm_engine g = {0};
    struct llm_ctx ctx;
    struct llm_kv kv;
    const struct llm_engine_options o = {.compute = LLM_COMPUTE_F32, .cache = llm_dtypes[cache].name, .batch = 16};
    int32_t ids[TOKENS], positions[TOKENS];
    float low = INFINITY, high = -INFINITY;
    double worst = 0;
    if (llm_config_load(&c, "mla", sets, n_sets, &e) < 0) fail_msg("%s", e.text);
    struct llm_model *m = llm_model_create(&c, 7, &e);
    assert_non_null(m);
    if (q) adapt(m, q);
    for (int32_t i = 0; i < TOKENS; i++) {
        ids[i] = i * 31 % VOCAB;
        positions[i] = i;
    }
    assert_int_equal(llm_ctx_init(&ctx, (size_t)1 << 30, 64, false, &e), 0);
    ctx.compute = LLM_COMPUTE_F32;
    ctx.n_rows = 1;
    ctx.row_len = TOKENS;
    const struct llm_batch b = {.ids = ids, .positions = positions, .n_tokens = TOKENS};
    struct llm_tensor *whole = llm_model_logits(&ctx, m, llm_model_forward(&ctx, m, &b));
    assert_int_equal(ctx.err.status, 0);
    assert_int_equal(llm_engine_init(&g, m, &o, &e), 0);
    llm_kv_init(&kv, &g.pool);
    for (int64_t at = 0, n; at < TOKENS; at += n) { /* passes of several lengths */
        n = at == 0 ? 16 : at < 20 ? 1 : TOKENS - at < 13 ? TOKENS - at : 13;
        struct llm_feed feed = {&kv, ids + at, n, false};
        int64_t rows[16];
        struct llm_tensor *hidden = llm_engine_run(&g, &feed, 1, &e);
        assert_non_null(hidden);
        for (int64_t i = 0; i < n; i++) rows[i] = i;
        const float *logits = llm_engine_logits(&g, hidden, rows, n, &e);
        assert_non_null(logits);
        for (int64_t i = 0; i < n * VOCAB; i++) {
            float want = whole->data[at * VOCAB + i];
            low = fminf(low, want);
            high = fmaxf(high, want);
            worst = worse(worst, fabs((double)logits[i] - (double)want));
        }
    }
    print_message("  worst difference %.1e of the range\n", worst / (double)(high - low));
    assert_true(worst <= most * (double)(high - low));
    assert_int_equal(g.pool.layers[0].shape.d_v, 0);
    assert_int_equal(g.pool.layers[0].shape.d_k, c.kv_lora_rank + c.qk_rope_head_dim); /* once, for all heads */
    llm_kv_release(&kv);
    llm_engine_release(&g);
    llm_ctx_release(&ctx);
    llm_model_destroy(m);
}

static void compare(const char *const *sets, size_t n_sets, enum llm_dtype cache, double most)
{
    compare_forms(sets, n_sets, cache, most, NULL);
}

#define BASE "vocab_size=97", "hidden_size=64", "num_hidden_layers=3", "intermediate_size=96", "initializer_range=0.3"

static void test_naive_is_absorbed(void **state)
{
    static const char *const plain[] = {BASE}, *const low[] = {BASE, "q_lora_rank=24", "attention_bias=true"};
    (void)state;
    compare(plain, sizeof plain / sizeof *plain, LLM_F32, 5e-6);
    compare(low, sizeof low / sizeof *low, LLM_F32, 5e-6);
}

static void test_adapter_is_absorbed(void **state)
{
    static const char *const sets[] = {BASE, "kv_lora_rank=48"};
    struct adapted q;
    (void)state;
    compare_forms(sets, sizeof sets / sizeof *sets, LLM_F32, 5e-6, &q);
    llm_weight_release(&q.low.weight);
    llm_weight_release(&q.high.weight);
}

/* A cache of half the numbers' length, and of a quarter, loses what rounding loses. */
static void test_short_caches(void **state)
{
    static const char *const plain[] = {BASE};
    (void)state;
    compare(plain, sizeof plain / sizeof *plain, LLM_F16, 5e-3);
    compare(plain, sizeof plain / sizeof *plain, LLM_Q8_0, 1e-1); /* scores of this model deviate by several units */
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_naive_is_absorbed), cmocka_unit_test(test_adapter_is_absorbed),
                                       cmocka_unit_test(test_short_caches)};
    if (llm_pool_start(0, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
