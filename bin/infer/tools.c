#include "bin/infer/tools.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/hash.h"
#include "base/log.h"

void tools_release(struct tools *t)
{
    json_decref(t->list);
    json_decref(t->chosen);
    *t = (struct tools){0};
}

static const char *name_of(const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function");
    return json_string_value(json_object_get(function ? function : tool, "name"));
}

/* "type" may be absent. Any other kind than a function has no arguments in JSON, so that no call of it can be read. */
static int check_type(const json_t *v, const char *member, struct llm_err *e)
{
    const json_t *type = json_object_get(v, "type");
    if (!type || json_is_null(type) || (json_is_string(type) && strcmp(json_string_value(type), "function") == 0)) return 0;
    if (!json_is_string(type)) return llm_fail(e, EX_DATAERR, "\"%s\": \"type\": expected \"function\"", member);
    return llm_fail(e, EX_DATAERR, "\"%s\": \"type\": expected \"function\", found \"%s\", which is not supported", member, json_string_value(type));
}

static int check_tools(const json_t *tools, struct llm_err *e)
{
    const json_t *tool;
    size_t i;
    if (tools && !json_is_array(tools) && !json_is_null(tools)) return llm_fail(e, EX_DATAERR, "\"tools\": expected an array");
    json_array_foreach(tools, i, tool) {
        if (check_type(tool, "tools", e) < 0) return -1;
    }
    return 0;
}

/* "tool_choice": "auto", "none", "required", or {"type": "function", "function": {"name": …}}. */
static int take_choice(struct tools *t, const json_t *v, bool *none, struct llm_err *e)
{
    const char *word = json_string_value(v), *name = json_is_object(v) ? name_of(v) : NULL;
    if (check_type(v, "tool_choice", e) < 0) return -1;
    *none = word && strcmp(word, "none") == 0;
    t->always = name || (word && strcmp(word, "required") == 0);
    if (v && !json_is_null(v) && !*none && !t->always && !(word && strcmp(word, "auto") == 0)) {
        return llm_fail(e, EX_DATAERR, "\"tool_choice\": expected \"auto\", \"none\", \"required\" or an object with \"function\" and its \"name\"");
    }
    t->chosen = name ? json_array() : json_incref(t->list);
    for (size_t i = 0; name && i < json_array_size(t->list); i++) {
        json_t *tool = json_array_get(t->list, i);
        if (name_of(tool) && strcmp(name_of(tool), name) == 0 && json_array_append(t->chosen, tool) < 0) return llm_no_memory(e, "tools");
    }
    if (name && json_array_size(t->chosen) == 0) return llm_fail(e, EX_DATAERR, "\"tool_choice\": no tool is named '%s'", name);
    return 0;
}

/* Says once that the model does not learn of the tools. */
static void say_unseen(struct session *s)
{
    if (!s->tools_unseen) llm_warn("the chat template shows no tools to the model: \"tools\" of lines change nothing");
    s->tools_unseen = true;
}

int tools_take(struct tools *t, struct session *s, json_t *object, struct llm_err *e)
{
    const json_t *tools = json_object_get(object, "tools"), *choice = json_object_get(object, "tool_choice");
    const char *template_text = s->chat.found.text;
    bool none = false;
    t->many = true;
    if (check_tools(tools, e) < 0) return -1;
    if (llm_json_bool(object, "parallel_tool_calls", &t->many, e) < 0) return -1;
    if (json_array_size(tools) > 0) t->list = json_incref(json_object_get(object, "tools"));
    if (take_choice(t, choice, &none, e) < 0) return -1;
    if (t->always && !t->list) return llm_fail(e, EX_DATAERR, "\"tool_choice\": expected \"tools\" beside it");
    if (t->list && !none) t->form = llm_tool_form_find(template_text);
    if (t->always && !t->form) {
        return llm_fail(e, EX_UNAVAILABLE, "\"tool_choice\": the chat template shows no form of calls that is known, so a call cannot be demanded");
    }
    if (t->list && !strstr(template_text, "tools") && !strstr(template_text, "functions")) say_unseen(s);
    if (t->always && !t->form->talk) snprintf(t->mark, sizeof t->mark, "%s%s", t->form->open, t->form->begin);
    json_object_del(object, "tools");
    json_object_del(object, "tool_choice");
    json_object_del(object, "parallel_tool_calls");
    return llm_tool_messages_prepare(template_text, json_object_get(object, "messages"), e);
}

