/* Long strings of JSON decoded in place: as jansson decodes them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/json_long.h"

static void strings_are_as_jansson_has_them(void **state)
{
    static const char text[] = "{\"id\": [1, \"\\u0000/0\"], \"a long key of an object\": \"short\", \"text\" : "
                               "\"\\u00e9\\\"\\\\\\/\\b\\f\\n\\r\\t\\ud83d\\ude00"
                               "\xc3\xa9 \xe4\xb8\xad \xf0\x9f\x98\x80 and more\", \"b\": \"\", \"second\": \"the second of the long strings\"}";
    static const char *const keys[] = {"text", "b", "second", "a long key of an object"};
    struct llm_err e = {0};
    (void)state;
    for (size_t least = 1; least < 100; least++) {
        struct llm_json_long l = {.least = least};
        char copy[sizeof text];
        for (int again = 0; again < 2; again++) { /* the memory of the first serves the second */
            memcpy(copy, text, sizeof text);
            json_t *want = llm_json_parse(text, sizeof text - 1, &e), *got = llm_json_long_parse(&l, copy, sizeof text - 1, &e);
            assert_non_null(got);
            for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
                size_t n;
                const json_t *v = json_object_get(want, keys[i]);
                const char *s = llm_json_long_string(&l, json_object_get(got, keys[i]), &n);
                assert_int_equal(n, json_string_length(v));
                assert_memory_equal(s, json_string_value(v), n);
            }
            size_t n;
            assert_null(llm_json_long_string(&l, json_object_get(got, "id"), &n));
            assert_null(llm_json_long_string(&l, NULL, &n));
            json_decref(want);
            json_decref(got);
        }
        llm_json_long_release(&l);
    }
}

static void errors_are_as_jansson_has_them(void **state)
{
    static const char *const bad[] = {"{\"text\": \"\\ud83d alone and more\"}",
                                      "{\"text\": \"\\u12g4 and more\"}", "{\"text\": \"\\x and more of it\"}",
                                      "{\"text\": \"\xff and more of it\"}", "{\"text\": \"a long string\", \"text\": \"a long string\"}",
                                      "{\"text\": \"a long string", "[\"a long string\" \"a long string\"]", "{\"a long string\"}",
                                      "{\"text\": \"a control \x01 character\"}", "{\"text\": \"a long string\"} 1"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct llm_err want = {0}, got = {0};
        struct llm_json_long l = {.least = 4};
        char copy[100];
        size_t n = strlen(bad[i]);
        memcpy(copy, bad[i], n);
        assert_null(llm_json_parse(bad[i], n, &want));
        assert_null(llm_json_long_parse(&l, copy, n, &got));
        assert_int_equal(got.status, EX_DATAERR);
        assert_string_equal(got.text, want.text);
        llm_json_long_release(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(strings_are_as_jansson_has_them), cmocka_unit_test(errors_are_as_jansson_has_them)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
