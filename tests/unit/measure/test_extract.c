/* Answers in generated texts against lm-eval's, by Python's re (tests/oracle/extract.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "measure/eval/extract.h"

static void answers_are_those_of_lm_eval(void **state)
{
    FILE *f = fopen("tests/golden/extract.jsonl", "r");
    char *line = NULL;
    size_t room = 0, n = 0;
    (void)state;
    assert_non_null(f);
    for (ssize_t got; (got = getline(&line, &room, f)) > 0; n++) {
        struct llm_err e = {0};
        struct llm_buf answer = {0};
        json_t *o = llm_json_parse(line, (size_t)got, &e);
        assert_non_null(o);
        const json_t *text = json_object_get(o, "text"), *want = json_object_get(o, "answer");
        struct llm_extract *x = llm_extract_create(json_object_get(o, "task"), &e);
        assert_non_null(x);
        int found = llm_extract_answer(x, json_string_value(text), json_string_length(text), &answer, &e);
        bool same = found == json_is_string(want);
        if (same && found) same = answer.n == json_string_length(want) && memcmp(answer.p, json_string_value(want), answer.n) == 0;
        if (!same) fail_msg("%sfound %d '%.*s'", line, found, (int)answer.n, answer.p ? answer.p : "");
        llm_extract_destroy(x);
        llm_buf_release(&answer);
        json_decref(o);
    }
    assert_true(n >= 500);
    free(line);
    fclose(f);
}

/* The answer, or the target's, of a text. */
static void expect(const char *task, bool gold, const char *text, const char *want)
{
    struct llm_err e = {0};
    struct llm_buf answer = {0};
    json_t *o = llm_json_parse(task, strlen(task), &e);
    struct llm_extract *x = llm_extract_create(o, &e);
    assert_non_null(x);
    int got = gold ? llm_extract_gold(x, text, strlen(text), &answer, &e) : llm_extract_answer(x, text, strlen(text), &answer, &e);
    assert_int_equal(got, !gold && want);
    if (want) assert_string_equal(answer.p, want);
    llm_extract_destroy(x);
    llm_buf_release(&answer);
    json_decref(o);
}

static void a_target_without_the_pattern_is_cleaned_whole(void **state)
{
    const char *task = "{\"extract\": \"answer is (.*)\", \"ignore\": [\",\"], \"ignore_case\": true}";
    (void)state;
    expect(task, true, " 1,234 Apples", "1234 apples");
    expect(task, true, "The answer is 1,234 Apples", "1234 apples");
    expect(task, false, "The answer is 1,234 Apples", "1234 apples");
    expect(task, false, "1,234 Apples", NULL);
}

static void bytes_that_are_no_text_stay(void **state)
{
    (void)state;
    expect("{\"ignore\": [\"x*\"], \"ignore_case\": true}", false, "A\xFFxB\xC3", "a\xFF" "b\xC3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_are_those_of_lm_eval),
                                       cmocka_unit_test(a_target_without_the_pattern_is_cleaned_whole),
                                       cmocka_unit_test(bytes_that_are_no_text_stay)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
