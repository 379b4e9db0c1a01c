/* Windows of conventions: each token is scored once where the convention says so, and sees what it says; words as Python splits them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "measure/convention.h"

enum { MOST = 200 };

/* How often each of n tokens is scored; *least: the fewest tokens that one of them, after the first window, sees. */
static void scored(enum llm_convention convention, int64_t context, int64_t stride, int64_t n, int times[MOST], int64_t *least)
{
    struct llm_window w = {0};
    memset(times, 0, MOST * sizeof *times);
    *least = n;
    while (llm_window_next(convention, context, stride, n, &w)) {
        assert_true(w.at >= 0 && w.at + w.n <= n && w.skip >= 1 && w.skip <= w.n);
        assert_true(w.n <= context + (convention == LLM_BY_WORD));
        for (int64_t i = w.skip; i < w.n; i++) times[w.at + i]++;
        if (w.at > 0 && w.skip < *least) *least = w.skip;
    }
}

static void each_token_once(void **state)
{
    int times[MOST];
    int64_t least;
    (void)state;
    for (int64_t n = 2; n < 60; n++) {
        for (int64_t context = 2; context < 20; context++) {
            const enum llm_convention all[] = {LLM_BY_DOCUMENT, LLM_BY_HF_STRIDE, LLM_BY_WORD};
            for (int c = 0; c < 3; c++) {
                for (int64_t stride = 1; stride <= (all[c] == LLM_BY_HF_STRIDE ? context : 1); stride++) {
                    scored(all[c], context, stride, n, times, &least);
                    /* windows of hf-stride that begin a context apart leave their first token out: nothing stands before it */
                    const bool apart = all[c] == LLM_BY_HF_STRIDE && stride == context;
                    for (int64_t i = 0; i < n; i++) assert_int_equal(times[i], i > 0 && !(apart && i % context == 0));
                    if (all[c] == LLM_BY_DOCUMENT && least < n) assert_int_equal(least, context - context / 2);
                }
            }
            scored(LLM_BY_LLAMA_CPP, context, 1, n, times, &least);
            for (int64_t i = 0; i < n; i++) assert_int_equal(times[i], i < n / context * context && i % context > context / 2);
        }
    }
}

static void words(void **state)
{
    (void)state;
    assert_int_equal(llm_count_words("", 0), 1);
    assert_int_equal(llm_count_words("a b", 3), 2);
    assert_int_equal(llm_count_words(" a \n\n b\n", 8), 4);
    assert_int_equal(llm_count_words("a\xc2\xa0\xe3\x80\x80z", 7), 2); /* U+00A0, U+3000 */
    assert_int_equal(llm_count_words("a\xe2\x80\x8bz", 5), 1);         /* U+200B is none */
    assert_int_equal(llm_count_words("a\xff b", 4), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_token_once), cmocka_unit_test(words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
