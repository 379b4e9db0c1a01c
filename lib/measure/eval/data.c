/* Records of evaluation data from the layouts in which data sets are published. */
#include <inttypes.h>
#include <string.h>
#include "base/hash.h"
#include "io/file.h"
#include "measure/eval/task.h"

#define MAX_BYTES ((size_t)1 << 30)

static int read_all(const char *path, struct llm_buf *b, struct llm_err *e)
{
    struct llm_file *f = llm_file_open(path, e);
    int64_t got = f ? 1 : -1;
    while (got > 0) {
        if (b->n > MAX_BYTES) got = llm_file_bad(f, e, "expected at most %zu bytes, found more", MAX_BYTES);
        else got = llm_buf_reserve(b, b->n + (1 << 16), e) < 0 ? -1 : llm_file_read_some(f, b->p + b->n, 1 << 16, e);
        if (got > 0) b->n += (size_t)got;
    }
    llm_file_close(f);
    if (got == 0 && llm_buf_reserve(b, b->n + 1, e) < 0) return -1;
    if (got == 0) b->p[b->n] = 0;
    return got < 0 ? -1 : 0;
}

/* The line at *at, which moves past it, without its end; false after the last. */
static bool next_line(const struct llm_buf *b, size_t *at, const char **line, size_t *n)
{
    if (*at >= b->n) return false;
    const char *end = memchr(b->p + *at, '\n', b->n - *at);
    *line = b->p + *at;
    *n = (end ? (size_t)(end - b->p) : b->n) - *at;
    *at += *n + 1;
    if (*n > 0 && (*line)[*n - 1] == '\r') --*n;
    return true;
}

static bool blank(const char *line, size_t n)
{
    while (n > 0 && strchr(" \t\r", line[n - 1])) n--;
    return n == 0;
}

static int json_lines(struct llm_eval_data *d, const struct llm_buf *b, struct llm_err *e)
{
    const char *line;
    size_t n, at = 0;
    for (int64_t number = 1; next_line(b, &at, &line, &n); number++) {
        if (blank(line, n)) continue;
        json_t *o = llm_json_parse(line, n, e);
        if (!o) return llm_in(e, "line %" PRId64, number);
        bool object = json_is_object(o);
        if (json_array_append_new(d->records, o) < 0) return llm_no_memory(e, "records");
        if (!object) return llm_fail(e, EX_DATAERR, "line %" PRId64 ": expected an object", number);
    }
    return 0;
}

static int whole_json(struct llm_eval_data *d, const struct llm_buf *b, struct llm_err *e)
{
    json_t *o = llm_json_parse(b->p, b->n, e);
    if (!o) return -1;
    json_decref(d->records);
    d->records = o;
    for (size_t i = 0; i < json_array_size(o); i++) {
        if (!json_is_object(json_array_get(o, i))) return llm_fail(e, EX_DATAERR, "element %zu: expected an object", i);
    }
    return 0;
}

/* Six lines a record: context, number of the right ending, four endings. */
static int hellaswag_text(struct llm_eval_data *d, const struct llm_buf *b, struct llm_err *e)
{
    const char *line[6];
    size_t n[6], at = 0;
    for (int64_t number = 1;; number += 6) {
        int have = 0;
        while (have < 6 && next_line(b, &at, &line[have], &n[have])) have++;
        if (have == 0 || (have == 1 && n[0] == 0)) return 0;
        if (have < 6) return llm_fail(e, EX_DATAERR, "line %" PRId64 ": cut short: expected 6 lines a record, found %d", number, have);
        if (n[1] != 1 || line[1][0] < '0' || line[1][0] > '3') {
            return llm_fail(e, EX_DATAERR, "line %" PRId64 ": expected the number of an ending, 0 to 3", number + 1);
        }
        json_t *endings = json_array(), *o = json_object();
        int bad = !o || !endings || json_object_set_new(o, "ctx", llm_json_text(line[0], n[0])) < 0
                  || json_object_set_new(o, "label", json_integer(line[1][0] - '0')) < 0;
        for (int i = 2; i < 6 && !bad; i++) bad = json_array_append_new(endings, llm_json_text(line[i], n[i]));
        bad |= json_object_set_new(o, "endings", endings) < 0;
        bad |= json_array_append_new(d->records, o) < 0;
        if (bad) return llm_no_memory(e, "records");
    }
}

/* A field of CSV (RFC 4180) at *at, which moves past it and its comma; `last`: a line ends after it. */
static int csv_field(const struct llm_buf *b, size_t *at, struct llm_buf *field, bool *last, struct llm_err *e)
{
    bool quoted = *at < b->n && b->p[*at] == '"';
    field->n = 0;
    *at += quoted;
    for (;; ++*at) {
        char c = *at < b->n ? b->p[*at] : '\n';
        if (quoted && *at >= b->n) return llm_fail(e, EX_DATAERR, "byte %zu: expected a quotation mark at the end of a field", *at);
        if (quoted && c == '"') {
            if (*at + 1 >= b->n || b->p[*at + 1] != '"') {
                quoted = false;
                continue;
            }
            ++*at;
        } else if (!quoted && (c == ',' || c == '\n')) {
            *last = c == '\n';
            break;
        }
        if (!(c == '\r' && !quoted) && llm_buf_put(field, &c, 1, e) < 0) return -1;
    }
    ++*at;
    return 0;
}

