/* Calls of tools in texts: each form of the table, as models of its family write them, and texts that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include "token/chat/tools.h"

#define CALL "[{\"name\":\"f\",\"arguments\":{\"x\":1}}]"
#define TWO "[{\"name\":\"f\",\"arguments\":{\"x\":1}},{\"name\":\"g\",\"arguments\":{}}]"
static const struct { const char *form, *text, *calls, *content; bool begun; } cases[] = {
    {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>", CALL, "", false},
    {"hermes", "I see.\n\n<tool_call>{\"arguments\": {\"x\": 1}, \"name\": \"f\"}</tool_call>\n", CALL, "I see.", false},
    {"hermes", "<tool_call>\n{\"name\":\"f\",\"arguments\":{\"x\":1}}</tool_call>\n<tool_call>{\"name\":\"g\",\"arguments\":{}}", TWO, "", false},
    {"hermes", "\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>", CALL, "", true},
    {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}", NULL, NULL, false},
    {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>", NULL, NULL, false},
    {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call> or so", NULL, NULL, false},
    {"hermes", "no call", NULL, NULL, false},
    {"hermes", "", NULL, NULL, false},
    {"mistral", "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"x\": 1}, \"id\": \"abcdefghi\"}]", CALL, "", false},
    {"mistral", "Hm [TOOL_CALLS][{\"name\":\"f\",\"arguments\":{\"x\":1}},{\"name\":\"g\",\"arguments\":{}}]", TWO, "Hm", false},
    {"mistral", "[TOOL_CALLS] []", NULL, NULL, false},
    {"mistral-v11", "[TOOL_CALLS]f[ARGS]{\"x\": 1}[TOOL_CALLS]g[ARGS]{}", TWO, "", false},
    {"mistral-v11", "f[ARGS]{\"x\": 1}", CALL, "", true},
    {"mistral-v11", "[TOOL_CALLS]f{\"x\": 1}", NULL, NULL, false},
    {"llama3", "{\"name\": \"f\", \"parameters\": {\"x\": 1}}", CALL, "", false},
    {"llama3", "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {\"x\": 1}}", CALL, "", false},
    {"llama3", "{\"name\": \"f\", \"parameters\": {\"x\": 1}}; {\"name\": \"g\", \"parameters\": {}}", TWO, "", false},
    {"llama3", "<|python_tag|>f.call(x=1)", CALL, "", false},
    {"llama3", "Now:\n<|python_tag|>f.call( x = 1 , y=\"a)\")\n", "[{\"name\":\"f\",\"arguments\":{\"x\":1,\"y\":\"a)\"}}]", "Now:", false},
    {"llama3", "<|python_tag|>f.call()", "[{\"name\":\"f\",\"arguments\":{}}]", "", false},
    {"llama3", "<|python_tag|>f.call(x=1", NULL, NULL, false},
    {"llama3", "<|python_tag|>f.call(x=1 y=2)", NULL, NULL, false},
    {"llama3", "<|python_tag|>f.call(1)", NULL, NULL, false},
    {"llama3", "<|python_tag|>f.call(x=1) or so", NULL, NULL, false},
    {"llama3", "<|python_tag|>print(1)", NULL, NULL, false},
    {"llama3", "Say {\"name\": \"f\", \"parameters\": {}}", NULL, NULL, false},
    {"llama3", "{\"colour\": \"red\"}", NULL, NULL, false},
    {"phi4", "<|tool_call|>[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1}}}]<|/tool_call|>", CALL, "", false},
    {"command-r7b", "<|START_ACTION|>[\n {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {\"x\": 1}},\n {\"tool_call_id\": \"1\", "
     "\"tool_name\": \"g\", \"parameters\": {}}\n]<|END_ACTION|>", TWO, "", false},
    {"command-r", "Let me see.\nAction:\n```json\n[\n {\n \"tool_name\": \"f\",\n \"parameters\": {\"x\": 1}\n }\n]```", CALL, "Let me see.", false},
    {"command-r", "Action: ```json\n[{\"tool_name\": \"f\", \"parameters\": {\"x\": 1}}]\n```", CALL, "", false},
    {"command-r", "```json\n[{\"colour\": \"red\"}]\n```", NULL, NULL, false},
    {"granite", "<|tool_call|>[{\"arguments\": {\"x\": 1}, \"name\": \"f\"}]", CALL, "", false},
    {"functools", " functools[{\"name\": \"f\", \"arguments\": {\"x\": 1}}]", CALL, "", false},
    {"functionary-v3.1", "<function=f>{\"x\": 1}</function><function=g>{}</function>", TWO, "", false},
    {"functionary-v3.1", "So:\n<|python_tag|>print(\"1\")\n2",
     "[{\"name\":\"python\",\"arguments\":{\"code\":\"print(\\\"1\\\")\\n2\"}}]", "So:", false},
    {"functionary-v3.1", "<|python_tag|>", NULL, NULL, false},
    {"functionary-v3.2", "f\n{\"x\": 1}>>>g\n{}", TWO, "", true},
    {"functionary-v3.2", "It rains.>>>f\n{\"x\": 1}", CALL, "It rains.", false},
    {"functionary-v3.2", "It rains.\nNo {}", NULL, NULL, true},
    {"deepseek-v3.1", "a<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"x\": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", CALL, "a", false},
    {"deepseek-r1", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"x\": 1}\n```<｜tool▁call▁end｜>\n"
     "<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", TWO, "", false},
};

static const struct llm_tool_form *form_named(const char *name)
{
    const struct llm_tool_form *f = llm_tool_forms;
    while (f->name && strcmp(f->name, name) != 0) f++;
    assert_non_null(f->name);
    return f;
}

static void reading(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct llm_err e = {0};
        json_t *calls = NULL;
        size_t n_content = 0, n = strlen(cases[i].text);
        assert_int_equal(llm_tool_calls_read(form_named(cases[i].form), cases[i].text, n, cases[i].begun, &calls, &n_content, &e), 0);
        if (!calls != !cases[i].calls) fail_msg("%s: %s: expected %s", cases[i].form, cases[i].text, cases[i].calls ? "calls" : "none");
        if (calls) {
            struct llm_buf b = {0};
            assert_int_equal(llm_json_dump(calls, &b, &e), 0);
            assert_string_equal(b.p, cases[i].calls);
            assert_int_equal(n_content, strlen(cases[i].content));
            assert_memory_equal(cases[i].text, cases[i].content, n_content);
            llm_buf_release(&b);
        } else {
            assert_int_equal(n_content, n);
        }
        json_decref(calls);
        /* whatever is cut off, reading ends, and finds no call that is not there */
        for (size_t cut = 0; cut < n; cut++) {
            assert_int_equal(llm_tool_calls_read(form_named(cases[i].form), cases[i].text, cut, cases[i].begun, &calls, &n_content, &e), 0);
            if (!cases[i].calls) assert_true(!calls || strcmp(cases[i].form, "hermes") == 0 || strcmp(cases[i].form, "llama3") == 0);
            assert_true(n_content <= cut);
            json_decref(calls);
        }
    }
}

