/* What the tests of lib/cpu use of cmocka, for machines that have a cross compiler but no cmocka for its target. Prints TAP; the first check
 * that does not hold ends the program. */
#ifndef LLM_TEST_CROSS_CMOCKA_H
#define LLM_TEST_CROSS_CMOCKA_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};
#define cmocka_unit_test(test) {#test, test}

#define fail_msg(...)                                        \
    do {                                                     \
        printf("not ok - %s, line %d: ", __FILE__, __LINE__); \
        printf(__VA_ARGS__);                                 \
        printf("\n");                                        \
        exit(1);                                             \
    } while (0)
#define assert_true(c)                            \
    do {                                          \
        if (!(c)) fail_msg("not true: %s", #c);   \
    } while (0)
#define assert_false(c) assert_true(!(c))
#define assert_int_equal(a, b)                                                        \
    do {                                                                              \
        long long left_ = (long long)(a), right_ = (long long)(b);                    \
        if (left_ != right_) fail_msg("%s: %lld is not %lld", #a, left_, right_);     \
    } while (0)
#define assert_memory_equal(a, b, n) assert_true(memcmp(a, b, n) == 0)
#define assert_string_equal(a, b) assert_true(strcmp(a, b) == 0)
#define assert_ptr_equal(a, b) assert_true((a) == (b))
#define assert_ptr_not_equal(a, b) assert_true((a) != (b))
#define assert_non_null(p) assert_true((p) != NULL)
#define assert_null(p) assert_true((p) == NULL)

/* Of a test, not of what it calls. */
#define skip()           \
    do {                 \
        skipped_ = 1;    \
        return;          \
    } while (0)
static int skipped_;

static inline int cmocka_run_(const struct CMUnitTest *tests, size_t n, int (*setup)(void **), int (*teardown)(void **))
{
    void *state = NULL;
    printf("1..%zu\n", n);
    if (setup && setup(&state) != 0) fail_msg("setup failed");
    for (size_t i = 0; i < n; i++) {
        skipped_ = 0;
        tests[i].run(&state);
        printf("ok %zu - %s%s\n", i + 1, tests[i].name, skipped_ ? " # SKIP" : "");
        fflush(stdout);
    }
    if (teardown && teardown(&state) != 0) fail_msg("teardown failed");
    return 0;
}
#define cmocka_run_group_tests(tests, setup, teardown) cmocka_run_(tests, sizeof(tests) / sizeof *(tests), setup, teardown)
#define cmocka_run_group_tests_name(name, tests, setup, teardown) cmocka_run_group_tests(tests, setup, teardown)

#endif
