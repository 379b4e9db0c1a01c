#include "infer/constrain/tools.h"

#include <stdlib.h>
#include <string.h>
#include "token/chat/tools.h"

struct llm_tool_schemas {
    struct llm_terms *t;
    const struct llm_tool_form *form;
    struct llm_schema **schemas;
    size_t n, room;
    llm_term root;           /* one call, or one list of calls, with its end */
    llm_term space, more;    /* `more`: no further call, or one and so on; read lazily, as it contains itself */
    uint32_t kind;
};

static llm_term text_term(const struct llm_tool_schemas *s, const char *text)
{
    return llm_term_text(s->t, text, strlen(text));
}

/* What a JSON Schema allows. 0 or -1. */
static int add_schema(struct llm_tool_schemas *s, const json_t *schema, llm_term *out, struct llm_err *e)
{
    struct llm_buf text = {0};
    int status = llm_grow((void **)&s->schemas, &s->room, s->n + 1, sizeof *s->schemas, e) < 0 ? -1 : llm_json_dump(schema, &text, e);
    if (status == 0) {
        s->schemas[s->n] = llm_schema_create(s->t, text.p, text.n, out, e);
        if (s->schemas[s->n]) s->n++;
        else status = -1;
    }
    llm_buf_release(&text);
    return status;
}

/* A tool's name, and the schema of its arguments, which the caller owns. -1: it is no tool. */
static int tool_of(const json_t *tool, const char **name, json_t **schema, struct llm_err *e)
{
    const json_t *function = json_object_get(tool, "function");
    if (!function) function = tool;
    json_t *given = json_object_get(function, "parameters");
    *name = json_string_value(json_object_get(function, "name"));
    if (!*name || !**name) return llm_fail(e, EX_DATAERR, "expected \"function\" with \"name\"");
    if (given && !json_is_object(given) && !json_is_null(given)) return llm_fail(e, EX_DATAERR, "%s: \"parameters\": expected a JSON Schema", *name);
    *schema = json_is_object(given) ? json_copy(given) : json_pack("{s:{}}", "properties");
    return !*schema || json_object_set_new(*schema, "type", json_string("object")) < 0 ? llm_no_memory(e, "a tool") : 0;
}

/* "key": before a member that follows `first`. */
static llm_term member(struct llm_tool_schemas *s, const char *first, const char *key)
{
    llm_term parts = llm_term_join(s->t, text_term(s, "\":"), llm_term_repeat(s->t, text_term(s, " "), 0, 1));
    return llm_term_join(s->t, text_term(s, first), llm_term_join(s->t, text_term(s, key), parts));
}

/* {"name": …, "arguments": …} of one tool, with the members in this order, an id before them if the form has one. 0 or -1. */
static int object_call(struct llm_tool_schemas *s, const char *name, const json_t *schema, llm_term *out, struct llm_err *e)
{
    struct llm_buf quoted = {0};
    llm_term arguments = LLM_TERM_NOTHING, blank = llm_term_repeat(s->t, text_term(s, " "), 0, 1);
    int status = add_schema(s, schema, &arguments, e) < 0 ? -1 : llm_json_quote(&quoted, name, strlen(name), e);
    if (status == 0) {
        const struct llm_tool_form *f = s->form;
        llm_term begin = text_term(s, "{"), comma = llm_term_join(s->t, text_term(s, ","), blank);
        if (f->id) {
            llm_term quote = text_term(s, "\""), number = llm_term_repeat(s->t, llm_term_range(s->t, '0', '9'), 1, 3);
            number = llm_term_join(s->t, quote, llm_term_join(s->t, number, llm_term_join(s->t, quote, comma)));
            begin = llm_term_join(s->t, member(s, "{\"", f->id), number);
        }
        const llm_term parts[] = {begin, member(s, "\"", f->key ? f->key : "name"), text_term(s, quoted.p), comma, member(s, "\"", f->arguments),
                                  arguments, s->space, text_term(s, "}")};
        *out = LLM_TERM_EMPTY_TEXT;
        for (size_t i = sizeof parts / sizeof *parts; i-- > 0;) *out = llm_term_join(s->t, parts[i], *out);
    }
    llm_buf_release(&quoted);
    return status;
}

