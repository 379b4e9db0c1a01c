/* The fields of a line that make a conversation: "messages", or as --map says (train/lines.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "train/lines.h"

enum field { MESSAGES, ROLE, CONTENT, SYSTEM, INSTRUCTION, INPUT, OUTPUT, HISTORY, N_FIELDS };
static const char *const keys[N_FIELDS] = {"messages", "role", "content", "system", "instruction", "input", "output", "history"};
struct map { char field[N_FIELDS][64]; bool instruction; };

static const struct { const char *name; struct map map; } known[] = {
    {"messages", {{"messages", "role", "content", "system", "", "", "", ""}, false}},
    {"sharegpt", {{"conversations", "from", "value", "system", "", "", "", ""}, false}},
    {"alpaca", {{"", "", "", "system", "instruction", "input", "output", "history"}, true}},
};

/* Other names of roles. */
static const struct { const char *name, *role; } roles[] = {
    {"system", "system"}, {"developer", "developer"}, {"user", "user"}, {"assistant", "assistant"}, {"tool", "tool"}, {"function", "function"},
    {"ipython", "ipython"}, {"human", "user"}, {"gpt", "assistant"}, {"model", "assistant"}, {"bot", "assistant"}, {"observation", "tool"},
    {"function_call", "assistant"},
};

static int bad_map(const char *map, struct llm_err *e)
{
    return llm_fail(e, LLM_EX_USAGE, "--map: expected messages, sharegpt, alpaca or KEY=FIELD,... with the keys messages, role, content, system, "
                    "instruction, input, output, history; found '%s'", map);
}

/* One KEY=FIELD, n bytes. */
static int set_field(struct map *m, const char *text, size_t n)
{
    const char *equals = memchr(text, '=', n);
    for (int i = 0; equals && i < N_FIELDS; i++) {
        size_t n_key = (size_t)(equals - text), n_field = n - n_key - 1;
        if (strlen(keys[i]) != n_key || memcmp(keys[i], text, n_key) != 0 || n_field < 1 || n_field >= sizeof m->field[i]) continue;
        memcpy(m->field[i], equals + 1, n_field);
        m->field[i][n_field] = '\0';
        m->instruction |= i == INSTRUCTION || i == OUTPUT;
        return 0;
    }
    return -1;
}

static int parse(struct map *m, const char *text, struct llm_err *e)
{
    *m = known[0].map;
    if (!text) return 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].name, text) != 0) continue;
        *m = known[i].map;
        return 0;
    }
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, ",");
        if (set_field(m, p, n) < 0) return bad_map(text, e);
        p += n + (p[n] == ',');
    }
    return m->instruction && (!*m->field[INSTRUCTION] || !*m->field[OUTPUT]) ? bad_map(text, e) : 0;
}

int llm_lines_check_map(const char *map, struct llm_err *e)
{
    struct map m;
    return parse(&m, map, e);
}

/* A new message: `one` with the usual names of its role and content. Templates read its other fields: calls of tools, reasoning, names. NULL: out of
 * memory. */
static json_t *message(const struct map *map, const json_t *one, const char *role)
{
    json_t *m = json_deep_copy(one), *content = json_incref(json_object_get(m, map->field[CONTENT])), *part;
    size_t i;
    if (strcmp(map->field[ROLE], "role") != 0) json_object_del(m, map->field[ROLE]);
    if (strcmp(map->field[CONTENT], "content") != 0) json_object_del(m, map->field[CONTENT]);
    json_array_foreach(content, i, part) { /* parts of other spellings have "value" for "text" */
        json_t *value = json_object_get(part, "value");
        if (json_is_string(value) && !json_object_get(part, "text")) json_object_set(part, "text", value);
    }
    bool bad = json_object_set_new(m, "role", json_string(role)) < 0;
    if (content) bad |= json_object_set_new(m, "content", content) < 0;
    if (!bad) return m;
    json_decref(m);
    return NULL;
}

static const char *role_of(const char *name)
{
    for (size_t i = 0; name && i < sizeof roles / sizeof *roles; i++) {
        if (strcmp(roles[i].name, name) == 0) return roles[i].role;
    }
    return NULL;
}

/* Appends the line's own list of messages. 1, 0: skipped, -1. */
static int take_messages(struct llm_lines *l, const struct map *m, const json_t *list, json_t *out, struct llm_err *e)
{
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)(uintptr_t)list, i, one) {
        const json_t *content = json_object_get(one, m->field[CONTENT]), *name = json_object_get(one, m->field[ROLE]);
        const char *role = role_of(json_string_value(name));
        if (!json_is_string(name)) return llm_fail(e, EX_DATAERR, "message %zu: expected a text '%s'", i + 1, m->field[ROLE]);
        if (!role) return llm_lines_skip(l, LLM_SKIP_ROLE, e, "message %zu: expected a known role, found '%.40s'", i + 1, json_string_value(name));
        if (!content && !json_object_get(one, "tool_calls")) {
            return llm_fail(e, EX_DATAERR, "message %zu: expected '%s', found none", i + 1, m->field[CONTENT]);
        }
        if (json_array_append_new(out, message(m, one, role)) < 0) return llm_no_memory(e, "a conversation");
    }
    return 1;
}