int tools_constrain(struct tools *t, struct session *s, struct llm_prompt *p, struct llm_err *e)
{
    const struct llm_tool_form *f = t->form;
    struct llm_buf text = {0};
    if (!f) return 0;
    if (p->constraint && t->always) return llm_fail(e, EX_DATAERR, "\"tool_choice\": expected no other constraint beside it");
    if (p->constraint) {
        t->form = NULL; /* what the answer must be leaves no room for calls */
        return 0;
    }
    int32_t id = *f->begin ? llm_tokenizer_special(s->model->tokenizer, f->begin) : -1;
    bool again = f->list || id < 0 || !llm_tokenizer_is_special(s->model->tokenizer, id); /* constrained texts have no special tokens */
    json_t *o = json_pack("{s:s,s:O,s:b}", "form", f->name, "tools", t->chosen, "many", (int)(t->many && again));
    int status = o ? llm_json_dump(o, &text, e) : llm_no_memory(e, "tools");
    if (status == 0) status = constraints_find_tools(s, text.p, text.n, &p->constraint, e) < 0 ? llm_in(e, "\"tools\"") : 0;
    json_decref(o);
    llm_buf_release(&text);
    if (!t->always) p->trigger = (struct llm_trigger){f->bare ? "{\"name\"" : f->begin, id, f->bare};
    return status;
}

/* The text of a completion with its special tokens. 0 or -1. */
static int whole_text(const struct session *s, const struct llm_completion *c, struct llm_buf *text, struct llm_err *e)
{
    if (c->text.stopped) return llm_buf_put(text, c->text.bytes.p ? c->text.bytes.p : "", c->text.bytes.n, e);
    return llm_decode(s->model->tokenizer, c->ids, (size_t)c->n, false, text, e);
}

/* A call as OpenAI's interface has it. Ids have nine letters and digits, as some templates demand. */
static json_t *call_of(const json_t *call, const struct llm_completion *c, size_t i, struct llm_err *e)
{
    char id[16];
    uint64_t place[] = {c->prompt.sampling.prompt, (uint64_t)c->sample, i};
    struct llm_buf arguments = {0};
    json_t *o = NULL;
    snprintf(id, sizeof id, "%09" PRIx64, llm_xxh64(place, sizeof place, 0) >> 28);
    if (llm_json_dump(json_object_get(call, "arguments"), &arguments, e) == 0) {
        o = json_pack("{s:s,s:s,s:{s:O,s:s%}}", "id", id, "type", "function", "function", "name", json_object_get(call, "name"), "arguments",
                      arguments.p, arguments.n);
        if (!o) llm_no_memory(e, "calls of tools");
    }
    llm_buf_release(&arguments);
    return o;
}

/* What was said where no call is whole. Where a call was demanded, it has begun in the prompt. */
static json_t *text_without_calls(const struct tools *t, const struct llm_completion *c)
{
    const struct llm_buf *said = &c->text.bytes;
    const char *p = said->p ? said->p : "";
    const size_t talk = t->form ? llm_tool_talk(t->form, p, said->n) : 0;
    struct llm_buf text = {0};
    json_t *o = NULL;
    if (llm_buf_put(&text, t->mark, strlen(t->mark), NULL) == 0 && llm_buf_put(&text, p + talk, said->n - talk, NULL) == 0) {
        o = llm_json_text(text.p ? text.p : "", text.n);
    }
    llm_buf_release(&text);
    return o;
}

/* Whether the line has all tools that are called: what stands after a tag is not held to them. */
static bool are_tools(const struct tools *t, const json_t *calls)
{
    const json_t *call, *tool;
    size_t i, k;
    json_array_foreach(calls, i, call) {
        const char *name = json_string_value(json_object_get(call, "name"));
        bool found = false;
        json_array_foreach(t->list, k, tool) {
            const char *of = name_of(tool);
            found |= name && of && strcmp(name, of) == 0;
        }
        if (!found) return false;
    }
    return true;
}

json_t *tools_message(const struct tools *t, const struct session *s, const struct llm_completion *c, bool *called, struct llm_err *e)
{
    struct llm_buf text = {0};
    json_t *calls = NULL, *list = NULL, *said = NULL, *o = NULL;
    size_t n_content = 0, talk = 0;
    int status = 0;
    *called = false;
    if (t->form) status = whole_text(s, c, &text, e);
    if (t->form && status == 0) {
        const char *p = text.p ? text.p : "";
        talk = llm_tool_talk(t->form, p, text.n);
        const bool begun = t->always || (t->form->talk && talk == 0);
        status = llm_tool_calls_read(t->form, p + talk, text.n - talk, begun, &calls, &n_content, e);
    }
    if (calls && !are_tools(t, calls)) {
        json_decref(calls);
        calls = NULL;
    }
    if (calls) list = json_array();
    for (size_t i = 0; status == 0 && i < json_array_size(calls); i++) {
        json_t *call = call_of(json_array_get(calls, i), c, i, e);
        if (!call || json_array_append_new(list, call) < 0) status = -1;
    }
    if (status == 0) {
        said = calls ? n_content > 0 ? llm_json_text(text.p + talk, n_content) : json_null() : text_without_calls(t, c);
        o = json_pack("{s:s,s:o}", "role", "assistant", "content", said);
        if (o && calls && json_object_set(o, "tool_calls", list) < 0) {
            json_decref(o);
            o = NULL;
        }
        if (!o) llm_no_memory(e, "a message");
        *called = calls != NULL;
    }
    json_decref(calls);
    json_decref(list);
    llm_buf_release(&text);
    return o;
}
