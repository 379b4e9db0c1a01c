/* Dual chunk attention against its definition in double: one softmax over scores whose queries were turned for each key's chunk. */
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

enum { TOKENS = 150, HEADS = 4, KV_HEADS = 2, D = 16, CHUNK = 33 };

static float *normals(int64_t n, uint32_t number)
{
    float *v = malloc((size_t)n * sizeof *v);
    struct llm_rng r = llm_rng_at(41, 0, LLM_RNG_TEST, number, 0, 0);
    for (int64_t i = 0; i < n; i++) v[i] = 1.5f * llm_rng_normal(&r, (uint32_t)i);
    return v;
}

static struct llm_tensor *rows(struct llm_ctx *c, const float *v, int64_t from, int64_t n, int64_t cols)
{
    struct llm_tensor *t = llm_tensor_create(c, n, cols);
    memcpy(t->data, v + from * cols, (size_t)(n * cols) * sizeof *v);
    return t;
}

static void test_chunks(void **state)
{
    struct llm_ctx c;
    struct llm_err e;
    float *q[3], *k = normals(TOKENS * KV_HEADS * D, 3), *v = normals(TOKENS * KV_HEADS * D, 4);
    const struct llm_attn a = {.n_heads = HEADS, .n_kv_heads = KV_HEADS, .d_k = D, .d_v = D, .scale = .25f, .causal = true, .chunk = CHUNK};
    (void)state;
    assert_int_equal(llm_ctx_init(&c, (size_t)256 << 20, 64, false, &e), 0);
    c.n_rows = 1;
    for (uint32_t i = 0; i < 3; i++) q[i] = normals(TOKENS * HEADS * D, i);
    struct llm_tensor *turned[3];
    for (int i = 0; i < 3; i++) turned[i] = rows(&c, q[i], 0, TOKENS, HEADS * D);
    struct llm_tensor *y = llm_attention_chunks(&c, turned, rows(&c, k, 0, TOKENS, KV_HEADS * D), rows(&c, v, 0, TOKENS, KV_HEADS * D), &a, NULL, 0);
    assert_int_equal(c.err.status, 0);
    double worst = 0;
    for (int i = 0; i < TOKENS; i++) {
        for (int h = 0; h < HEADS; h++) {
            double p[TOKENS], sum = 0, want[D] = {0};
            for (int j = 0; j <= i; j++) {
                int apart = i / CHUNK - j / CHUNK;
                const float *query = q[apart > 2 ? 2 : apart] + (i * HEADS + h) * D, *key = k + (j * KV_HEADS + h / 2) * D;
                double s = 0;
                for (int d = 0; d < D; d++) s += (double)query[d] * (double)key[d];
                sum += p[j] = exp(.25 * s);
            }
            for (int j = 0; j <= i; j++)
                for (int d = 0; d < D; d++) want[d] += p[j] / sum * (double)v[(j * KV_HEADS + h / 2) * D + d];
            for (int d = 0; d < D; d++) worst = worse(worst, fabs((double)y->data[i * HEADS * D + h * D + d] - want[d]));
        }
    }
    assert_true(worst < 2e-5);
    /* over a cache, some tokens at a time: the same bits */
    enum { TILES = (TOKENS + LLM_KV_TILE - 1) / LLM_KV_TILE };
    void *k_tiles[TILES], *v_tiles[TILES];
    for (int t = 0; t < TILES; t++) {
        k_tiles[t] = calloc(KV_HEADS * LLM_KV_TILE * D, sizeof(float));
        v_tiles[t] = calloc(KV_HEADS * LLM_KV_TILE * D, sizeof(float));
    }
    for (int64_t at = 0, n; at < TOKENS; at += n) {
        const int64_t sizes[] = {7, 1, 40, 1, 1, 100};
        n = sizes[at % 6] < TOKENS - at ? sizes[at % 6] : TOKENS - at;
        const struct llm_kv_seq seq = {.first = 0, .n = n, .pos = at, .view = {.k = k_tiles, .v = v_tiles, .k_type = LLM_F32, .v_type = LLM_F32}};
        for (int i = 0; i < 3; i++) turned[i] = rows(&c, q[i], at, n, HEADS * D);
        struct llm_tensor *part = llm_attention_chunks(&c, turned, rows(&c, k, at, n, KV_HEADS * D), rows(&c, v, at, n, KV_HEADS * D), &a, &seq, 1);
        assert_int_equal(c.err.status, 0);
        assert_memory_equal(part->data, y->data + at * HEADS * D, (size_t)(n * HEADS * D) * sizeof(float));
    }
    /* what has no meaning is refused */
    struct llm_attn window = a;
    window.window = 5;
    llm_attention_chunks(&c, turned, turned[0], turned[0], &window, NULL, 0);
    assert_int_equal(c.err.status, EX_UNAVAILABLE);
    for (int t = 0; t < TILES; t++) {
        free(k_tiles[t]);
        free(v_tiles[t]);
    }
    for (int i = 0; i < 3; i++) free(q[i]);
    free(k);
    free(v);
    llm_ctx_release(&c);
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chunks)};
    if (llm_pool_start(0, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
