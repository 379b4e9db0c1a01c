/* The profile: spans nest, work goes to the innermost, off is nothing, pieces and other threads do not count. */
#include "isas.h"
#include <pthread.h>
#include "cpu/matmul.h"
#include "cpu/profile.h"

static const struct llm_profile_row *row(const char *name)
{
    const struct llm_profile_row *rows;
    size_t n = llm_profile_rows(&rows);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    }
    return NULL;
}

static void inner(void)
{
    LLM_PROFILE("inner", 3);
    LLM_PROFILE_WORK(LLM_PROFILE_BF16, 100, 20);
}

static void outer(int times)
{
    LLM_PROFILE("outer", 7);
    LLM_PROFILE_PART("part");
    for (int i = 0; i < times; i++) inner();
    LLM_PROFILE_WORK(LLM_PROFILE_F32, 1, 2);
}

static void test_nested(void **state)
{
    (void)state;
    llm_profile_start();
    outer(2);
    outer(1);
    llm_profile_stop();
    double all = llm_profile_seconds();
    const struct llm_profile_row *o = row("outer"), *i = row("inner"), *p = row("part");
    assert_true(o->calls == 2 && i->calls == 3 && p->calls == 2);
    assert_true(!o->part && !i->part && p->part);
    assert_true(o->bytes == 2 * 7 + 2 * 2 && i->bytes == 3 * 3 + 3 * 20 && p->bytes == 3 * 20 + 2 * 2);
    assert_true(o->flops[LLM_PROFILE_F32] == 2 && o->flops[LLM_PROFILE_BF16] == 0);
    assert_true(i->flops[LLM_PROFILE_BF16] == 300 && p->flops[LLM_PROFILE_BF16] == 300 && p->flops[LLM_PROFILE_F32] == 2);
    assert_true(o->seconds >= 0 && i->seconds >= 0 && o->seconds + i->seconds <= all);
    assert_true(llm_profile_seconds() == all);
}

static void test_off(void **state)
{
    (void)state;
    llm_profile_start();
    llm_profile_stop();
    outer(1);
    const struct llm_profile_row *rows;
    assert_int_equal(llm_profile_rows(&rows), 0);
    llm_profile_start();
    outer(1);
    llm_profile_start(); /* forgets */
    assert_null(row("outer"));
    llm_profile_stop();
}

static void piece(void *arg, size_t i, int thread)
{
    (void)arg, (void)i, (void)thread;
    inner();
}

static void *elsewhere(void *arg)
{
    outer(1);
    return arg;
}

static void test_pieces_and_threads(void **state)
{
    struct llm_err e = {0};
    pthread_t other;
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        assert_int_equal(llm_pool_start(threads, &e), 0);
        llm_profile_start();
        llm_parallel(20, piece, NULL);
        assert_null(row("inner"));
        assert_int_equal(pthread_create(&other, NULL, elsewhere, NULL), 0);
        assert_int_equal(pthread_join(other, NULL), 0);
        assert_null(row("outer"));
        llm_profile_stop();
        llm_pool_stop();
    }
}

/* Products count what they are, whatever packs them. */
static void test_products(void **state)
{
    enum { M = 5, N = 7, K = 32 };
    static float x[M * K], w[N * K], y[M * N], dx[M * K], dw[N * K];
    struct llm_weight weight = {.data = w, .dtype = LLM_F32, .n = N, .k = K};
    struct llm_err e = {0};
    (void)state;
    assert_int_equal(llm_pool_start(1, &e), 0);
    llm_profile_start();
    for (int compute = 0; compute < 2; compute++) {
        struct llm_matmul a = {.m = M, .x = x, .ldx = K, .y = y, .ldy = N, .compute = (enum llm_compute)compute};
        assert_int_equal(llm_matmul(&a, &weight, &e), 0);
        a = (struct llm_matmul){.m = M, .x = y, .ldx = N, .y = dx, .ldy = K, .compute = (enum llm_compute)compute};
        assert_int_equal(llm_matmul_dx(&a, &weight, &e), 0);
        assert_int_equal(llm_matmul_dw(dw, y, N, x, K, M, M, N, K, (enum llm_compute)compute, &e), 0);
    }
    llm_profile_stop();
    const struct llm_profile_row *p = row("products"), *g = row("products of weights' gradients");
    assert_true(p->calls == 4 && g->calls == 2);
    assert_true(p->flops[LLM_PROFILE_F32] == 4 * M * N * K && p->flops[LLM_PROFILE_BF16] == 4 * M * N * K);
    assert_true(g->flops[LLM_PROFILE_F32] == 2 * M * N * K && g->flops[LLM_PROFILE_BF16] == 2 * M * N * K);
    assert_true(g->bytes == 2 * 4 * (M * (N + K) + 2 * N * K));
    llm_weight_release(&weight);
    llm_pool_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nested), cmocka_unit_test(test_off), cmocka_unit_test(test_pieces_and_threads),
                                       cmocka_unit_test(test_products)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
