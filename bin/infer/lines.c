#include "bin/infer/lines.h"

#include <inttypes.h>
#include <string.h>
#include "bin/infer/infer.h"
#include "base/signals.h"

#define MARGIN ((size_t)16 << 20) /* for members that are no prompt */

int lines_open(struct lines *l, const char *path, size_t prompt_bytes, struct llm_err *e)
{
    l->parts = 1;
    l->max = INT64_MAX;
    l->limit = prompt_bytes < (SIZE_MAX - MARGIN) / 6 ? 6 * prompt_bytes + MARGIN : SIZE_MAX; /* a byte may be written as \u001f */
    l->file = llm_file_open(path, e);
    return l->file ? 0 : -1;
}

bool lines_waiting(const struct lines *l)
{
    size_t at = l->at; /* blank lines are no lines */
    while (at < l->text.n && strchr(" \t\r\n", l->text.p[at]) && l->text.p[at]) at++;
    return at < l->text.n && memchr(l->text.p + at, '\n', l->text.n - at);
}

int lines_read_all(struct lines *l, int64_t *n, struct llm_err *e)
{
    const size_t max = (size_t)1 << 30, piece = 1 << 16;
    bool some = false;
    *n = 0;
    for (int64_t got = 1; got > 0;) {
        if (llm_signal_caught()) return llm_fail(e, EX_IOERR, "%s: interrupted", llm_file_name(l->file));
        if (l->text.n > max) return llm_file_bad(l->file, e, "expected at most %zu bytes, found more", max);
        if (llm_buf_reserve(&l->text, l->text.n + piece, e) < 0) return -1;
        got = llm_file_read_some(l->file, l->text.p + l->text.n, piece, e);
        if (got < 0) return -1;
        for (int64_t i = 0; i < got; i++) {
            char byte = l->text.p[l->text.n + (size_t)i];
            if (byte == '\n') {
                *n += some;
                some = false;
            } else if (byte != ' ' && byte != '\t' && byte != '\r') {
                some = true;
            }
        }
        l->text.n += (size_t)got;
    }
    *n += some;
    return 0;
}

void lines_close(struct lines *l)
{
    llm_file_close(l->file);
    llm_buf_release(&l->text);
}

int lines_too_long(const struct lines *l, struct llm_err *why)
{
    return llm_fail(why, EX_DATAERR, "expected at most %zu bytes, found more", l->limit);
}

/* Discards what was read of a line that is too long. The line keeps its number. */
static void skip(struct lines *l, const char *end)
{
    l->skipping = !end;
    l->at = end ? (size_t)(end - l->text.p) + 1 : l->text.n;
}

/* 1: a line, which may be blank. */
static int next(struct lines *l, const char **line, size_t *n, struct llm_err *e)
{
    for (size_t seen = l->at;;) {
        const char *end = l->text.n > seen ? memchr(l->text.p + seen, '\n', l->text.n - seen) : NULL;
        seen = l->text.n;
        if (l->skipping) {
            skip(l, end);
            seen = l->at;
            if (end) continue;
            if (llm_signal_caught()) return llm_fail(e, EX_IOERR, "%s: interrupted", llm_file_name(l->file));
        } else if (!end && l->text.n - l->at > l->limit) {
            skip(l, end);
            *line = NULL;
            *n = 0;
            l->number++;
            return 1;
        }
        if (!end) {
            if (l->at > 0) memmove(l->text.p, l->text.p + l->at, l->text.n -= l->at);
            seen -= l->at;
            l->at = 0;
            if (llm_buf_reserve(&l->text, l->text.n + (1 << 16), e) < 0) return -1;
            int64_t got = llm_file_read_some(l->file, l->text.p + l->text.n, 1 << 16, e);
            if (got < 0) return -1;
            l->text.n += (size_t)got;
            if (got > 0) continue;
            if (l->text.n == 0) return 0;
            end = l->text.p + l->text.n; /* the last line may lack its newline */
        }
        *line = l->text.p + l->at;
        *n = (size_t)(end - *line);
        l->at += *n + (l->at + *n < l->text.n);
        l->number++;
        return 1;
    }
}

void lines_choose(struct lines *l, const struct args *a)
{
    l->part = a->part_number;
    l->parts = a->parts;
    l->max = a->limit > 0 ? a->limit : INT64_MAX;
}

int lines_next(struct lines *l, const char **line, size_t *n, struct llm_err *e)
{
    while (l->used < l->max) {
        int got = next(l, line, n, e);
        if (got <= 0) return got;
        bool blank = *line && strspn(*line, " \t\r") >= *n;
        if (!blank && l->seen++ % l->parts == l->part) {
            l->used++;
            return 1;
        }
    }
    return 0;
}

json_t *lines_refuse(struct lines *l, const json_t *object, const struct llm_err *why, struct llm_err *e)
{
    json_t *id = json_object_get(object, "id"), *o = json_object();
    if (l->refused++ == 0) {
        l->first = *why;
        llm_in(&l->first, "line %" PRId64, l->number);
    }
    int bad = !o || (id ? json_object_set(o, "id", id) : json_object_set_new(o, "id", json_integer(l->number))) < 0;
    if (!bad && json_object_set_new(o, "error", llm_json_text(why->text, strlen(why->text))) == 0) return o;
    json_decref(o);
    llm_no_memory(e, "a line of output");
    return NULL;
}

void lines_failed_before(struct lines *l)
{
    if (l->refused++ == 0) llm_fail(&l->first, EX_DATAERR, "line %" PRId64 ": an earlier run answered it with an error", l->number);
}

void lines_summarise(const struct lines *l, struct llm_err *e)
{
    if (l->refused == 0) return;
    *e = l->first;
    if (l->refused > 1) llm_in(e, "%" PRId64 " of %" PRId64 " lines cannot be used, the first", l->refused, l->used);
    llm_in(e, "%s", llm_file_name(l->file));
}

/* Whether the member has the value that the option has for all lines. */
static bool is_of_run(const struct args *a, const struct llm_opt *o, const json_t *v)
{
    const void *field = (const char *)a + o->offset;
    if (o->type == LLM_CHOICE) { /* early stopping, as Hugging Face has it: true, false, "never" */
        const bool never = json_is_string(v) && strcmp(json_string_value(v), "never") == 0;
        return (never || json_is_boolean(v)) && (never ? LLM_EARLY_NEVER : json_is_true(v) ? LLM_EARLY_YES : LLM_EARLY_NO) == *(const int *)field;
    }
    return json_is_number(v) && json_number_value(v) == (o->type == LLM_REAL ? *(const double *)field : (double)*(const int64_t *)field);
}

int lines_take_search(const struct args *a, json_t *line, struct llm_err *e)
{
    const char *key;
    json_t *v;
    void *next;
    json_object_foreach_safe(line, next, key, v) {
        const struct llm_opt *o = json_is_null(v) ? NULL : llm_cli_option(&infer_cli, key);
        if (!o || !llm_cli_listed("beams|beam-groups|diversity-penalty|length-penalty|early-stopping|penalty-alpha", o->name)) continue;
        if (!is_of_run(a, o, v)) {
            return llm_fail(e, EX_DATAERR, "\"%s\": expected --%s for all lines, as a search is one of the whole run", key, o->name);
        }
        json_object_del(line, key);
    }
    return 0;
}
