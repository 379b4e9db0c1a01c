/* Types of caches by layers as texts: what they say, the shortest text of each, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "infer/kvtypes.h"

enum { LAYERS = 6 };

static void texts_are_read_and_written(void **state)
{
    static const struct { const char *text, *shortest; } rows[] = {
        {"bf16", "bf16"}, {"q8_0,q4_0", "q8_0,q4_0"}, {"q8_0,q8_0", "q8_0"}, {"q8_0,q4_0/0-1:bf16", "0-1:bf16/2-5:q8_0,q4_0"},
        {"f32/5:f16/5:f32", "f32"}, {"q4_0_rot", "q4_0_rot"}, {"q4_0_rot,q4_0/0:q8_0_rot,bf16", "0:q8_0_rot,bf16/1-5:q4_0_rot"},
        {"0-2:q4_0/3-5:q4_0", "q4_0"}, {"2:f16/0-1:f32/3-5:f32,bf16", "0-1:f32/2:f16/3-5:f32,bf16"}};
    struct llm_err e = {0};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct llm_kv_pair of[LAYERS], again[LAYERS];
        assert_int_equal(llm_kv_types_check(rows[i].text, &e), 0);
        if (llm_kv_types_read(rows[i].text, of, LAYERS, &e) < 0) fail_msg("%s", e.text);
        char *text = llm_kv_types_text(of, LAYERS, &e);
        assert_string_equal(text, rows[i].shortest);
        assert_int_equal(llm_kv_types_read(text, again, LAYERS, &e), 0);
        assert_memory_equal(of, again, sizeof of);
        free(text);
    }
    struct llm_kv_pair of[LAYERS];
    assert_int_equal(llm_kv_types_read("q8_0,q4_0/0-1:bf16", of, LAYERS, &e), 0);
    assert_true(of[1].k == LLM_BF16 && of[1].v == LLM_BF16 && of[2].k == LLM_Q8_0 && of[5].v == LLM_Q4_0);
    assert_int_equal(llm_kv_types_check(NULL, &e), 0);
}

static void wrong_texts_are_refused(void **state)
{
    static const struct { const char *text, *says; } rows[] = {
        {"", "expected one of f32|f16|bf16|q8_0|q4_0|q8_0_rot|q4_0_rot, found ''"},
        {"q8-0", "expected one of f32|f16|bf16|q8_0|q4_0|q8_0_rot|q4_0_rot, found 'q8-0' (did you mean q8_0?)"},
        {"q8_0,", "found ''"}, {"q8_0,q8_0_rot", "expected one of f32|f16|bf16|q8_0|q4_0, found 'q8_0_rot'"},
        {"q8_0,q4_0,f16", "found 'q4_0,f16'"}, {"bf16/", "found ''"}, {"q8_0/6:f16", "expected layers below 6, found 6"},
        {"3-2:f16", "expected layers as 3: or 2-5:, found '3-2:'"}, {"-1:f16", "found '-1:'"}, {"1x:f16", "found '1x:'"}, {":f16", "found ':'"},
        {"99999999999999999999:f16", "expected layers below 6"}, {"1:f16", "expected a type for layer 0, found none in '1:f16'"}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct llm_kv_pair of[LAYERS];
        struct llm_err e = {0};
        assert_int_equal(llm_kv_types_read(rows[i].text, of, LAYERS, &e), -1);
        assert_int_equal(e.status, LLM_EX_USAGE);
        if (!strstr(e.text, rows[i].says)) fail_msg("'%s': expected '%s', found '%s'", rows[i].text, rows[i].says, e.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts_are_read_and_written), cmocka_unit_test(wrong_texts_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
