#include "token/chat/tools.h"

#include <string.h>

#define DEEPSEEK_SEPARATOR "<｜tool▁sep｜>"
const struct llm_tool_form llm_tool_forms[] = {
    {"deepseek-r1", {DEEPSEEK_SEPARATOR, "```json"}, "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>function" DEEPSEEK_SEPARATOR, "\n```json\n",
     "\n```<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", "", false, false, NULL, NULL, 0, NULL},
    {"deepseek-v3.1", {DEEPSEEK_SEPARATOR}, "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", DEEPSEEK_SEPARATOR, "<｜tool▁call▁end｜>",
     "<｜tool▁calls▁end｜>", "", false, false, NULL, NULL, 0, NULL},
    {"mistral-v11", {"[TOOL_CALLS]", "[ARGS]"}, "", "[TOOL_CALLS]", "[ARGS]", "", "", "", false, false, NULL, NULL, 0, NULL},
    {"mistral", {"[TOOL_CALLS]"}, "", "[TOOL_CALLS]", "", "", "", "arguments", true, false, NULL, NULL, 0, NULL},
    {"phi4", {"<|tool_call|>", "<|/tool_call|>"}, "", "<|tool_call|>", "", "<|/tool_call|>", "", "arguments", true, false, NULL, NULL, 0, NULL},
    {"command-r7b", {"<|START_ACTION|>", "\"tool_name\""}, "", "<|START_ACTION|>", "", "<|END_ACTION|>", "", "parameters", true, false, "tool_name",
     "tool_call_id", 0, NULL},
    {"command-r", {"Action:", "```json", "\"tool_name\""}, "Action:", "\n```json\n", "", "```", "", "parameters", true, false, "tool_name",
     NULL, 0, NULL},
    {"granite", {"<|tool_call|>"}, "", "<|tool_call|>", "", "", "", "arguments", true, false, NULL, NULL, 0, NULL},
    {"hermes", {"<tool_call>", "</tool_call>"}, "", "<tool_call>", "", "</tool_call>", "", "arguments", false, false, NULL, NULL, 0, NULL},
    {"functionary-v3.2", {">>>all", ">>>${recipient}"}, "", ">>>", "\n", "", "", "", false, false, NULL, NULL, 0, "all\n"},
    {"functools", {"functools["}, "", "functools", "", "", "", "arguments", true, false, NULL, NULL, 0, NULL},
    {"functionary-v3.1", {"<function=", "</function>"}, "", "<function=", ">", "</function>", "", "", false, false, NULL, NULL,
     LLM_TOOL_TAG_CODE, NULL},
    {"llama3", {"<|start_header_id|>", "\"parameters\""}, "", "", "", "", "", "parameters", false, true, NULL, NULL, LLM_TOOL_TAG_CALL, NULL},
    {0}};

/* Templates whose calls are no JSON, though they have another family's markers. */
static const char *const others[] = {"<parameter=", "<arg_key>"};

const struct llm_tool_form *llm_tool_form_find(const char *template_text)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strstr(template_text, others[i])) return NULL;
    for (const struct llm_tool_form *f = llm_tool_forms; f->name; f++) {
        bool all = true;
        for (int i = 0; i < 3 && f->hints[i]; i++) all = all && strstr(template_text, f->hints[i]);
        if (all) return f;
    }
    return NULL;
}

/* What is left of a text. */
struct rest { const char *p; size_t n; };

static void skip(struct rest *r, size_t n)
{
    r->p += n;
    r->n -= n;
}

static void skip_space(struct rest *r)
{
    while (r->n > 0 && strchr(" \t\r\n", *r->p) && *r->p) skip(r, 1);
}

/* Skips a text and the white space around it. False: it does not stand here. */
static bool skip_text(struct rest *r, const char *text)
{
    struct rest at = *r;
    while (strchr(" \t\r\n", *text) && *text) text++;
    size_t n = strlen(text);
    while (n > 0 && strchr(" \t\r\n", text[n - 1])) n--;
    skip_space(&at);
    if (at.n < n || memcmp(at.p, text, n) != 0) return false;
    skip(&at, n);
    skip_space(&at);
    *r = at;
    return true;
}

/* Takes a JSON value off the front. NULL: none stands here. */
static json_t *take_json(struct rest *r)
{
    size_t used = 0;
    json_t *v = llm_json_parse_front(r->p, r->n, &used);
    if (v) skip(r, used);
    return v;
}

