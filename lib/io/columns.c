#include "io/columns.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/suggest.h"
#include "base/utf8.h"
#include "io/file.h"

bool llm_column_number(const json_t *v, double *x)
{
    const char *text = json_string_value(v);
    char *end;
    if (json_is_number(v)) *x = json_number_value(v);
    else if (text && *text) {
        *x = strtod(text, &end);
        if (*end) return false;
    } else return false;
    return isfinite(*x);
}

/* ---- names ---- */

bool llm_column_names_have(const struct llm_column_names *c, const char *name)
{
    size_t i = 0;
    while (i < c->n && strcmp(c->v[i], name) != 0) i++;
    return i < c->n;
}

int llm_column_names_add(struct llm_column_names *c, const json_t *row, struct llm_err *e)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)row, key, v) {
        if (c->n == LLM_MAX_COLUMNS || llm_column_names_have(c, key)) continue;
        if (!(c->v[c->n] = strdup(key))) return llm_no_memory(e, "a name");
        c->n++;
    }
    return 0;
}

int llm_column_names_check(const struct llm_column_names *c, const char *name, struct llm_err *e)
{
    struct llm_suggest near;
    char list[400] = "";
    if (llm_column_names_have(c, name)) return 0;
    llm_suggest_begin(&near, name);
    for (size_t i = 0; i < c->n; i++) {
        llm_suggest_add(&near, c->v[i], c->v[i]);
        strncat(list, i ? " " : "", sizeof list - strlen(list) - 1);
        strncat(list, c->v[i], sizeof list - strlen(list) - 1);
    }
    return llm_fail(e, LLM_EX_USAGE, "expected one of the columns %s; found '%s'%s", list, name, llm_suggest_text(&near, ""));
}

void llm_column_names_release(struct llm_column_names *c)
{
    for (size_t i = 0; i < c->n; i++) free(c->v[i]);
    c->n = 0;
}

/* ---- files ---- */

/* The next field of a line of a table, quotes of CSV removed, into `field`. Returns where the one after it begins, or NULL after the last. */
static const char *next_field(const char *p, const char *end, char separator, struct llm_buf *field, struct llm_err *e, int *bad)
{
    bool quoted = separator == ',' && p < end && *p == '"';
    field->n = 0;
    *bad |= llm_buf_put(field, "", 0, e) < 0;
    for (p += quoted; p < end && (quoted || *p != separator); p++) {
        if (quoted && *p == '"' && !(p + 1 < end && p[1] == '"')) quoted = false;
        else *bad |= llm_buf_put(field, p, 1, e) < 0;
        if (quoted && *p == '"') p++;
    }
    return p < end ? p + 1 : NULL;
}

/* A line of a table as an object. `heading`: the names, a list; it is filled by the first line. NULL: see `e`. */
static json_t *table_row(const char *p, const char *end, char separator, json_t *heading, struct llm_err *e)
{
    struct llm_buf field = {0};
    json_t *row = json_object();
    bool first = json_array_size(heading) == 0;
    size_t n = 0;
    int bad = row ? 0 : llm_no_memory(e, "a row");
    for (const char *next = p; next && !bad; n++) {
        next = next_field(next, end, separator, &field, e, &bad);
        json_t *text = bad ? NULL : json_stringn(field.p ? field.p : "", field.n);
        const char *name = json_string_value(json_array_get(heading, n));
        if (!bad && !text) bad = llm_fail(e, EX_DATAERR, "expected UTF-8");
        else if (!bad && first) bad = json_array_append_new(heading, text);
        else if (!bad && !name) bad = llm_fail(e, EX_DATAERR, "expected %zu fields, found more", json_array_size(heading)), json_decref(text);
        else if (!bad) bad = json_object_set_new(row, name, text);
    }
    if (!bad && n < json_array_size(heading)) bad = llm_fail(e, EX_DATAERR, "expected %zu fields, found %zu", json_array_size(heading), n);
    llm_buf_release(&field);
    if (!bad) return row;
    json_decref(row);
    return NULL;
}

static int read_lines(const char *file, const struct llm_buf *text, llm_row_fn take, void *arg, struct llm_err *e)
{
    const size_t mark = llm_utf8_mark(text->p, text->n);
    size_t heading_end = mark, blank = mark + strspn(text->p ? text->p + mark : "", " \t\r\n");
    bool json = text->n > blank && text->p[blank] == '{';
    while (heading_end < text->n && text->p[heading_end] != '\n') heading_end++;
    char separator = text->n && memchr(text->p, '\t', heading_end) ? '\t' : ',';
    json_t *heading = json_array();
    int status = heading ? 0 : llm_no_memory(e, "a row");
    uint64_t number = 0;
    for (size_t at = mark, end; at < text->n && status == 0; at = end + 1) {
        const char *newline = memchr(text->p + at, '\n', text->n - at);
        end = newline ? (size_t)(newline - text->p) : text->n;
        size_t stop = end > at && text->p[end - 1] == '\r' ? end - 1 : end;
        number++;
        if (stop == at) continue;
        bool names = !json && json_array_size(heading) == 0;
        json_t *row = json ? llm_json_parse(text->p + at, stop - at, e) : table_row(text->p + at, text->p + stop, separator, heading, e);
        status = !row ? -1 : names ? 0 : !json_is_object(row) ? llm_fail(e, EX_DATAERR, "expected an object of columns") : take(arg, file, row, e);
        json_decref(row);
        if (status < 0) llm_in(e, "%s: line %" PRIu64, file, number);
    }
    json_decref(heading);
    return status;
}

int llm_columns_read(const char *path, llm_row_fn take, void *arg, struct llm_err *e)
{
    enum { MAX_FILE = 1 << 30, STEP = 1 << 16 };
    struct llm_buf text = {0};
    struct llm_file *f = llm_file_open(path, e);
    int64_t got = f ? 1 : -1;
    while (got > 0 && text.n < MAX_FILE) {
        got = llm_buf_reserve(&text, text.n + STEP, e) < 0 ? -1 : llm_file_read_some(f, text.p + text.n, STEP, e);
        if (got > 0) text.n += (size_t)got;
    }
    if (got > 0) got = llm_file_bad(f, e, "expected at most %d bytes, found more", MAX_FILE);
    if (got == 0 && text.p) text.p[text.n] = 0;
    int status = got < 0 ? -1 : read_lines(llm_file_name(f), &text, take, arg, e);
    llm_file_close(f);
    llm_buf_release(&text);
    return status;
}
