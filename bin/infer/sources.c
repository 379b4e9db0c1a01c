/* --context-from: sources that a conversation answers from, and the check that what an answer cites is one of them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "bin/infer/lines.h"
#include "bin/infer/sources.h"

static const char *name_of(const struct session *s)
{
    return strcmp(s->a->context_from, "-") == 0 ? "standard input" : s->a->context_from;
}

/* An id as text. NULL: it is neither a text nor an integer, or is empty, or has a line's end or a NUL. */
static json_t *id_text(const json_t *id)
{
    char digits[32];
    if (json_is_integer(id)) {
        snprintf(digits, sizeof digits, "%" JSON_INTEGER_FORMAT, json_integer_value(id));
        return json_string(digits);
    }
    size_t n = json_string_length(id);
    const char *s = json_string_value(id);
    return n > 0 && !memchr(s, 0, n) && !strpbrk(s, "\r\n") ? json_stringn(s, n) : NULL;
}

static int take_source(struct session *s, const char *line, size_t n, struct llm_err *e)
{
    json_t *o = llm_json_parse(line, n, e);
    if (!o) return -1;
    const json_t *text = json_object_get(o, "text");
    json_t *id = id_text(json_object_get(o, "id"));
    struct llm_buf *b = &s->sources.text;
    int status = 0;
    if (!id || !json_is_string(text)) {
        status = llm_fail(e, EX_DATAERR, "expected an object with \"id\" (a text of one line, or an integer) and \"text\"");
    } else if (json_object_get(s->sources.ids, json_string_value(id))) {
        status = llm_fail(e, EX_DATAERR, "id '%s': it came before", json_string_value(id));
    } else if (json_object_set_new(s->sources.ids, json_string_value(id), json_true()) < 0) {
        status = llm_no_memory(e, "sources");
    }
    if (status == 0 && b->n == 0) status = llm_buf_printf(b, e, "Sources:\n\n");
    if (status == 0) status = llm_buf_printf(b, e, "[%s]\n", json_string_value(id));
    if (status == 0) status = llm_buf_put(b, json_string_value(text), json_string_length(text), e);
    if (status == 0) status = llm_buf_put(b, "\n\n", 2, e);
    json_decref(id);
    json_decref(o);
    return status;
}

int sources_open(struct session *s, struct llm_err *e)
{
    struct lines in = {0};
    const char *line;
    size_t n;
    if (!s->a->context_from) return 0;
    s->sources.ids = json_object();
    if (!s->sources.ids) return llm_no_memory(e, "sources");
    int got = lines_open(&in, s->a->context_from, prompt_max_bytes(s), e), status = 0;
    while (got >= 0 && status == 0 && (got = lines_next(&in, &line, &n, e)) > 0) {
        status = line ? take_source(s, line, n, e) : lines_too_long(&in, e);
        if (status < 0) llm_in(e, "%s: line %" PRId64, name_of(s), in.number);
    }
    lines_close(&in);
    if (got < 0 || status < 0) return -1;
    const char *first = json_object_iter_key(json_object_iter(s->sources.ids));
    if (!first) return llm_fail(e, EX_DATAERR, "%s: expected sources, found none", name_of(s));
    return llm_buf_printf(&s->sources.text, e,
                          "Answer from these sources. After each statement, cite its source by its id in brackets, like [%s].\n\n", first);
}

void sources_release(struct session *s)
{
    json_decref(s->sources.ids);
    llm_buf_release(&s->sources.text);
}

/* A copy of a message with the sources before its content, which is a text or a list of parts. NULL: no memory. */
static json_t *with_sources(const struct session *s, const json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    const struct llm_buf *b = &s->sources.text;
    struct llm_buf joined = {0};
    struct llm_err ignored;
    json_t *copy = json_copy((json_t *)(uintptr_t)message), *put = NULL;
    if (json_is_array(content)) {
        put = json_copy((json_t *)(uintptr_t)content);
        json_t *part = json_pack("{s:s,s:o}", "type", "text", "text", llm_json_text(b->p, b->n));
        if (json_array_insert_new(put, 0, part) < 0) {
            json_decref(put);
            put = NULL;
        }
    } else if (llm_buf_put(&joined, b->p, b->n, &ignored) == 0
               && llm_buf_put(&joined, json_string_value(content), json_string_length(content), &ignored) == 0) {
        put = llm_json_text(joined.p, joined.n);
    }
    llm_buf_release(&joined);
    if (json_object_set_new(copy, "content", put) == 0) return copy;
    json_decref(copy);
    return NULL;
}