/* Adds {"name", "arguments"} to the calls, if it is a call. Both are given away. 0; 1: it is none; -1. */
static int add_call(json_t *calls, json_t *name, json_t *arguments, struct llm_err *e)
{
    if (!json_is_string(name) || json_string_length(name) == 0 || !json_is_object(arguments)) {
        json_decref(name);
        json_decref(arguments);
        return 1;
    }
    return json_array_append_new(calls, json_pack("{s:o,s:o}", "name", name, "arguments", arguments)) < 0 ? llm_no_memory(e, "calls of tools") : 0;
}

/* A call that is a JSON object; what some models wrap it in does not matter. */
static int add_object(json_t *calls, const json_t *v, struct llm_err *e)
{
    const json_t *inner = json_object_get(v, "function");
    if (json_is_object(inner)) v = inner;
    json_t *arguments = json_object_get(v, "arguments");
    if (!arguments) arguments = json_object_get(v, "parameters");
    json_t *name = json_object_get(v, "name");
    if (!name) name = json_object_get(v, "tool_name");
    return add_call(calls, json_incref(name), json_incref(arguments), e);
}

static int take_objects(struct rest *r, bool list, json_t *calls, struct llm_err *e)
{
    json_t *v = take_json(r);
    int status = v && (json_is_object(v) || (list && json_array_size(v) > 0)) ? 0 : 1;
    if (status == 0 && json_is_object(v)) status = add_object(calls, v, e);
    for (size_t i = 0; status == 0 && i < json_array_size(v); i++) status = add_object(calls, json_array_get(v, i), e);
    json_decref(v);
    return status;
}

/* As take_objects, of a name, `between` and arguments. */
static int take_named(struct rest *r, const char *between, json_t *calls, struct llm_err *e)
{
    const char *end = memmem(r->p, r->n, between, strlen(between));
    if (!end) return 1;
    size_t n = (size_t)(end - r->p);
    while (n > 0 && strchr(" \t\r\n", r->p[n - 1]) && r->p[n - 1]) n--;
    json_t *name = llm_json_text(r->p, n);
    if (!name) return llm_no_memory(e, "calls of tools");
    skip(r, (size_t)(end - r->p) + strlen(between));
    return add_call(calls, name, take_json(r), e);
}

/* All calls, and nothing after them. 0; 1: it is not so; -1. */
static int take_calls(struct rest r, const struct llm_tool_form *f, json_t *calls, struct llm_err *e)
{
    for (;;) {
        skip_space(&r);
        int status = *f->between ? take_named(&r, f->between, calls, e) : take_objects(&r, f->list, calls, e);
        if (status != 0) return status;
        bool ended = skip_text(&r, f->end);
        if (!ended && r.n > 0) return 1; /* models often end the turn in place of the last mark */
        if (*f->close && skip_text(&r, f->close)) return r.n > 0;
        if (r.n == 0) return 0;
        if (f->bare ? !skip_text(&r, ";") : !skip_text(&r, f->begin)) return 1;
    }
}

#define TAG "<|python_tag|>"

/* name.call(key=JSON, …), and nothing after it. 0; 1: it is not so; -1. */
static int take_python_call(struct rest r, json_t *calls, struct llm_err *e)
{
    static const char call[] = ".call(";
    const char *end = memmem(r.p, r.n, call, sizeof call - 1);
    json_t *name = end ? llm_json_text(r.p, (size_t)(end - r.p)) : NULL, *arguments = json_object();
    int status = !arguments || (end && !name) ? llm_no_memory(e, "calls of tools") : end ? 0 : 1;
    if (end) skip(&r, (size_t)(end - r.p) + sizeof call - 1);
    while (status == 0 && !skip_text(&r, ")")) {
        const char *equals = NULL;
        if (json_object_size(arguments) > 0 && !skip_text(&r, ",")) status = 1;
        skip_space(&r);
        if (status == 0 && !(equals = r.n > 0 ? memchr(r.p, '=', r.n) : NULL)) status = 1;
        if (status != 0) break;
        size_t n = (size_t)(equals - r.p);
        const char *key = r.p;
        skip(&r, n + 1);
        while (n > 0 && key[n - 1] == ' ') n--;
        skip_space(&r);
        json_t *v = take_json(&r), *named = v ? llm_json_text(key, n) : NULL;
        if (!v) status = 1;
        else if (!named || json_object_set(arguments, json_string_value(named), v) < 0) status = llm_no_memory(e, "calls of tools");
        json_decref(named);
        json_decref(v);
    }
    if (status == 0 && r.n > 0) status = 1;
    if (status == 0) return add_call(calls, name, arguments, e);
    json_decref(name);
    json_decref(arguments);
    return status;
}

