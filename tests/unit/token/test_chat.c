/* Chat templates render what transformers renders (tests/golden/chat.jsonl, written by tests/oracle/chat.py, and the shared goldens); what
 * is hostile ends in one line; the assistant's text is found with and without {% generation %}. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "token/chat/chat.h"
#include "tests/unit/token/shared.h"

static const struct tm now = {.tm_year = 126, .tm_mon = 0, .tm_mday = 2, .tm_hour = 15, .tm_min = 4, .tm_sec = 5, .tm_wday = 5, .tm_yday = 1};

/* A file of SHARED/data/chat-templates. NULL: it is not there. */
static char *read_template(const char *name, size_t *n)
{
    char path[500];
    snprintf(path, sizeof path, "%s/data/chat-templates/%s", shared(), name);
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    char *p = malloc(1 << 20);
    *n = fread(p, 1, 1 << 20, f);
    fclose(f);
    return p;
}

static const char *string_of(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

/* Characters of the first n bytes. */
static size_t count_chars(const char *p, size_t n)
{
    size_t chars = 0;
    for (size_t i = 0; i < n; i++) chars += ((unsigned char)p[i] & 0xC0) != 0x80;
    return chars;
}

struct rendering { struct llm_buf out; struct llm_chat_spans spans; struct llm_err e; int status; };

static void render(struct rendering *r, const char *text, size_t n, const json_t *messages, const json_t *tools, const struct llm_chat_options *o,
                   bool with_spans)
{
    *r = (struct rendering){.status = -1};
    struct llm_chat_template *t = llm_chat_template_create(text, n, &o->limits, &r->e);
    if (t) r->status = llm_chat_render(t, messages, tools, o, &r->out, with_spans ? &r->spans : NULL, &r->e);
    llm_chat_template_destroy(t);
}

static void done(struct rendering *r)
{
    llm_buf_release(&r->out);
    llm_chat_spans_release(&r->spans);
}

static void expect_spans(const struct rendering *r, const json_t *want, const char *what)
{
    if (r->spans.n != json_array_size(want)) fail_msg("%s: expected %zu spans, found %zu", what, json_array_size(want), r->spans.n);
    for (size_t i = 0; i < r->spans.n; i++) {
        const json_t *span = json_array_get(want, i);
        assert_int_equal(count_chars(r->out.p, r->spans.v[i].begin), json_integer_value(json_array_get(span, 0)));
        assert_int_equal(count_chars(r->out.p, r->spans.v[i].end), json_integer_value(json_array_get(span, 1)));
    }
}

static int wrong; /* cases of the golden that came out otherwise */

/* One line of the golden; `common` has what its cases share. False: its template is not there. */
static bool check_case(const json_t *c, const json_t *common)
{
    const char *file = string_of(c, "file"), *text = string_of(c, "template"), *want = string_of(c, "output"), *what = file ? file : text;
    const json_t *messages = json_object_get(file ? c : common, "messages"), *tools = json_object_get(c, "tools");
    const struct llm_chat_options o = {.variables = json_object_get(file ? c : common, "variables"), .now = &now,
                                       .add_generation_prompt = json_is_true(json_object_get(c, "add_generation_prompt"))};
    size_t n = text ? json_string_length(json_object_get(c, "template")) : 0;
    char *loaded = file ? read_template(file, &n) : NULL;
    struct rendering r;
    if (file && !loaded) return false;
    render(&r, file ? loaded : text, n, messages, json_is_array(tools) ? tools : NULL, &o, text && strstr(text, " generation"));
    const char *found = r.status < 0 ? r.e.text : r.out.p ? r.out.p : "";
    bool right = want ? r.status == 0 && strcmp(found, want) == 0 : r.status < 0 && strncmp(found, "template: line ", 15) == 0;
    if (!right) print_error("%s: expected '%s', found '%s'\n", what, want ? want : string_of(c, "error"), found);
    else if (want && json_object_get(c, "spans")) expect_spans(&r, json_object_get(c, "spans"), what);
    wrong += !right;
    done(&r);
    free(loaded);
    return true;
}

/* Calls `check` for each line of a file; how many it found able to run. -1: the file is not there. */
static int each_line(const char *path, bool (*check)(const json_t *c, const json_t *common))
{
    FILE *f = fopen(path, "r");
    json_t *common = NULL;
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    int ran = 0;
    if (!f) return -1;
    while ((n = getline(&line, &room, f)) > 0) {
        struct llm_err e;
        json_t *c = llm_json_parse(line, (size_t)n, &e);
        if (!c) fail_msg("%s: %s", path, e.text);
        if (!common) {
            common = json_incref(c);
            if (json_object_get(c, "template")) ran += check(c, common);
        } else {
            ran += check(c, common);
        }
        json_decref(c);
    }
    json_decref(common);
    free(line);
    fclose(f);
    return ran;
}

static void constructs_render_as_in_transformers(void **state)
{
    (void)state;
    wrong = 0;
    assert_true(each_line("tests/golden/chat.jsonl", check_case) > 300);
    assert_int_equal(wrong, 0);
}

static bool check_shared(const json_t *c, const json_t *common)
{
    char name[200];
    size_t n = 0;
    (void)common;
    const char *want = string_of(c, "rendered"), *date = strstr(want, "Today Date: ");
    /* Templates that ask for the date were rendered on the day the goldens were made. */
    const struct tm made = {.tm_year = 126, .tm_mon = 10, .tm_mday = 21};
    const struct llm_chat_options o = {.bos = string_of(c, "bos_token"), .eos = string_of(c, "eos_token"),
                                       .now = date && strncmp(date + 12, "26 Jul 2024", 11) != 0 ? &made : NULL,
                                       .add_generation_prompt = json_is_true(json_object_get(c, "add_generation_prompt"))};
    snprintf(name, sizeof name, "%s.jinja", string_of(c, "template"));
    char *text = read_template(name, &n);
    struct rendering r;
    assert_non_null(text);
    render(&r, text, n, json_object_get(c, "messages"), NULL, &o, false);
    if (r.status < 0 || strcmp(r.out.p, want) != 0) fail_msg("%s: expected '%s', found '%s' %s", name, want, r.out.p, r.e.text);
    done(&r);
    /* Each span holds what the assistant said, and the template's end of a turn. */
    render(&r, text, n, json_object_get(c, "messages"), NULL, &o, true);
    if (r.status < 0) fail_msg("%s: %s", name, r.e.text);
    size_t spans = 0, i;
    const json_t *m;
    json_array_foreach(json_object_get(c, "messages"), i, m) {
        if (strcmp(string_of(m, "role"), "assistant") != 0) continue;
        const struct llm_chat_span s = r.spans.v[spans++];
        char said[20];
        snprintf(said, sizeof said, "%s", string_of(m, "content") + (string_of(m, "content")[0] == ' '));
        said[strcspn(said, " ")] = 0;
        assert_non_null(memmem(r.out.p + s.begin, s.end - s.begin, said, strlen(said)));
        assert_null(memmem(r.out.p + s.begin, s.end - s.begin, "spaced", 6));
        assert_int_equal(r.out.p[s.end - 1], '>');
    }
    assert_int_equal(r.spans.n, spans);
    done(&r);
    free(text);
    return true;
}

static void shared_goldens(void **state)
{
    char path[500];
    (void)state;
    snprintf(path, sizeof path, "%s/data/golden/chat/hf-jinja.jsonl", shared());
    int ran = each_line(path, check_shared);
    if (ran < 0) skip();
    assert_int_equal(ran, 156);
}

static void hostile_templates_end_in_a_line(void **state)
{
    static const char *const templates[] = {
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}", "{{ range(10 ** 12) }}", "{{ 'a' * 10 ** 9 }}",
        "{{ ('a' * 10 ** 6) * 10 ** 6 }}", "{{ [1] * 10 ** 9 }}", "{{ 'a'.ljust(10 ** 12) }}", "{{ 2 ** 64 }}", "{{ 9223372036854775807 + 1 }}",
        "{{ -9223372036854775807 - 2 }}", "{{ 99999999999999999999 }}", "{{ '%1000000d' % 1 }}", "{{ 'a'|indent(10 ** 10) }}",
        "{{ x|tojson(indent=10**9) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{% set n = namespace() %}{% set n.a = n %}{{ n }}",
        "{% set n = namespace(s='ab') %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}",
        "{% set n = namespace(l=[]) %}{% for i in range(5000) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l }}",
        "{% set n = namespace(l=[]) %}{% for i in range(5000) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l == [n.l] }}",
        "{% set n = namespace(l=[]) %}{% for i in range(5000) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l|tojson }}",
        "{% for i in range(99999) %}{{ ('a' * 100000).find('b' * 1000) }}{% endfor %}", "{{ 'a'.split('a', 'b', 'c', 'd') }}",
        "{% for a in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}", "{{ '{:99999999}'.format(1) }}", "{{ strftime_now('%1000000000d') }}",
    };
    const struct llm_chat_options o = {.now = &now, .limits = {.steps = 2000000, .memory = (size_t)64 << 20}};
    json_t *messages = json_array();
    (void)state;
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        struct rendering r;
        render(&r, templates[i], strlen(templates[i]), messages, NULL, &o, false);
        if (r.status == 0) fail_msg("%s: expected an error", templates[i]);
        if (strncmp(r.e.text, "template: line 1: ", 18) != 0 || strchr(r.e.text, '\n')) fail_msg("%s: found '%s'", templates[i], r.e.text);
        assert_int_equal(r.e.status, EX_DATAERR);
        done(&r);
    }
    json_decref(messages);
}

