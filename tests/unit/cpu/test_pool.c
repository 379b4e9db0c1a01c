/* The pool: every piece once, at any number of threads, hot and after sleep, nested, started and stopped; who decides the number of threads. */
#include "isas.h"
#include <stdatomic.h>
#include <time.h>
#include "cpu/scratch.h"

enum { MAX_PIECES = 1000 };

static atomic_int runs[MAX_PIECES];
static atomic_int bad_thread;

static void count(void *arg, size_t i, int thread)
{
    atomic_fetch_add(&runs[i], 1);
    if (thread < 0 || thread >= llm_pool_threads() || thread != llm_pool_current() || arg != runs) atomic_store(&bad_thread, 1);
}

static void once_each(size_t n)
{
    for (size_t i = 0; i < MAX_PIECES; i++) atomic_store(&runs[i], 0);
    llm_parallel(n, count, runs);
    for (size_t i = 0; i < MAX_PIECES; i++) assert_int_equal(atomic_load(&runs[i]), i < n);
    assert_int_equal(atomic_load(&bad_thread), 0);
}

static void test_once(void **state)
{
    struct llm_err e = {0};
    (void)state;
    for (int threads = 1; threads <= 8; threads++) {
        assert_int_equal(llm_pool_start(threads, &e), 0);
        assert_int_equal(llm_pool_threads(), threads);
        for (size_t n = 0; n < 40; n++) once_each(n);
        once_each(MAX_PIECES);
    }
    llm_pool_stop();
    assert_int_equal(llm_pool_threads(), 1);
    once_each(10);
}

/* Many small jobs one after another, with pauses that send the threads to sleep. */
static void test_many(void **state)
{
    struct llm_err e = {0};
    (void)state;
    assert_int_equal(llm_pool_start(3, &e), 0);
    for (int job = 0; job < 3000; job++) {
        once_each((size_t)(job % 7 + 1));
        if (job % 300 == 299) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
}

static void inner(void *arg, size_t i, int thread)
{
    int outer_thread = *(int *)arg;
    if (thread != outer_thread) atomic_store(&bad_thread, 1);
    atomic_fetch_add(&runs[i], 1);
}

static void outer(void *arg, size_t i, int thread)
{
    (void)arg;
    (void)i;
    llm_parallel(5, inner, &thread);
}

static void test_nested(void **state)
{
    struct llm_err e = {0};
    (void)state;
    assert_int_equal(llm_pool_start(4, &e), 0);
    for (size_t i = 0; i < MAX_PIECES; i++) atomic_store(&runs[i], 0);
    llm_parallel(20, outer, NULL);
    for (size_t i = 0; i < 5; i++) assert_int_equal(atomic_load(&runs[i]), 20);
    assert_int_equal(atomic_load(&bad_thread), 0);
}

static void test_scratch(void **state)
{
    struct llm_err e = {0};
    (void)state;
    assert_int_equal(llm_pool_start(2, &e), 0);
    for (size_t bytes = 1; bytes < 10000000; bytes *= 7) {
        char *a = llm_scratch(0, bytes), *b = llm_scratch(1, bytes), *c = llm_scratch_slot(0, LLM_SCRATCH_CALL, bytes);
        assert_true(a && b && c && a != b && a != c);
        assert_int_equal((uintptr_t)a % 64, 0);
        memset(a, 1, bytes);
        memset(b, 2, bytes);
        memset(c, 3, bytes);
        assert_true(a[bytes - 1] == 1 && b[0] == 2);
        assert_ptr_equal(llm_scratch(0, bytes / 2), a);
    }
    assert_null(llm_scratch(0, SIZE_MAX));
    assert_non_null(llm_scratch(0, 10));
}

static void test_numbers(void **state)
{
    static const char *const bad[] = {"0", "-1", "two", "3x", "257", "99999999999999999999"};
    struct llm_err e = {0};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv("LLM_THREADS", bad[i], 1);
        assert_int_equal(llm_pool_start(0, &e), -1);
        assert_int_equal(e.status, LLM_EX_USAGE);
        assert_int_equal(llm_pool_start(2, &e), 0); /* -j wins */
    }
    setenv("LLM_THREADS", "5", 1);
    assert_int_equal(llm_pool_start(0, &e), 0);
    assert_int_equal(llm_pool_threads(), 5);
    unsetenv("LLM_THREADS");
    assert_int_equal(llm_pool_start(-1, &e), -1);
    assert_int_equal(llm_pool_start(LLM_MAX_THREADS + 1, &e), -1);
    assert_int_equal(llm_pool_start(0, &e), 0);
    assert_true(llm_pool_threads() >= 1);
}

static void test_isa(void **state)
{
    struct llm_err e = {0};
    char name[100];
    (void)state;
    llm_k.isa = NULL;
    setenv("LLM_ISA", "z80", 1);
    assert_int_equal(llm_kernels_init(&e), -1);
    assert_int_equal(e.status, LLM_EX_USAGE);
    setenv("LLM_ISA", "scalar", 1);
    assert_int_equal(llm_kernels_init(&e), 0);
    assert_string_equal(llm_isa_name(), "scalar");
    unsetenv("LLM_ISA");
    assert_int_equal(llm_kernels_init(&e), 0); /* once */
    assert_string_equal(llm_isa_name(), "scalar");
    llm_cpu_name(name, sizeof name);
    assert_true(strlen(name) > 0);
}

int main(void)
{
    unsetenv("LLM_THREADS");
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_once), cmocka_unit_test(test_many), cmocka_unit_test(test_nested),
                                       cmocka_unit_test(test_scratch), cmocka_unit_test(test_numbers), cmocka_unit_test(test_isa)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