/* The name, what is between and the arguments of one tool. 0 or -1. */
static int named_call(struct llm_tool_schemas *s, const char *name, const json_t *schema, llm_term *out, struct llm_err *e)
{
    llm_term arguments = LLM_TERM_NOTHING;
    if (add_schema(s, schema, &arguments, e) < 0) return -1;
    *out = llm_term_join(s->t, text_term(s, name), llm_term_join(s->t, text_term(s, s->form->between), arguments));
    return 0;
}

static llm_term more_calls(void *arg, uint32_t x, uint32_t y)
{
    struct llm_tool_schemas *s = arg;
    (void)y;
    if (s->form->list) { /* x: the array's next element */
        llm_term element = llm_term_join(s->t, x, llm_term_or(s->t, LLM_TERM_EMPTY_TEXT, s->more));
        return llm_term_join(s->t, text_term(s, ","), llm_term_join(s->t, s->space, element));
    }
    llm_term next = llm_term_join(s->t, s->space, llm_term_join(s->t, text_term(s, s->form->begin), llm_term_join(s->t, s->root, s->more)));
    return llm_term_or(s->t, LLM_TERM_EMPTY_TEXT, next);
}

/* From any call to the whole text. */
static llm_term whole(struct llm_tool_schemas *s, llm_term call, bool many)
{
    const struct llm_tool_form *f = s->form;
    llm_term end = llm_term_join(s->t, *f->end ? s->space : LLM_TERM_EMPTY_TEXT, text_term(s, f->end));
    if (f->list) {
        s->more = llm_term_lazy(s->t, s->kind, call, 0, false);
        llm_term all = many ? llm_term_join(s->t, call, llm_term_or(s->t, LLM_TERM_EMPTY_TEXT, s->more)) : call;
        all = llm_term_join(s->t, text_term(s, "["), llm_term_join(s->t, all, text_term(s, "]")));
        return llm_term_join(s->t, s->space, llm_term_join(s->t, all, end));
    }
    s->root = llm_term_join(s->t, *f->between ? LLM_TERM_EMPTY_TEXT : s->space, llm_term_join(s->t, call, end));
    s->more = many && *f->begin ? llm_term_lazy(s->t, s->kind, 0, 0, true) : LLM_TERM_EMPTY_TEXT;
    llm_term close = *f->close ? llm_term_join(s->t, s->space, text_term(s, f->close)) : LLM_TERM_EMPTY_TEXT;
    return llm_term_join(s->t, s->root, llm_term_join(s->t, s->more, close));
}

struct llm_tool_schemas *llm_tool_schemas_create(struct llm_terms *t, const char *text, size_t n, llm_term *root, struct llm_err *e)
{
    struct llm_tool_schemas *s = llm_calloc(1, sizeof *s, "tools", e);
    json_t *json = s ? llm_json_parse(text, n, e) : NULL, *tool;
    const json_t *tools = json_object_get(json, "tools");
    const char *form = json_string_value(json_object_get(json, "form"));
    llm_term any = LLM_TERM_NOTHING;
    size_t i;
    int status = json && form ? 0 : -1;
    if (status == 0) {
        s->t = t;
        s->kind = llm_terms_kind(t, more_calls, s);
        for (s->form = llm_tool_forms; strcmp(s->form->name, form) != 0;) s->form++;
        s->space = llm_term_lexeme(t, llm_term_repeat(t, llm_term_or(t, llm_term_byte(t, ' '), llm_term_byte(t, '\n')), 0, 3));
    }
    json_array_foreach(tools, i, tool) {
        const char *name;
        json_t *schema = NULL;
        llm_term call = LLM_TERM_NOTHING;
        if (status == 0) status = tool_of(tool, &name, &schema, e);
        if (status == 0) {
            status = *s->form->between ? named_call(s, name, schema, &call, e) : object_call(s, name, schema, &call, e);
            if (status < 0) (void)llm_in(e, "%s", name);
        }
        json_decref(schema);
        if (status == 0) any = llm_term_or(t, any, call);
    }
    if (status == 0) *root = whole(s, any, json_is_true(json_object_get(json, "many")));
    json_decref(json);
    if (status == 0) return s;
    llm_tool_schemas_destroy(s);
    return NULL;
}

void llm_tool_schemas_destroy(struct llm_tool_schemas *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->n; i++) llm_schema_destroy(s->schemas[i]);
    free(s->schemas);
    free(s);
}
