/* Searches against sums in double precision; the order of ids; ranks that are fused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "cpu/pool.h"
#include "search/graph.h"
#include "search/search.h"
#include "search/words.h"

enum { N = 611, DIMS = 45, M = 7, K = 9 };

/* Uniform in [-1, 1). */
static float draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)((double)(*state >> 40) / (1 << 23) - 1);
}

static void make(struct llm_index *x, enum llm_metric metric, enum llm_coarse coarse)
{
    struct llm_index_rows r = {.dims = DIMS, .n = N};
    struct llm_err e = {0};
    uint64_t state = 7;
    r.vectors = malloc(sizeof *r.vectors * N * DIMS);
    r.ids_at = calloc(N + 1, sizeof *r.ids_at);
    r.texts_at = calloc(N + 1, sizeof *r.texts_at);
    r.metadata_at = calloc(N + 1, sizeof *r.metadata_at);
    for (int i = 0; i < N * DIMS; i++) r.vectors[i] = draw(&state);
    for (int i = 0; i < N; i++) {
        assert_int_equal(llm_buf_printf(&r.ids, &e, "%d", i), 0);
        r.ids_at[i + 1] = r.ids.n;
    }
    *x = (struct llm_index){.metric = metric, .coarse = coarse, .dims = DIMS};
    assert_int_equal(llm_index_merge(x, NULL, &r, false, &e), 0);
    llm_index_rows_release(&r);
}

static double score(const struct llm_index *x, const float *q, int64_t row)
{
    double dot = 0, qq = 0, vv = 0;
    const float *v = x->vectors + row * DIMS;
    for (int k = 0; k < DIMS; k++) {
        dot += (double)q[k] * (double)v[k];
        qq += (double)q[k] * (double)q[k];
        vv += (double)v[k] * (double)v[k];
    }
    return x->metric == LLM_METRIC_COSINE ? dot / sqrt(qq * vv) : x->metric == LLM_METRIC_DOT ? dot : -(qq + vv - 2 * dot);
}

static void finds_the_nearest(void **state)
{
    float q[M * DIMS];
    struct llm_hit hits[M * K], alone[K];
    int64_t n[M], one;
    struct llm_err e = {0};
    uint64_t random = 3;
    (void)state;
    for (int i = 0; i < M * DIMS; i++) q[i] = draw(&random);
    for (int metric = 0; metric < 3; metric++) {
        for (int coarse = 0; coarse < 3; coarse++) {
            struct llm_index x;
            make(&x, (enum llm_metric)metric, (enum llm_coarse)coarse);
            x.deleted[17] = 1;
            const struct llm_lookup s = {.k = K};
            assert_int_equal(llm_search_flat(&x, q, M, &s, hits, n, &e), 0);
            for (int i = 0; i < M; i++) {
                int better[K] = {0};
                assert_int_equal(n[i], K);
                for (int j = 0; j < K; j++) {
                    assert_int_not_equal(hits[i * K + j].row, 17);
                    assert_true(fabs(hits[i * K + j].score - score(&x, q + i * DIMS, hits[i * K + j].row)) < 2e-5);
                    for (int row = 0; row < N; row++) better[j] += row != 17 && score(&x, q + i * DIMS, row) > hits[i * K + j].score + 4e-5;
                    assert_true(better[j] <= j);
                }
                assert_int_equal(llm_search_flat(&x, q + i * DIMS, 1, &s, alone, &one, &e), 0);
                assert_int_equal(one, K);
                for (int j = 0; j < K; j++) assert_true(alone[j].row == hits[i * K + j].row && alone[j].score == hits[i * K + j].score);
            }
            llm_index_release(&x);
        }
    }
}

/* A walk finds the same with and without the vectors that are held in BF16, alone and among others; scores are of the vectors in F32. */
static void walks_agree(void **state)
{
    float q[M * DIMS];
    struct llm_hit hits[2][M * K], alone[K];
    int64_t n[2][M], one;
    struct llm_err e = {0};
    uint64_t random = 5;
    (void)state;
    for (int i = 0; i < M * DIMS; i++) q[i] = draw(&random);
    for (int metric = 0; metric < 3; metric++) {
        struct llm_index x;
        make(&x, (enum llm_metric)metric, LLM_COARSE_F32);
        x.graph.m = 8;
        x.graph.ef_build = 100;
        assert_int_equal(llm_graph_extend(&x, &e), 0);
        assert_int_equal(llm_graph_check(&x, &e), 0);
        assert_true(x.graph.n < N); /* some rows are of the tail */
        const struct llm_lookup s = {.k = K, .ef = 200};
        for (int held = 1; held >= 0; held--) {
            assert_true((x.graph.halves != NULL) == held);
            assert_int_equal(llm_index_search(&x, q, M, &s, hits[held], n[held], &e), 0);
            for (int i = 0; i < M; i++) {
                assert_int_equal(n[held][i], K);
                assert_int_equal(llm_index_search(&x, q + i * DIMS, 1, &s, alone, &one, &e), 0);
                for (int j = 0; j < K; j++) {
                    const struct llm_hit *h = &hits[held][i * K + j];
                    assert_true(h->row == alone[j].row && h->score == alone[j].score);
                    assert_true(h->row == hits[1][i * K + j].row && h->score == hits[1][i * K + j].score);
                    assert_true(fabs(h->score - score(&x, q + i * DIMS, h->row)) < 2e-5);
                }
                int better = 0; /* rows beyond the last hit's score: a walk of 200 rows misses at most one of 611 */
                for (int row = 0; row < N; row++) better += score(&x, q + i * DIMS, row) > hits[held][i * K + K - 1].score + 4e-5;
                assert_true(better <= K);
            }
            x.graph.halves = NULL; /* the memory stays the index's */
        }
        assert_int_equal(llm_index_expect(&x, 1, &s, &e), 0);
        assert_null(x.graph.halves); /* one query does not pay for them */
        assert_int_equal(llm_index_expect(&x, N, &s, &e), 0);
        assert_non_null(x.graph.halves);
        llm_index_release(&x);
    }
}

