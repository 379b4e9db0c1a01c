/* Orders: every window once an epoch, another order each epoch, nothing outside the data; a function of the sample alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "data/order.h"

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void test_shuffle(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {9, 10, 16, 17, 100, 1000, 4097};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        const struct llm_order o = {.kind = LLM_ORDER_SHUFFLE, .seed = 5, .first = 3, .n = lengths[l], .context = 8};
        uint64_t windows = llm_order_windows(&o), at[600], before[600];
        assert_int_equal(windows, (lengths[l] - 1) / 8);
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            for (uint64_t i = 0; i < windows; i++) at[i] = llm_order_at(&o, epoch * windows + i);
            if (epoch && windows > 20) assert_memory_not_equal(at, before, windows * sizeof *at);
            memcpy(before, at, windows * sizeof *at);
            qsort(at, windows, sizeof *at, by_value);
            for (uint64_t i = 1; i < windows; i++) assert_int_equal(at[i] - at[i - 1], 8); /* none twice, none left out */
            assert_true(at[0] >= o.first && at[windows - 1] + 8 + 1 <= o.first + o.n);
        }
    }
}

/* Places are spread evenly: χ² of 16 equal parts, 15 degrees of freedom, .999 quantile 37.7. */
static void test_random(void **state)
{
    (void)state;
    const struct llm_order o = {.kind = LLM_ORDER_RANDOM, .seed = 5, .first = 100, .n = 1608, .context = 8};
    double counts[16] = {0}, chi = 0;
    bool first = false, last = false;
    for (uint64_t i = 0; i < 16000; i++) {
        uint64_t at = llm_order_at(&o, i);
        assert_true(at >= 100 && at + 8 + 1 <= 100 + 1608);
        assert_int_equal(at, llm_order_at(&o, i));
        counts[(at - 100) / 100]++;
        first = first || at == 100;
        last = last || at == 100 + 1608 - 9;
    }
    for (int i = 0; i < 16; i++) chi += (counts[i] - 1000) * (counts[i] - 1000) / 1000;
    assert_true(chi < 37.7);
    assert_true(first && last);
}

static void test_sequential(void **state)
{
    (void)state;
    const struct llm_order o = {.kind = LLM_ORDER_SEQUENTIAL, .first = 2, .n = 30, .context = 8};
    static const uint64_t want[] = {2, 10, 18, 2, 10, 18, 2};
    for (uint64_t i = 0; i < sizeof want / sizeof *want; i++) assert_int_equal(llm_order_at(&o, i), want[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shuffle), cmocka_unit_test(test_random), cmocka_unit_test(test_sequential)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