static void deep_nesting_is_refused(void **state)
{
    static const char *const pieces[][3] = {{"{{ ", "(", "1"}, {"{{ ", "[", "1"}, {"{{ ", "not ", "1"}, {"{{ ", "-", "1"}, {"{{ ",
    "1 if 1 else ", "1"},
                                            {"", "{% if 1 %}", ""}, {"", "{% for i in [1] %}", ""}, {"{{ ", "1 + (", "1"}, {"{{ 1", "+ 1", " }}"},
                                            {"{{ 1", ".a", " }}"}, {"{{ 1", "|abs", " }}"}, {"{{ 1", "~ 1", " }}"}, {"", "{% if 1 %}{% else %}", ""}};
    json_t *messages = json_array();
    const struct llm_chat_options o = {0};
    (void)state;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        struct llm_buf b = {0};
        struct rendering r;
        assert_int_equal(llm_buf_put(&b, pieces[i][0], strlen(pieces[i][0]), NULL), 0);
        for (int k = 0; k < 20000; k++) assert_int_equal(llm_buf_put(&b, pieces[i][1], strlen(pieces[i][1]), NULL), 0);
        assert_int_equal(llm_buf_put(&b, pieces[i][2], strlen(pieces[i][2]), NULL), 0);
        render(&r, b.p, b.n, messages, NULL, &o, false);
        if (r.status == 0 || strncmp(r.e.text, "template: line 1: ", 18) != 0) fail_msg("%s: found '%s'", pieces[i][1], r.e.text);
        done(&r);
        llm_buf_release(&b);
    }
    json_decref(messages);
}

