/* The long lists of a tokenizer.json without a tree: what is cut out, what is read of it, and what is left to the reader of whole texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "token/internal.h"
#include "token/json_texts.h"

static void cutting(void **state)
{
    static const struct { const char *json, *rest, *vocab, *merges; } cases[] = {
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", "{\"model\":{\"vocab\":{},\"merges\":[]}}", "{\"a\":0}", "[\"a b\"]"},
        {" {\"x\" : [1, \"]}\"], \"model\" :\n{\"merges\":[[\"a\",\"b\"]] , \"vocab\": {\"}\":1}, \"y\": -1e3}, \"z\": null }",
         " {\"x\" : [1, \"]}\"], \"model\" :\n{\"merges\":[] , \"vocab\": {}, \"y\": -1e3}, \"z\": null }", "{\"}\":1}", "[[\"a\",\"b\"]]"},
        {"{\"model\":{\"vocab\":{\"\\\"\":1},\"merges\":[ ]}}", "{\"model\":{\"vocab\":{},\"merges\":[ ]}}", "{\"\\\"\":1}", NULL},
        {"{\"model\":{\"vocab\":[[\"a\",1]]}}", NULL, NULL, NULL},
        {"{\"vocab\":{},\"model\":{\"x\":{\"vocab\":{}}}}", NULL, NULL, NULL},
        {"{\"model\":{\"vocab\":{\"a\":0}", NULL, NULL, NULL},
        {"[{\"model\":{\"vocab\":{}}}]", NULL, NULL, NULL},
        {"{\"model\":{\"vocab\":{\"a\":0", NULL, NULL, NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct llm_err e = {0};
        struct llm_json_cut c;
        int got = llm_json_cut(cases[i].json, strlen(cases[i].json), &c, &e);
        assert_int_equal(got, cases[i].rest != NULL);
        if (got) {
            assert_string_equal(c.rest.p, cases[i].rest);
            assert_true(!c.vocab == !cases[i].vocab && !c.merges == !cases[i].merges);
            assert_true(!c.vocab || (c.n_vocab == strlen(cases[i].vocab) && memcmp(c.vocab, cases[i].vocab, c.n_vocab) == 0));
            assert_true(!c.merges || (c.n_merges == strlen(cases[i].merges) && memcmp(c.merges, cases[i].merges, c.n_merges) == 0));
        }
        llm_buf_release(&c.rest);
    }
}

static int read_texts(struct llm_json_texts *t, const char *text)
{
    struct llm_err e = {0};
    *t = (struct llm_json_texts){0};
    return llm_json_texts_from_text(t, text, strlen(text), &e);
}

static void vocabularies(void **state)
{
    static const char *const left[] = {"{\"a\":0,\"\\u0061\":1}", "{\"a\":0,}", "{\"a\":1.5}", "{\"a\":1e3}", "{\"a\":01}", "{\"a\":-}",
                                       "{\"a\":\"x\"}",
                                       "{\"a\" 1}", "{\"a\":1 \"b\":2}", "{\"a\":1} ", "{\"a\":1",
                                       "{\"a\\u0000\":1}", "{\"\\ud800\":1}", "{\"\n\":1}",
                                       "{\"\xFF\":1}", "{\"a\":12345678901234567890}", "[\"a\"]", ""};
    struct llm_json_texts t;
    size_t at = 99;
    (void)state;
    assert_int_equal(read_texts(&t, "{ \"a\" :0,\n\"\\\"\\\\\\/\\n\\u0120\\ud83d\\ude00\":7 , \"\":-5, \"\xC4\xA0the\" : 300}"), 1);
    assert_int_equal(t.n, 4);
    assert_int_equal(llm_json_texts_find(&t, "a", 1, &at), 0);
    assert_int_equal(at, 0);
    assert_int_equal(llm_json_texts_find(&t, "\"\\/\n\xC4\xA0\xF0\x9F\x98\x80", 10, NULL), 7);
    assert_int_equal(llm_json_texts_find(&t, "", 0, NULL), -5);
    assert_int_equal(llm_json_texts_find(&t, "\xC4\xA0the", 5, &at), 300);
    assert_int_equal(at, 3);
    assert_int_equal(llm_json_texts_find(&t, "b", 1, NULL), -1);
    llm_json_texts_release(&t);
    assert_int_equal(read_texts(&t, "{ }"), 1);
    assert_int_equal(llm_json_texts_find(&t, "a", 1, NULL), -1);
    llm_json_texts_release(&t);
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        if (read_texts(&t, left[i]) != 0)
            fail_msg("'%s' was taken", left[i]);
        llm_json_texts_release(&t);
    }
}

static int collect(void *arg, size_t i, const char *left, size_t n_left, const char *right, size_t n_right, struct llm_err *e)
{
    return llm_buf_printf(arg, e, "%zu(%.*s|%.*s)", i, (int)n_left, left, (int)n_right, right);
}

static void merges(void **state)
{
    static const char *const left[] = {"[\"a b\",]", "[\"ab\"]", "[\" b\"]", "[\"a \"]", "[[\"a\"]]",
                                       "[[\"a\",\"b\",\"c\"]]", "[1]", "[\"a b\"] ", "[\"a b\"",
                                       "[\"a b\" \"c d\"]", "{}", "[\"\xC3 b\"]", ""};
    static const char all[] = "[ \"a b\",[\"c d\" , \"\\\"\"]\n,\"\\u0120 x y\"]";
    struct llm_buf b = {0};
    struct llm_err e = {0};
    (void)state;
    assert_int_equal(llm_json_merges_from_text(all, sizeof all - 1, collect, &b, &e), 1);
    assert_string_equal(b.p, "0(a|b)1(c d|\")2(\xC4\xA0|x y)");
    for (size_t i = 0; i < sizeof left / sizeof *left; i++)
        if (llm_json_merges_from_text(left[i], strlen(left[i]), collect, &b, &e) != 0)
            fail_msg("'%s' was taken", left[i]);
    llm_buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cutting), cmocka_unit_test(vocabularies), cmocka_unit_test(merges)};
    return cmocka_run_group_tests_name("lists of a tokenizer.json", tests, NULL, NULL);
}
