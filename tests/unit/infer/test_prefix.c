/* A prompt that is read together: the engine's block, and what is decoded behind it, have the bits of training's forward with that prefix; without
 * the prefix they have not. Documents packed into a row have the bits that they have alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "cpu/pool.h"
#include "infer/engine.h"
#include "tests/unit/model_of.h"

enum { LENGTH = 150, VOCAB = 61, OTHER = 20 };

static const char *const configs[] = {
    "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":3,\"num_attention_heads\":4,"
    "\"num_key_value_heads\":2,\"initializer_range\":0.3}",
    "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":4,\"num_attention_heads\":2,"
    "\"kv_sharing\":2,\"attention_sinks\":true,\"initializer_range\":0.3}",
    "{\"model_type\":\"gpt2\",\"vocab_size\":61,\"n_embd\":32,\"n_layer\":2,\"n_head\":2,\"n_positions\":200,\"initializer_range\":0.3}",
};
enum { N_CONFIGS = sizeof configs / sizeof *configs };

/* Hidden states of one row: first `before` tokens of another document with a prefix of its own, then the text. */
static float *whole(struct llm_model *m, const int32_t *text, int32_t prefix, int before, enum llm_compute compute)
{
    struct llm_ctx c;
    struct llm_err e;
    int32_t ids[LENGTH + OTHER], positions[LENGTH + OTHER], starts[LENGTH + OTHER], prefixes[LENGTH + OTHER] = {0};
    int n = before + LENGTH;
    for (int i = 0; i < n; i++) {
        starts[i] = i < before ? 0 : before;
        positions[i] = i - starts[i];
        ids[i] = i < before ? (i * 7) % VOCAB : text[i - before];
    }
    prefixes[0] = 3;
    prefixes[before] = prefix;
    assert_int_equal(llm_ctx_init(&c, (size_t)1 << 30, (size_t)1 << 30, true, &e), 0);
    c.compute = compute;
    c.n_rows = 1;
    c.row_len = n;
    const struct llm_batch b = {.ids = ids, .positions = positions, .n_tokens = n, .doc_start = before ? starts : NULL, .prefixes = prefixes};
    struct llm_tensor *y = llm_model_forward(&c, m, &b);
    if (llm_ctx_failed(&c)) fail_msg("%s", c.err.text);
    float *out = malloc((size_t)(LENGTH * y->cols) * sizeof *out);
    for (int i = 0; i < LENGTH; i++) memcpy(out + i * y->cols, y->data + (before + i) * y->stride, (size_t)y->cols * sizeof *out);
    llm_ctx_release(&c);
    return out;
}

/* The same by the engine: the prompt in one pass, beside another sequence, then runs of one and of more tokens. */
static float *by_engine(struct llm_model *m, const int32_t *text, int64_t prefix, enum llm_compute compute)
{
    struct llm_engine g = {0};
    struct llm_err e;
    struct llm_kv kv, other;
    int64_t width = m->config.hidden_size;
    float *out = malloc((size_t)(LENGTH * width) * sizeof *out);
    const struct llm_engine_options o = {.compute = compute, .context = 200, .batch = 16};
    m->config.prefix_lm = true;
    if (llm_engine_init(&g, m, &o, &e) < 0) fail_msg("%s", e.text);
    llm_kv_init(&kv, &g.pool);
    llm_kv_init(&other, &g.pool);
    for (int64_t at = 0, n; at < LENGTH; at += n) {
        n = at == 0 ? prefix : at < prefix + 9 ? 1 : LENGTH - at < 30 ? LENGTH - at : 30;
        const struct llm_feed feeds[2] = {{&other, text + 5, 3, at == 0}, {&kv, text + at, n, at == 0}};
        const struct llm_tensor *y = llm_engine_run(&g, feeds, 2, &e);
        if (!y) fail_msg("%s", e.text);
        for (int64_t i = 0; i < n; i++) memcpy(out + (at + i) * width, y->data + (3 + i) * y->stride, (size_t)width * sizeof *out);
    }
    llm_kv_release(&kv);
    llm_kv_release(&other);
    llm_engine_release(&g);
    return out;
}

static void test_same_bits(void **state)
{
    static const enum llm_compute computes[] = {LLM_COMPUTE_F32, LLM_COMPUTE_BF16};
    int32_t text[LENGTH];
    struct llm_rng r = llm_rng_at(5, 0, LLM_RNG_TEST, 0, 0, 0);
    (void)state;
    for (int i = 0; i < LENGTH; i++) text[i] = (int32_t)llm_rng_below(&r, (uint32_t)i, VOCAB);
    for (int i = 0; i < N_CONFIGS; i++) {
        struct llm_model *m = model_of(configs[i]);
        size_t bytes = (size_t)(LENGTH * m->config.hidden_size) * sizeof(float);
        for (int k = 0; k < 4; k++) {
            int32_t prefix = k < 2 ? 90 : 1;
            float *want = whole(m, text, prefix, 0, computes[k % 2]), *packed = whole(m, text, prefix, OTHER, computes[k % 2]);
            float *got = by_engine(m, text, prefix, computes[k % 2]), *causal = whole(m, text, 0, 0, computes[k % 2]);
            assert_memory_equal(got, want, bytes);
            assert_memory_equal(packed, want, bytes);
            if (prefix > 1) assert_true(memcmp(causal, want, bytes) != 0);
            else assert_memory_equal(causal, want, bytes); /* one token sees itself */
            free(want);
            free(packed);
            free(got);
            free(causal);
        }
        llm_model_destroy(m);
    }
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits)};
    if (llm_pool_start(2, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
