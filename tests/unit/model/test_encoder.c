/* Encoders: without positions order does not matter; a text has the bits alone that it has beside others; padding is not seen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>
#include "cpu/pool.h"
#include "data/batch.h"
#include "model/model.h"

enum { N = 37, ARENA = 1 << 26 };

static struct llm_model *make(const char *const *sets, size_t n_sets)
{
    static const char *const shape[] = {"hidden_size=48", "num_attention_heads=3", "intermediate_size=64", "num_hidden_layers=2", "vocab_size=50",
                                        "initializer_range=0.3"};
    const char *all[16];
    struct llm_config c;
    struct llm_err e;
    memcpy(all, shape, sizeof shape);
    for (size_t i = 0; i < n_sets; i++) all[6 + i] = sets[i];
    if (llm_config_load(&c, "bert-mini", all, 6 + n_sets, &e) < 0) fail_msg("%s", e.text);
    struct llm_model *m = llm_model_create(&c, 5, &e);
    assert_non_null(m);
    return m;
}

/* Hidden states of the tokens to out [n, 48]. */
static void run(struct llm_model *m, const int32_t *ids, const int32_t *positions, const int32_t *doc_start, int64_t n, float *out)
{
    struct llm_ctx c;
    struct llm_err e;
    assert_int_equal(llm_ctx_init(&c, ARENA, 64, false, &e), 0);
    c.compute = LLM_COMPUTE_F32;
    const struct llm_batch b = {.ids = ids, .positions = positions, .n_tokens = n, .doc_start = doc_start};
    const struct llm_tensor *y = llm_model_forward(&c, m, &b);
    if (llm_ctx_failed(&c)) fail_msg("%s", c.err.text);
    for (int64_t i = 0; i < n; i++) memcpy(out + i * 48, y->data + i * y->stride, 48 * sizeof *out);
    llm_ctx_release(&c);
}

static void test_order(void **state)
{
    const char *const sets[] = {"position_embedding=none"};
    int32_t ids[N], turned[N], positions[N];
    float x[N * 48], y[N * 48];
    struct llm_model *m = make(sets, 1);
    (void)state;
    for (int32_t i = 0; i < N; i++) {
        positions[i] = i;
        ids[i] = i * 17 % 50;
        turned[N - 1 - i] = ids[i];
    }
    run(m, ids, positions, NULL, N, x);
    run(m, turned, positions, NULL, N, y);
    for (int64_t i = 0; i < N; i++) {
        for (int64_t k = 0; k < 48; k++) {
            if (fabs((double)x[i * 48 + k] - (double)y[(N - 1 - i) * 48 + k]) > 2e-5) fail_msg("token %lld changes with the order", (long long)i);
        }
    }
    llm_model_destroy(m);
}

static void test_neighbours(void **state)
{
    int32_t ids[N], positions[N], starts[N];
    float together[N * 48], alone[N * 48];
    struct llm_model *m = make(NULL, 0);
    (void)state;
    for (int32_t i = 0; i < N; i++) {
        ids[i] = i * 7 % 50;
        starts[i] = i < 13 ? 0 : 13;
        positions[i] = i - starts[i];
    }
    run(m, ids, positions, starts, N, together);
    run(m, ids + 13, positions + 13, NULL, N - 13, alone);
    assert_memory_equal(together + 13 * 48, alone, (N - 13) * 48 * sizeof *alone);
    run(m, ids, positions, NULL, 13, alone);
    assert_memory_equal(together, alone, 13 * 48 * sizeof *alone);
    llm_model_destroy(m);
}

static void test_padding(void **state)
{
    static const int32_t ids[] = {4, 5, 6, 7, 8};
    static const uint8_t mask[] = {1, 1, 0, 1, 1};
    struct llm_rows r = {0};
    struct llm_err e;
    (void)state;
    for (int cross = 0; cross < 2; cross++) {
        float padded[8 * 48], alone[8 * 48];
        struct llm_model *m = make(NULL, 0);
        assert_int_equal(llm_rows_init(&r, 1, 8, &e), 0);
        llm_rows_put(&r, 0, ids, mask, 5, NULL, 0, 0, cross);
        assert_memory_equal(r.own, ((const uint8_t[]){1, 1, 0, 1, 1, 0, 0, 0}), 8);
        assert_memory_equal(r.doc_start, ((const int32_t[]){0, 0, 0, 0, 0, 5, 5, 5}), sizeof(int32_t[8]));
        assert_memory_equal(r.positions, ((const int32_t[]){0, 1, 2, 3, 4, 0, 1, 2}), sizeof(int32_t[8]));
        run(m, r.ids, r.positions, r.doc_start, 8, padded);
        run(m, ids, r.positions, NULL, 5, alone);
        assert_memory_equal(padded, alone, 5 * 48 * sizeof *alone);
        llm_rows_release(&r);
        llm_model_destroy(m);
    }
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_neighbours), cmocka_unit_test(test_padding)};
    if (llm_pool_start(0, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
