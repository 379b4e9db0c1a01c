/* The index of beginnings against a plain list of all that was stored: matches, what a taken cache holds, counts of pages, and what leaves first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "infer/prefix.h"
#include "tests/unit/model_of.h"

enum { TEXTS = 60, LENGTH = 200 };

static const char config[] = "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":1,"
                             "\"num_attention_heads\":2}";

static uint32_t state = 7;
static int32_t number(int32_t below)
{
    state = state * 1664525 + 1013904223;
    return (int32_t)((state >> 8) % (uint32_t)below);
}

/* A text that shares its beginning with an earlier one. */
static int64_t make_text(int32_t texts[TEXTS][LENGTH], const int64_t *lengths, int k)
{
    int64_t n = 1 + number(LENGTH), from = 0;
    if (k > 0) {
        int other = number(k);
        from = number((int32_t)lengths[other] + 1);
        from = from < n ? from : n;
        memcpy(texts[k], texts[other], (size_t)from * sizeof **texts);
    }
    for (int64_t i = from; i < n; i++) texts[k][i] = number(3);
    return n;
}

/* A key's bytes tell the position and the token. */
static void fill(struct llm_kv *kv, const int32_t *ids, int64_t n)
{
    struct llm_err e;
    assert_int_equal(llm_kv_reserve(kv, n, &e), 0);
    for (int64_t t = kv->n; t < n; t++) memset(llm_kv_key(kv, 0, 0, t), (int)(t * 3 + ids[t]), kv->pool->layers[0].k_row);
    llm_kv_append(kv, ids + kv->n, n - kv->n);
}

static void check(const struct llm_kv *kv, const int32_t *ids, int64_t n)
{
    assert_int_equal(kv->n, n);
    for (int64_t t = 0; t < n; t++) {
        assert_int_equal(kv->ids[t], ids[t]);
        assert_int_equal(*(unsigned char *)llm_kv_key(kv, 0, 0, t), (unsigned char)(t * 3 + ids[t]));
    }
}

static int64_t longest(int32_t texts[TEXTS][LENGTH], const int64_t *lengths, int stored, int k)
{
    int64_t best = 0;
    for (int i = 0; i < stored; i++) {
        int64_t n = 0;
        while (n < lengths[i] && n < lengths[k] && texts[i][n] == texts[k][n]) n++;
        best = n > best ? n : best;
    }
    return best;
}

static int count(void *arg, const struct llm_kv *kv)
{
    int64_t *n = arg;
    assert_true(kv->n >= 10);
    (*n)++;
    return 0;
}

static void test_against_a_list(void **unused)
{
    static int32_t texts[TEXTS][LENGTH];
    int64_t lengths[TEXTS], shared = 0;
    struct llm_kv_pool pool;
    struct llm_prefix x = {0};
    struct llm_err e;
    const struct llm_config c = config_of(config);
    (void)unused;
    assert_int_equal(llm_kv_pool_init(&pool, &c, "f32", &e), 0);
    assert_true(llm_prefix_possible(&pool));
    assert_int_equal(llm_prefix_init(&x, &pool, 1 << 20, &e), 0);
    for (int k = 0; k < TEXTS; k++) {
        lengths[k] = make_text(texts, lengths, k);
        int64_t match = llm_prefix_match(&x, texts[k], lengths[k]);
        assert_int_equal(match, longest(texts, lengths, k, k));
        struct llm_kv kv;
        llm_kv_init(&kv, &pool);
        if (match > 0) assert_int_equal(llm_prefix_take(&x, &kv, texts[k], match, &e), 0);
        check(&kv, texts[k], match);
        fill(&kv, texts[k], lengths[k]);
        assert_int_equal(llm_prefix_put(&x, &kv, &e), 0);
        llm_kv_release(&kv);
        assert_int_equal(x.pages, pool.n_used);
        for (int i = 0; i <= k; i++) assert_int_equal(llm_prefix_match(&x, texts[i], lengths[i]), lengths[i]);
    }
    assert_int_equal(llm_prefix_shared(&x, 10, count, &shared), 0);
    assert_true(shared > 5);
    int64_t half = x.pages / 2;
    llm_prefix_shrink(&x, half);
    assert_true(x.pages <= half && x.pages > 0);
    assert_int_equal(x.pages, pool.n_used);
    for (int k = 0; k < TEXTS; k++) { /* what is left is whole */
        struct llm_kv kv;
        int64_t match = llm_prefix_match(&x, texts[k], lengths[k]);
        llm_kv_init(&kv, &pool);
        assert_int_equal(llm_prefix_take(&x, &kv, texts[k], match, &e), 0);
        check(&kv, texts[k], match);
        llm_kv_release(&kv);
    }
    llm_prefix_release(&x);
    llm_kv_pool_release(&pool);
}

/* Texts of 8 tokens: a page each, of which the index may hold three. */
static void test_the_oldest_leaves(void **unused)
{
    struct llm_kv_pool pool;
    struct llm_prefix x = {0};
    struct llm_err e;
    const struct llm_config c = config_of(config);
    (void)unused;
    assert_int_equal(llm_kv_pool_init(&pool, &c, "f32", &e), 0);
    assert_int_equal(llm_prefix_init(&x, &pool, 3, &e), 0);
    for (int32_t k = 0; k < 4; k++) { /* the first is used again before the fourth comes: the second leaves */
        struct llm_kv kv;
        int32_t ids[8];
        for (int i = 0; i < 8; i++) ids[i] = k * 8 + i;
        if (k == 3) {
            int32_t first[] = {0, 1, 2};
            llm_kv_init(&kv, &pool);
            assert_int_equal(llm_prefix_take(&x, &kv, first, 3, &e), 0);
            llm_kv_release(&kv);
        }
        llm_kv_init(&kv, &pool);
        fill(&kv, ids, 8);
        assert_int_equal(llm_prefix_put(&x, &kv, &e), 0);
        llm_kv_release(&kv);
    }
    const int32_t begins[] = {0, 8, 16, 24};
    const int64_t left[] = {1, 0, 1, 1};
    for (int k = 0; k < 4; k++) assert_int_equal(llm_prefix_match(&x, begins + k, 1), left[k]);
    llm_prefix_release(&x);
    llm_kv_pool_release(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_a_list), cmocka_unit_test(test_the_oldest_leaves)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