static int append_text(json_t *out, const char *role, const char *text, struct llm_err *e)
{
    return json_array_append_new(out, json_pack("{s:s,s:s}", "role", role, "content", text)) < 0 ? llm_no_memory(e, "a conversation") : 0;
}

/* Instruction, input and output, with earlier pairs of question and answer. */
static int take_instruction(const struct map *m, const json_t *line, json_t *out, struct llm_err *e)
{
    const char *ask = json_string_value(json_object_get(line, m->field[INSTRUCTION]));
    const char *say = json_string_value(json_object_get(line, m->field[OUTPUT]));
    const char *input = json_string_value(json_object_get(line, m->field[INPUT]));
    const json_t *history = json_object_get(line, m->field[HISTORY]);
    struct llm_buf text = {0};
    size_t i;
    json_t *pair;
    if (!ask || !say) return llm_fail(e, EX_DATAERR, "expected the texts '%s' and '%s'", m->field[INSTRUCTION], m->field[OUTPUT]);
    json_array_foreach((json_t *)(uintptr_t)history, i, pair) {
        const char *q = json_string_value(json_array_get(pair, 0)), *a = json_string_value(json_array_get(pair, 1));
        if (!q || !a) return llm_fail(e, EX_DATAERR, "'%s': expected pairs of texts", m->field[HISTORY]);
        if (append_text(out, "user", q, e) < 0 || append_text(out, "assistant", a, e) < 0) return -1;
    }
    int status = llm_buf_printf(&text, e, "%s%s%s", ask, input && *input ? "\n" : "", input ? input : "");
    if (status == 0) status = append_text(out, "user", text.p, e);
    if (status == 0) status = append_text(out, "assistant", say, e);
    llm_buf_release(&text);
    return status < 0 ? -1 : 1;
}

/* The messages that v stands for: a text of `role`, a message, or messages. JSON null: it is none of them. NULL: no memory. */
static json_t *messages_of(const json_t *v, const char *role)
{
    if (json_is_array(v)) return json_deep_copy(v);
    if (json_is_object(v)) return json_pack("[O]", v);
    return json_is_string(v) ? json_pack("[{s:s,s:O}]", "role", role, "content", v) : json_null();
}

json_t *llm_lines_join(const json_t *prompt, const json_t *reply, struct llm_err *e)
{
    json_t *all = prompt && !json_is_null(prompt) ? messages_of(prompt, "user") : json_array(), *said = messages_of(reply, "assistant");
    int status = 0;
    if (json_is_null(all) || json_is_null(said)) {
        status = llm_fail(e, EX_DATAERR, "expected a text, a message or messages as %s", json_is_null(all) ? "'prompt'" : "the reply");
    } else if (!all || !said || json_array_extend(all, said) < 0) {
        status = llm_no_memory(e, "a conversation");
    }
    json_decref(said);
    if (status == 0) return all;
    json_decref(all);
    return NULL;
}

int llm_lines_turns(const json_t *messages, size_t n)
{
    int turns = 0;
    for (size_t i = 0; i < n; i++) {
        const char *role = json_string_value(json_object_get(json_array_get(messages, i), "role"));
        turns += role && strcmp(role, "assistant") == 0;
    }
    return turns;
}

int llm_lines_messages(struct llm_lines *l, const json_t *line, json_t **messages, struct llm_err *e)
{
    struct map m;
    if (parse(&m, llm_option_text(l->o, "map"), e) < 0) return -1;
    const json_t *list = json_is_array(line) ? line : json_object_get(line, m.field[MESSAGES]);
    const char *system = json_string_value(json_object_get(line, m.field[SYSTEM]));
    if (!m.instruction && !json_is_array(list)) {
        return llm_fail(e, EX_DATAERR, "expected an object with '%s', an array (--map names other fields)%s", m.field[MESSAGES],
                        llm_option_text(l->o, "map") ? "" : ", or with 'prompt' and 'completion'");
    }
    if (!(*messages = json_array())) return llm_no_memory(e, "a conversation");
    int got = system && *system ? append_text(*messages, "system", system, e) : 0;
    if (got == 0) got = m.instruction ? take_instruction(&m, line, *messages, e) : take_messages(l, &m, list, *messages, e);
    if (got == 1) return 1;
    json_decref(*messages);
    *messages = NULL;
    return got;
}