static void errors_name_the_line(void **state)
{
    static const char text[] = "{# a\nb #}\n{% set a = 1 %}\n{%- if a %}\n  {{ a }}\n  {{ raise_exception(\n'stop\nhere') }}\n{% endif %}";
    static const char syntax[] = "one\ntwo\n{% if a %}\n{{ a b }}";
    const struct llm_chat_options o = {0};
    json_t *messages = json_array();
    struct rendering r;
    (void)state;
    render(&r, text, sizeof text - 1, messages, NULL, &o, false);
    assert_string_equal(r.e.text, "template: line 6: stop here");
    done(&r);
    render(&r, syntax, sizeof syntax - 1, messages, NULL, &o, false);
    assert_string_equal(r.e.text, "template: line 4: expected '}}', found 'b'");
    done(&r);
    render(&r, "\xff", 1, messages, NULL, &o, false);
    assert_string_equal(r.e.text, "template: byte 0: not UTF-8");
    done(&r);
    json_decref(messages);
}

/* The built-in templates: the assistant's text with its end is what {% generation %} and the search agree on. */
static void builtin_templates_mark_the_assistant(void **state)
{
    static const char talk[] = "[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"U1\"},"
                               "{\"role\":\"assistant\",\"content\":\"A1\"},"
                               "{\"role\":\"user\",\"content\":\"U2\"},{\"role\":\"assistant\",\"content\":\"A2\"}]";
    const struct llm_chat_options o = {.bos = "<s>", .eos = "</s>"};
    struct llm_err e;
    json_t *messages = llm_json_parse(talk, sizeof talk - 1, &e);
    (void)state;
    assert_null(llm_chat_builtin("none such"));
    for (int i = 0; llm_chat_builtin_word(i); i++) {
        const char *text = llm_chat_builtin(llm_chat_builtin_word(i));
        struct rendering r, plain;
        struct llm_buf b = {0};
        for (const char *p = text; *p;) {
            /* The same without its marks. */
            static const char *const marks[] = {"{%- generation -%}", "{%- endgeneration -%}"};
            size_t skip = 0;
            for (int k = 0; k < 2; k++)
                if (strncmp(p, marks[k], strlen(marks[k])) == 0) skip = strlen(marks[k]);
            if (!skip) assert_int_equal(llm_buf_put(&b, p++, 1, &e), 0);
            p += skip;
        }
        render(&r, text, strlen(text), messages, NULL, &o, true);
        render(&plain, b.p, b.n, messages, NULL, &o, true);
        if (r.status < 0 || plain.status < 0) fail_msg("%s: %s%s", llm_chat_builtin_word(i), r.e.text, plain.e.text);
        assert_string_equal(r.out.p, plain.out.p);
        assert_int_equal(r.spans.n, 2);
        assert_int_equal(plain.spans.n, 2);
        for (size_t k = 0; k < 2; k++) {
            const struct llm_chat_span s = r.spans.v[k], found = plain.spans.v[k];
            assert_non_null(memmem(r.out.p + s.begin, s.end - s.begin, k ? "A2" : "A1", 2));
            assert_null(memmem(r.out.p + s.begin, s.end - s.begin, "U", 1));
            assert_int_equal(found.end, s.end);
            assert_true(found.begin <= s.begin && found.begin + 1 >= s.begin); /* a space that no generation prompt has */
        }
        done(&r);
        done(&plain);
        llm_buf_release(&b);
    }
    json_decref(messages);
}