/* The call after the tag: 0, with *calls, *n_content (bytes before the tag); 1: there is none; -1. */
static int take_tagged(const struct llm_tool_form *f, const char *text, size_t n, json_t **calls, size_t *n_content, struct llm_err *e)
{
    const char *at = f->tag != LLM_TOOL_TAG_NONE && n > 0 ? memmem(text, n, TAG, sizeof TAG - 1) : NULL;
    if (!at) return 1;
    struct rest r = {at, n - (size_t)(at - text)};
    skip(&r, sizeof TAG - 1);
    json_t *found = json_array();
    int status = found ? 1 : llm_no_memory(e, "calls of tools");
    if (found && f->tag == LLM_TOOL_TAG_CALL) {
        status = take_python_call(r, found, e);
    } else if (found && r.n > 0) {
        json_t *code = llm_json_text(r.p, r.n);
        status = code ? add_call(found, json_string("python"), json_pack("{s:o}", "code", code), e) : llm_no_memory(e, "calls of tools");
    }
    if (status != 0) {
        json_decref(found);
        return status;
    }
    *calls = found;
    *n_content = (size_t)(at - text);
    while (*n_content > 0 && strchr(" \t\r\n", text[*n_content - 1]) && text[*n_content - 1]) --*n_content;
    return 0;
}

const char *llm_tool_no_call(const char *template_text, const char *prompt, size_t n)
{
    const struct llm_tool_form *f = llm_tool_form_find(template_text);
    const size_t k = f ? strlen(f->begin) : 0;
    return f && f->talk && n >= k && memcmp(prompt + n - k, f->begin, k) == 0 ? f->talk : "";
}

size_t llm_tool_talk(const struct llm_tool_form *f, const char *text, size_t n)
{
    const size_t k = f->talk ? strlen(f->talk) : 0;
    return n >= k && k > 0 && memcmp(text, f->talk, k) == 0 ? k : 0;
}

int llm_tool_calls_read(const struct llm_tool_form *f, const char *text, size_t n, bool begun, json_t **calls, size_t *n_content, struct llm_err *e)
{
    struct rest r = {text, n};
    const char *mark = *f->open ? f->open : f->begin;
    *calls = NULL;
    *n_content = n;
    const int tagged = begun ? 1 : take_tagged(f, text, n, calls, n_content, e);
    if (tagged != 1) return tagged;
    if (!begun && f->bare) {
        (void)skip_text(&r, TAG);
        if (r.n == 0 || *r.p != '{') return 0;
    } else if (!begun) {
        const char *at = n > 0 ? memmem(text, n, mark, strlen(mark)) : NULL;
        if (!at) return 0;
        skip(&r, (size_t)(at - text));
        if (*f->open && !skip_text(&r, f->open)) return 0;
        if (!skip_text(&r, f->begin)) return 0;
        *n_content = (size_t)(at - text);
    } else {
        *n_content = 0;
    }
    if (!begun && f->bare) *n_content = 0;
    json_t *found = json_array();
    if (!found) return llm_no_memory(e, "calls of tools");
    int status = take_calls(r, f, found, e);
    if (status == 0) {
        while (*n_content > 0 && strchr(" \t\r\n", text[*n_content - 1]) && text[*n_content - 1]) --*n_content;
        *calls = found;
        return 0;
    }
    json_decref(found);
    *n_content = n;
    return status < 0 ? -1 : 0;
}

/* Whether the template writes arguments, or what they are part of, by `| tojson`, in any spelling. */
static bool dumps_arguments(const char *text)
{
    static const char *const names[] = {"arguments", "tool_call", "tool_calls", "tool_call.function"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (const char *at = text; (at = strstr(at, names[i])) != NULL;) {
            at += strlen(names[i]);
            const char *p = at + strspn(at, "\"'])} \t");
            if (*p != '|') continue;
            p += 1 + strspn(p + 1, " \t");
            if (strncmp(p, "tojson", 6) == 0) return true;
        }
    }
    return false;
}

int llm_tool_messages_prepare(const char *template_text, json_t *messages, struct llm_err *e)
{
    json_t *message, *call;
    size_t i, k;
    if (!dumps_arguments(template_text)) return 0;
    json_array_foreach(messages, i, message) {
        json_array_foreach(json_object_get(message, "tool_calls"), k, call) {
            json_t *function = json_object_get(call, "function"), *of = function ? function : call, *v = json_object_get(of, "arguments");
            size_t used;
            json_t *o = json_is_string(v) ? llm_json_parse_front(json_string_value(v), json_string_length(v), &used) : NULL;
            if (o && (!json_is_object(o) || used < json_string_length(v))) {
                json_decref(o);
                o = NULL;
            }
            if (o && json_object_set_new(of, "arguments", o) < 0) return llm_no_memory(e, "messages");
        }
    }
    return 0;
}