static void only_allowed_rows(void **state)
{
    struct llm_index x;
    struct llm_err e = {0};
    uint8_t allowed[N] = {0};
    struct llm_hit hits[K];
    int64_t n;
    (void)state;
    make(&x, LLM_METRIC_COSINE, LLM_COARSE_I8);
    allowed[5] = allowed[600] = 1;
    const struct llm_lookup s = {.k = K, .allowed = allowed};
    assert_int_equal(llm_search_flat(&x, x.vectors + 600 * DIMS, 1, &s, hits, &n, &e), 0);
    assert_int_equal(n, 2);
    assert_int_equal(hits[0].row, 600);
    assert_true(fabs(hits[0].score - 1) < 1e-6);
    llm_index_release(&x);
}

static void ids_are_in_order(void **state)
{
    struct llm_index x;
    (void)state;
    assert_true(llm_id_compare("9", 1, "10", 2) < 0);
    assert_true(llm_id_compare("b", 1, "a", 1) > 0);
    assert_int_equal(llm_id_compare("ab", 2, "ab", 2), 0);
    make(&x, LLM_METRIC_DOT, LLM_COARSE_F32);
    for (int i = 0; i < N; i++) {
        char id[8];
        int length = snprintf(id, sizeof id, "%d", i);
        assert_int_equal(llm_index_find(&x, id, (size_t)length), i);
    }
    assert_int_equal(llm_index_find(&x, "611", 3), -1);
    llm_index_release(&x);
}

static void ranks_are_fused(void **state)
{
    const struct llm_hit a[] = {{.9, 4}, {.8, 7}, {.7, 1}}, b[] = {{12, 1}, {11, 4}};
    struct llm_hit out[4];
    (void)state;
    assert_int_equal(llm_search_fuse(a, 3, b, 2, 4, out), 3);
    assert_int_equal(out[0].row, 4);
    assert_true(out[0].score == 1. / 61 + 1. / 62);
    assert_int_equal(out[1].row, 1);
    assert_true(out[1].score == 1. / 63 + 1. / 61);
    assert_int_equal(out[2].row, 7);
    assert_int_equal(llm_search_fuse(a, 3, b, 2, 1, out), 1);
}

/* BM25 by hand, over "Tea tea!", "tea, milk" and "salt". */
static void words_by_hand(void **state)
{
    static char texts[] = "Tea tea!tea, milksalt";
    uint64_t at[] = {0, 8, 17, 21};
    uint8_t deleted[3] = {0};
    struct llm_index x = {.n = 3, .texts = {at, texts}, .deleted = deleted};
    struct llm_err e = {0};
    struct llm_hit hits[3];
    const struct llm_lookup s = {.k = 3};
    const double mean = 5. / 3, idf = log(1 + (3 - 2 + .5) / (2 + .5));
    (void)state;
    assert_int_equal(llm_words_make(&x, &e), 0);
    assert_int_equal(x.n_words, 3);
    assert_int_equal(llm_words_search(&x, "TEA", 3, &s, hits, &e), 2);
    assert_int_equal(hits[0].row, 0);
    assert_true(fabs(hits[0].score - idf * 2 * 2.2 / (2 + 1.2 * (.25 + .75 * 2 / mean))) < 1e-12);
    assert_int_equal(hits[1].row, 1);
    assert_true(fabs(hits[1].score - idf * 1 * 2.2 / (1 + 1.2 * (.25 + .75 * 2 / mean))) < 1e-12);
    assert_int_equal(llm_words_search(&x, "sugar", 5, &s, hits, &e), 0);
    llm_index_release(&x);
}

int main(void)
{
    struct llm_err e = {0};
    if (llm_pool_start(2, &e) < 0) return llm_report(&e);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_nearest), cmocka_unit_test(walks_agree), cmocka_unit_test(only_allowed_rows), cmocka_unit_test(ids_are_in_order),
        cmocka_unit_test(ranks_are_fused), cmocka_unit_test(words_by_hand)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    llm_pool_stop();
    return failed;
}