/* Reasoning that is dropped from earlier turns, turns that are told from no text, calls instead of text. */
static void turns_are_found_in_templates_that_rewrite(void **state)
{
    static const char drops[] = "{% for m in messages %}<|{{ m.role }}|>{{ m.content.split('</think>')[-1].strip() if not loop.last else m.content }}"
                                "<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";
    static const char talk[] = "[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":\"<think>h</think> hi\"},"
                               "{\"role\":\"user\",\"content\":\"bye\"},{\"role\":\"assistant\",\"content\":\"<think>b</think> bye\"}]";
    static const char hides[] = "{% for m in messages %}{{ m.content if m.role == 'user' }}{% endfor %}";
    const struct llm_chat_options o = {0};
    struct llm_err e;
    struct rendering r;
    json_t *messages = llm_json_parse(talk, sizeof talk - 1, &e);
    (void)state;
    render(&r, drops, sizeof drops - 1, messages, NULL, &o, true);
    assert_int_equal(r.status, 0);
    assert_string_equal(r.out.p, "<|user|>hi<|end|><|assistant|>hi<|end|><|user|>bye<|end|><|assistant|><think>b</think> bye<|end|>");
    assert_int_equal(r.spans.n, 2);
    assert_memory_equal(r.out.p + r.spans.v[0].begin, "hi<|end|><|u", 12);
    assert_int_equal(r.spans.v[0].end - r.spans.v[0].begin, 9);
    assert_memory_equal(r.out.p + r.spans.v[1].begin, "<think>b</think> bye<|end|>", 27);
    assert_int_equal(r.spans.v[1].end, r.out.n);
    done(&r);
    render(&r, hides, sizeof hides - 1, messages, NULL, &o, true);
    assert_int_equal(r.status, -1);
    assert_string_equal(r.e.text, "message 2: cannot tell what is the assistant's: its text is not found again");
    done(&r);
    json_decref(messages);
}

/* The spans of a talk are `want`, one after the other, each before a '^'. */
static void spans_are(const char *template, const char *talk, const char *want)
{
    const struct llm_chat_options o = {.eos = "</s>"};
    struct llm_buf said = {0};
    struct llm_err e;
    struct rendering r;
    json_t *messages = llm_json_parse(talk, strlen(talk), &e);
    render(&r, template, strlen(template), messages, NULL, &o, true);
    if (r.status < 0) fail_msg("%s: %s", talk, r.e.text);
    for (size_t i = 0; i < r.spans.n; i++)
        assert_int_equal(llm_buf_printf(&said, &e, "%.*s^", (int)(r.spans.v[i].end - r.spans.v[i].begin), r.out.p + r.spans.v[i].begin), 0);
    assert_string_equal(said.p, want);
    done(&r);
    llm_buf_release(&said);
    json_decref(messages);
}

#define TALK(first, more, last) "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"" first "\"" more "}," \
                                "{\"role\":\"user\",\"content\":\"r\"},{\"role\":\"assistant\",\"content\":\"" last "\"}]"
/* What only the last turn has (an end of the text, a place of thoughts) does not make a later turn that says the same out of an earlier one; calls of
 * tools are learned with what is said before them; ends of turns by other names. */