static void forms_of_templates(void **state)
{
    static const struct { const char *template_text, *form; } v[] = {
        {"<tool_call>{{ x }}</tool_call>", "hermes"}, {"<tool_call><function={{ f }}><parameter=x></tool_call>", NULL},
        {"[TOOL_CALLS]{{ f }}[ARGS]", "mistral-v11"}, {"[TOOL_CALLS] [", "mistral"},
        {">>>${recipient} '>>>all\\n'", "functionary-v3.2"}, {"<|im_start|>", NULL},
        {"<|start_header_id|>{\"name\": \"f\", \"parameters\": }", "llama3"}, {"<｜tool▁sep｜>\n```json\n", "deepseek-r1"},
        {"<｜tool▁sep｜>", "deepseek-v3.1"}, {"<|tool_call|><|/tool_call|>", "phi4"}, {"<|tool_call|>", "granite"},
        {"<|START_ACTION|>[{\"tool_name\": x}] Action: write", "command-r7b"}, {"\nAction:\n```json\n[ \"tool_name\": ", "command-r"}};
    (void)state;
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        const struct llm_tool_form *f = llm_tool_form_find(v[i].template_text);
        if (v[i].form && !f) fail_msg("%s: expected %s", v[i].template_text, v[i].form);
        if (f) assert_string_equal(f->name, v[i].form ? v[i].form : "none");
    }
}

static void arguments_of_messages(void **state)
{
    static const char text[] = "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\": 1}\"}},"
                               "{\"function\":{\"name\":\"g\",\"arguments\":\"x\"}}]}]";
    struct llm_err e = {0};
    (void)state;
    for (int i = 0; i < 2; i++) {
        json_t *m = llm_json_parse(text, strlen(text), &e);
        assert_int_equal(llm_tool_messages_prepare(i ? "{{ c['arguments'] | tojson }}" : "{{ c.arguments }}", m, &e), 0);
        json_t *calls = json_object_get(json_array_get(m, 0), "tool_calls");
        const json_t *first = json_object_get(json_object_get(json_array_get(calls, 0), "function"), "arguments");
        assert_true(i ? json_is_object(first) : json_is_string(first));
        assert_true(json_is_string(json_object_get(json_object_get(json_array_get(calls, 1), "function"), "arguments")));
        json_decref(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reading), cmocka_unit_test(forms_of_templates), cmocka_unit_test(arguments_of_messages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
