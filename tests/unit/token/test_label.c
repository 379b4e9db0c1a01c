/* Tokens as labels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "token/label.h"

static const char json[] =
    "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":4,\"content\":\"<|end|>\",\"special\":true,\"normalized\":false,\"single_word\":false,"
    "\"lstrip\":false,\"rstrip\":false}],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
    "\"trim_offsets\":true,\"use_regex\":true},\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\","
    "\"vocab\":{\"\u0120\":0,\"\u010a\":1,\"\u00e4\":2,\"a\":3,\"\u0120a\":6,\"\u00c3\":7,\"\u00c3\u00a4\":8,\"\u00a4\":9},"
    "\"merges\":[\"\u0120 a\",\"\u00c3 \u00a4\"]}}";

static void labels(void **state)
{
    (void)state;
    static const struct { int32_t id; const char *label; } rows[] = {
        {0, "␣"}, {1, "\\n"}, {2, "\\xE4"}, {3, "a"}, {4, "<|end|>"}, {5, "<5>"}, {6, "␣a"}, {7, "\\xC3"}, {8, "ä"}};
    struct llm_err e = {0};
    struct llm_tokenizer *t = llm_tokenizer_from_json(json, sizeof json - 1, "test", &e);
    if (!t) fail_msg("%s", e.text);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct llm_buf b = {0};
        assert_int_equal(llm_token_label(t, rows[i].id, &b, &e), 0);
        assert_string_equal(b.p, rows[i].label);
        llm_buf_release(&b);
    }
    llm_tokenizer_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(labels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
