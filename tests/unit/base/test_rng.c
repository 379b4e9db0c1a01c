/* Philox against Random123's known answers; uniformity of what is built on it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"

static void known_answers(void **state)
{
    static const struct { uint32_t counter[4], key[2], out[4]; } rows[] = { /* Random123, kat_vectors, philox4x32 10 */
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t out[4];
        llm_philox(rows[i].counter, rows[i].key, out);
        assert_memory_equal(out, rows[i].out, sizeof out);
    }
}

static void moments(void **state)
{
    double sum = 0, squares = 0, uniform = 0;
    enum { N = 200000 };
    (void)state;
    for (uint32_t i = 0; i < N; i++) {
        struct llm_rng r = llm_rng_at(7, 1, LLM_RNG_TEST, 2, i, 3);
        double x = llm_rng_normal(&r, i % 5);
        sum += x;
        squares += x * x;
        uniform += llm_rng_uniform(&r, i % 9);
    }
    /* Five standard errors of each mean. */
    assert_true(fabs(sum / N) < 5 / sqrt(N));
    assert_true(fabs(squares / N - 1) < 5 * sqrt(2.0 / N));
    assert_true(fabs(uniform / N - 0.5) < 5 * sqrt(1 / 12.0 / N));
}

static void streams_differ(void **state)
{
    (void)state;
    struct llm_rng a = llm_rng_at(1, 0, LLM_RNG_TEST, 0, 0, 0);
    const struct llm_rng others[] = {
        llm_rng_at(2, 0, LLM_RNG_TEST, 0, 0, 0), llm_rng_at(1, 1, LLM_RNG_TEST, 0, 0, 0), llm_rng_at(1, 0, LLM_RNG_INIT, 0, 0, 0),
        llm_rng_at(1, 0, LLM_RNG_TEST, 1, 0, 0), llm_rng_at(1, 0, LLM_RNG_TEST, 0, 1, 0), llm_rng_at(1, 0, LLM_RNG_TEST, 0, 0, 1)};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_not_equal(llm_rng_u32(&a, 0), llm_rng_u32(&others[i], 0));
    assert_int_not_equal(llm_rng_u32(&a, 0), llm_rng_u32(&a, 1));
}

static void below_is_fair(void **state)
{
    int count[7] = {0};
    enum { N = 70000 };
    (void)state;
    for (uint32_t i = 0; i < N; i++) {
        struct llm_rng r = llm_rng_at(3, 0, LLM_RNG_TEST, 0, i, 0);
        uint64_t k = llm_rng_below(&r, 0, 7);
        assert_in_range(k, 0, 6);
        count[k]++;
    }
    double chi2 = 0;
    for (int i = 0; i < 7; i++) chi2 += (count[i] - N / 7.0) * (count[i] - N / 7.0) / (N / 7.0);
    assert_true(chi2 < 22.46); /* 6 degrees of freedom, p = .001 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(known_answers), cmocka_unit_test(moments), cmocka_unit_test(streams_differ),
                                       cmocka_unit_test(below_is_fair)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