/* question, four choices, the letter of the answer. */
static int mmlu_csv(struct llm_eval_data *d, const struct llm_buf *b, struct llm_err *e)
{
    struct llm_buf field = {0};
    int status = 0;
    for (size_t at = 0; at < b->n && status == 0;) {
        json_t *o = json_object(), *choices = json_array();
        size_t begun = at;
        bool last = false;
        int i = 0, bad = !o || !choices || json_object_set(o, "choices", choices) < 0;
        for (; i < 6 && !last && !bad && status == 0; i++) {
            status = csv_field(b, &at, &field, &last, e);
            if (status < 0) break;
            json_t *v = llm_json_text(field.p ? field.p : "", field.n);
            bad = i == 0 ? json_object_set_new(o, "question", v) : i == 5 ? json_object_set_new(o, "answer", v) : json_array_append_new(choices, v);
        }
        if (status == 0 && bad) status = llm_no_memory(e, "records");
        if (status == 0 && (i != 6 || !last)) {
            status = llm_fail(e, EX_DATAERR, "byte %zu: expected a line of 6 fields: question, four choices, answer", begun);
        }
        json_decref(choices);
        if (json_array_append_new(d->records, o) < 0 && status == 0) status = llm_no_memory(e, "records");
    }
    llm_buf_release(&field);
    return status;
}

static int text_lines(struct llm_eval_data *d, const struct llm_buf *b, struct llm_err *e)
{
    const char *line;
    size_t n, at = 0;
    while (next_line(b, &at, &line, &n)) {
        json_t *o = json_object();
        int bad = !o || json_object_set_new(o, "text", llm_json_text(line, n)) < 0;
        if (!bad && !blank(line, n)) bad = json_array_append(d->records, o);
        json_decref(o);
        if (bad) return llm_no_memory(e, "records");
    }
    return 0;
}

static int parse(struct llm_eval_data *d, const struct llm_eval_task *t, const struct llm_buf *b, struct llm_err *e)
{
    size_t first = strspn(b->p, " \t\r\n");
    const char *choices = json_string_value(json_object_get(t->o, "choices"));
    d->records = json_array();
    if (!d->records) return llm_no_memory(e, "records");
    if (b->p[first] == '{') return json_lines(d, b, e);
    if (b->p[first] == '[') return whole_json(d, b, e);
    if (choices && strcmp(choices, "endings") == 0) return hellaswag_text(d, b, e);
    if (t->kind == LLM_EVAL_TEXT || t->kind == LLM_EVAL_CLOZE) return text_lines(d, b, e);
    if (t->kind == LLM_EVAL_CHOICE && t->choices.n == 4) return mmlu_csv(d, b, e);
    return llm_fail(e, EX_DATAERR, "expected JSON Lines or a JSON list of objects");
}

/* An answer a line, as the member "label" of the record with its number. */
static int add_labels(struct llm_eval_data *d, const struct llm_buf *b, struct llm_err *e)
{
    const char *line;
    size_t n, at = 0, i = 0, records = json_array_size(d->records);
    while (next_line(b, &at, &line, &n)) {
        if (blank(line, n) && at >= b->n) break;
        json_t *o = json_array_get(d->records, i++);
        if (o && json_object_set_new(o, "label", llm_json_text(line, n)) < 0) return llm_no_memory(e, "labels");
    }
    return i == records ? 0 : llm_fail(e, EX_DATAERR, "expected %zu labels (the number of records), found %zu", records, i);
}

int llm_eval_data_load(struct llm_eval_data *d, const struct llm_eval_task *t, const char *path, const char *labels, struct llm_err *e)
{
    struct llm_buf b = {0}, l = {0};
    int status = read_all(path, &b, e);
    if (status == 0 && (status = parse(d, t, &b, e)) < 0) llm_in(e, "%s", path);
    if (status == 0 && json_array_size(d->records) == 0) status = llm_fail(e, EX_DATAERR, "%s: expected records, found none", path);
    if (status == 0 && labels) status = read_all(labels, &l, e);
    if (status == 0 && labels && (status = add_labels(d, &l, e)) < 0) llm_in(e, "%s", labels);
    if (status == 0) snprintf(d->hash, sizeof d->hash, "%016" PRIx64, llm_xxh64(l.p ? l.p : "", l.n, llm_xxh64(b.p, b.n, 0)));
    llm_buf_release(&b);
    llm_buf_release(&l);
    return status;
}

void llm_eval_data_release(struct llm_eval_data *d)
{
    json_decref(d->records);
    *d = (struct llm_eval_data){0};
}