json_t *sources_put(const struct session *s, const json_t *messages, struct llm_err *e)
{
    json_t *all = json_copy((json_t *)(uintptr_t)messages);
    size_t i = 0, n = json_array_size(all);
    for (; i < n && s->sources.ids; i++) {
        const json_t *m = json_array_get(all, i), *content = json_object_get(m, "content");
        const char *role = json_string_value(json_object_get(m, "role"));
        if (!role || strcmp(role, "user") != 0 || !(json_is_string(content) || json_is_array(content))) continue;
        if (json_array_set_new(all, i, with_sources(s, m)) == 0) return all;
        json_decref(all);
        all = NULL;
        break;
    }
    if (!all) llm_no_memory(e, "messages");
    return all;
}

static int add_once(json_t *list, const char *id, size_t n)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *have = json_array_get(list, i);
        if (json_string_length(have) == n && memcmp(json_string_value(have), id, n) == 0) return 0;
    }
    return json_array_append_new(list, llm_json_text(id, n));
}

/* The end of a citation "[ID]" of a source that begins at `at`: the longest id. NULL: none. */
static const char *whole_id(const struct session *s, const char *at, const char *end)
{
    const char *close = NULL;
    for (void *i = json_object_iter(s->sources.ids); i; i = json_object_iter_next(s->sources.ids, i)) {
        const char *id = json_object_iter_key(i);
        size_t n = strlen(id);
        if ((size_t)(end - at) > n + 1 && memcmp(at + 1, id, n) == 0 && at[n + 1] == ']' && (!close || at + n + 1 > close)) close = at + n + 1;
    }
    return close;
}

/* Ids in [at, close), divided by commas or semicolons, go to the lists. 0 or -1. */
static int take_cited(const struct session *s, const char *at, const char *close, struct cited *c)
{
    while (at < close) {
        const char *to = at;
        while (to < close && *to != ',' && *to != ';') to++;
        const char *from = at, *last = to;
        while (from < last && *from == ' ') from++;
        while (last > from && last[-1] == ' ') last--;
        size_t n = (size_t)(last - from);
        char *id = strndup(from, n);
        if (!id) return -1;
        int bad = n > 0 ? add_once(json_object_get(s->sources.ids, id) ? c->known : c->unknown, from, n) : 0;
        free(id);
        if (bad) return -1;
        at = to + 1;
    }
    return 0;
}

int sources_check(struct session *s, const char *answer, size_t n, struct cited *c, struct llm_err *e)
{
    const char *end = answer + n, *thought = n > 0 ? memmem(answer, n, "</think>", 8) : NULL;
    *c = (struct cited){json_array(), json_array()};
    int bad = !c->known || !c->unknown;
    for (const char *at = thought ? thought : answer; !bad && at < end; at++) {
        if (*at != '[') continue;
        const char *close = whole_id(s, at, end);
        if (close) {
            bad = add_once(c->known, at + 1, (size_t)(close - at - 1));
        } else {
            for (close = at + 1; close < end && !strchr("[]\n", *close);) close++;
            if (close >= end || *close != ']' || (close + 1 < end && close[1] == '(')) continue; /* a link is no citation */
            bad = take_cited(s, at + 1, close, c);
        }
        at = close;
    }
    if (bad) {
        cited_release(c);
        return llm_no_memory(e, "citations");
    }
    if (json_array_size(c->unknown) > 0 && !s->sources.unknown.status) {
        llm_fail(&s->sources.unknown, EXIT_FAILURE, "an answer cites '%s', which is no id in %s", json_string_value(json_array_get(c->unknown, 0)),
                 name_of(s));
    }
    return 0;
}

void cited_release(struct cited *c)
{
    json_decref(c->known);
    json_decref(c->unknown);
}
