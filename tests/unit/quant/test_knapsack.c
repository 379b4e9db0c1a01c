/* The exact knapsack against all combinations. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/rng.h"
#include "quant/knapsack.h"

enum { N = 6, CHOICES = 4 };

/* The least harm of all combinations that fit; INFINITY: none does. */
static double least_harm(const struct llm_knapsack_item *items, int n, uint64_t capacity)
{
    double best = INFINITY;
    int total = 1;
    for (int i = 0; i < n; i++) total *= CHOICES;
    for (int c = 0; c < total; c++) {
        double harm = 0;
        uint64_t size = 0;
        for (int i = 0, left = c; i < n; i++, left /= CHOICES) {
            harm += items[i].harm[left % CHOICES];
            size += items[i].size[left % CHOICES];
        }
        if (size <= capacity && harm < best) best = harm;
    }
    return best;
}

static void least_of_all_combinations(void **state)
{
    (void)state;
    int fitted = 0;
    for (uint32_t turn = 0; turn < 200; turn++) {
        const struct llm_rng r = llm_rng_at(1, 0, LLM_RNG_TEST, 0, turn, 0);
        struct llm_knapsack_item items[N];
        struct llm_err e;
        int choice[N];
        for (int i = 0; i < N; i++) {
            items[i].n = CHOICES;
            for (int c = 0; c < CHOICES; c++) {
                items[i].size[c] = 1 + llm_rng_below(&r, (uint32_t)(i * 8 + c), 40);
                /* more bytes are mostly, not always, less harm; some harms are 0 and some are equal */
                items[i].harm[c] = turn % 5 == 0 ? (double)(llm_rng_u32(&r, (uint32_t)(i * 8 + 4 + c)) % 3)
                                                 : (double)llm_rng_uniform(&r, (uint32_t)(i * 8 + 4 + c)) / (double)items[i].size[c];
            }
        }
        const uint64_t capacity = llm_rng_below(&r, 100, 160);
        const double best = least_harm(items, N, capacity);
        const int status = llm_knapsack(items, N, capacity, choice, &e);
        assert_int_equal(status, isinf(best) ? 1 : 0);
        if (status != 0) continue;
        double harm = 0;
        uint64_t size = 0;
        for (int i = 0; i < N; i++) {
            harm += items[i].harm[choice[i]];
            size += items[i].size[choice[i]];
        }
        assert_true(size <= capacity);
        assert_true(fabs(harm - best) <= 1e-12 * (1 + best));
        fitted++;
    }
    assert_true(fitted > 100);
}

/* As many items as a model has matrices, and sizes as they are there. */
static void many_items(void **state)
{
    enum { MANY = 300 };
    static struct llm_knapsack_item items[MANY];
    static int choice[MANY];
    const struct llm_rng r = llm_rng_at(2, 0, LLM_RNG_TEST, 0, 0, 0);
    uint64_t size = 0;
    struct llm_err e;
    (void)state;
    for (uint32_t i = 0; i < MANY; i++) {
        const uint64_t n = 576 * (192 + 32 * llm_rng_below(&r, i, 40));
        items[i].n = 8;
        for (int c = 0; c < 8; c++) {
            items[i].size[c] = n * (uint64_t)(21 + 6 * c) / 64;
            items[i].harm[c] = (double)llm_rng_uniform(&r, 1000 + i) * (double)n * pow(4, -0.75 * c);
        }
    }
    assert_int_equal(llm_knapsack(items, MANY, 576 * 800 * MANY / 2, choice, &e), 0);
    for (int i = 0; i < MANY; i++) size += items[i].size[choice[i]];
    assert_true(size <= 576 * 800 * MANY / 2 && size > (uint64_t)576 * 800 * MANY / 200 * 99);
    assert_int_equal(llm_knapsack(items, MANY, 1000, choice, &e), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(least_of_all_combinations), cmocka_unit_test(many_items)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
