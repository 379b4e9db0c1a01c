/* Groups of documents by tokens: each document once, no group above the budget, and of any number of documents the same groups again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include "base/rng.h"
#include "data/groups.h"

enum { N = 1000 };

static void check(const struct llm_groups *g, const int64_t *lengths, int64_t n, int64_t tokens)
{
    int64_t seen[N] = {0}, most = 0;
    assert_int_equal(g->first[0], 0);
    assert_int_equal(g->first[g->n], n);
    for (int64_t b = 0; b < g->n; b++) {
        int64_t documents = g->first[b + 1] - g->first[b], longest = 0;
        assert_true(documents >= 1 && documents * g->length[b] <= tokens);
        most = documents > most ? documents : most;
        for (int64_t i = g->first[b]; i < g->first[b + 1]; i++) {
            int64_t length = lengths[g->documents[i]];
            seen[g->documents[i]]++;
            longest = length > longest ? length : longest;
        }
        assert_int_equal(g->length[b], longest);
        /* The next document would not have fitted. */
        if (b + 1 < g->n) assert_true((documents + 1) * g->length[b] > tokens);
    }
    assert_int_equal(g->most, most);
    for (int64_t i = 0; i < n; i++) assert_int_equal(seen[i], 1);
}

static void test_groups(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 7, 100, N}, budgets[] = {50, 51, 97, 512, 100000};
    int64_t lengths[N];
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (size_t k = 0; k < sizeof budgets / sizeof *budgets; k++) {
            struct llm_err e = {0};
            struct llm_groups a, b, other;
            const struct llm_rng r = llm_rng_at(3, 0, LLM_RNG_TEST, 0, (uint32_t)s, (uint32_t)k);
            for (int64_t i = 0; i < sizes[s]; i++) lengths[i] = 1 + (int64_t)llm_rng_below(&r, (uint32_t)i, 50);
            assert_int_equal(llm_groups_make(&a, lengths, sizes[s], budgets[k], 1, &e), 0);
            assert_int_equal(llm_groups_make(&b, lengths, sizes[s], budgets[k], 1, &e), 0);
            assert_int_equal(llm_groups_make(&other, lengths, sizes[s], budgets[k], 2, &e), 0);
            check(&a, lengths, sizes[s], budgets[k]);
            check(&other, lengths, sizes[s], budgets[k]);
            assert_memory_equal(a.documents, b.documents, (size_t)sizes[s] * sizeof *a.documents);
            if (sizes[s] == N) assert_memory_not_equal(a.documents, other.documents, N * sizeof *a.documents);
            llm_groups_release(&a);
            llm_groups_release(&b);
            llm_groups_release(&other);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_groups)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