static void turns_that_are_like_others_and_calls(void **state)
{
    static const char ends[] = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
                               "{% if add_generation_prompt %}<|assistant|>{% else %}</s>{% endif %}";
    static const char thinks[] = "{% for m in messages %}<|{{ m.role }}|>{{ '<think></think>' if loop.last and m.role == 'assistant' }}"
                                 "{{ m.content }}{% for c in m.tool_calls %}<call>{{ c.name }}</call>{% endfor %}<turn|>{% endfor %}"
                                 "{% if add_generation_prompt %}<|assistant|><think>{% endif %}";
    (void)state;
    spans_are(ends, TALK("yes", "", "yes"), "yes<|end|>^yes<|end|></s>^");
    spans_are(ends, TALK("", "", "yes"), "<|end|>^yes<|end|></s>^");
    spans_are(thinks, TALK("yes", "", "yes"), "yes<turn|>^</think>yes<turn|>^");
    spans_are(thinks, TALK("assistant", "", "yes"), "assistant<turn|>^</think>yes<turn|>^");
    spans_are(thinks, TALK("look", ",\"tool_calls\":[{\"name\":\"get\"}]", "yes"), "look<call>get</call><turn|>^</think>yes<turn|>^");
    spans_are(thinks, TALK("", ",\"tool_calls\":[{\"name\":\"get\"}]", "yes"), "<call>get</call><turn|>^</think>yes<turn|>^");
}

/* Long texts that are added up in variables are kept as terms: every use sees the joined text. */
static void long_sums_in_variables_are_texts(void **state)
{
    static const char text[] = "{% set a = 'L' * 70000 %}{% set b = a + 'm' + a %}{% set c = 'k' ~ b ~ 1 %}"
                               "{{ b|length }} {{ c|length }} {{ c[0] }}{{ c[-1] }} {{ b == a + 'm' + a }} {{ (c + b)|length }} {{ b is string }} "
                               "{{ b.startswith('LL') }} {{ ('<' + b + '>')[-2:] }} {{ (b|safe + '<')[-4:] }} {{ ((1 ~ b) ~ b)|length }} "
                               "{% set d = b %}{% set d = d + d %}{% set d = d + d %}{% set d = d + d %}{% set d = d + d %}{{ d|length }} "
                               "{% for i in [1, 2] %}{% set b = 'z' + b %}{{ b|length }} {% endfor %}{{ b|length }} "
                               "{% set n = namespace(x=b) %}{{ n.x == b }} {% macro f(x) %}{{ x|length }} {{ b|length }}{% endmacro %}{{ f(c) }} "
                               "{{ (b + 'm').count('m') }} {% set e = b %}{{ e.count('m') }}{{ b.replace('L', '') }} "
                               "{% set g = b + 'e' %}{{ g }}";
    static const char number[] = "{% set a = 'L' * 70000 %}{% set b = a + 'm' %}{{ 1 + b }}";
    static const char want[] = "140001 140003 k1 True 280004 True True L> &lt; 280003 2240016 140002 140002 140001 True 140003 140001 2 1m ";
    const struct llm_chat_options o = {0};
    struct rendering r;
    json_t *messages = json_array();
    (void)state;
    render(&r, text, sizeof text - 1, messages, NULL, &o, false);
    assert_string_equal(r.e.text, "");
    assert_memory_equal(r.out.p, want, sizeof want - 1);
    assert_int_equal(r.out.n, sizeof want - 1 + 140002);
    for (size_t i = 0; i < 140002; i++) assert_int_equal(r.out.p[sizeof want - 1 + i], i == 70000 ? 'm' : i == 140001 ? 'e' : 'L');
    done(&r);
    render(&r, number, sizeof number - 1, messages, NULL, &o, false);
    assert_string_equal(r.e.text, "template: line 1: unsupported operand type(s) for +: 'int' and 'str'");
    done(&r);
    json_decref(messages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_sums_in_variables_are_texts),
        cmocka_unit_test(constructs_render_as_in_transformers),
        cmocka_unit_test(shared_goldens),
        cmocka_unit_test(hostile_templates_end_in_a_line),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(errors_name_the_line),
        cmocka_unit_test(builtin_templates_mark_the_assistant),
        cmocka_unit_test(turns_are_found_in_templates_that_rewrite),
        cmocka_unit_test(turns_that_are_like_others_and_calls),
    };
    return cmocka_run_group_tests_name("chat", tests, NULL, NULL);
}
