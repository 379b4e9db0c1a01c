/* llm-bench plot: columns of logs and tables as a chart. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "base/json.h"
#include "base/suggest.h"
#include "bin/bench/bench.h"
#include "io/file.h"
#include "measure/plot.h"

struct args {
    struct llm_common common;
    const char *x, *by, *title, *size;
    struct llm_strs y;
    int log_x, log_y, dark, to;
};
#define AT(field) offsetof(struct args, field)

enum form { FORM_AUTO, FORM_PNG, FORM_SVG, FORM_TEXT };

static const struct llm_opt options[] = {
    {'x', "x", "COLUMN", "column of the horizontal axis; texts in it make bars [step, else the first]", LLM_STR, AT(x), 0, 0, NULL},
    {'y', "y", "COLUMN", "column to draw; may be given several times [loss, else the first other with numbers]", LLM_LIST, AT(y), 0, 0, NULL},
    {0, "by", "COLUMN", "a line for each value of this column", LLM_STR, AT(by), 0, 0, NULL},
    {0, "log-x", NULL, "logarithmic horizontal axis", LLM_FLAG, AT(log_x), 0, 0, NULL},
    {0, "log-y", NULL, "logarithmic vertical axis", LLM_FLAG, AT(log_y), 0, 0, NULL},
    {0, "title", "TEXT", "title of the chart", LLM_STR, AT(title), 0, 0, NULL},
    {0, "dark", NULL, "light lines on black", LLM_FLAG, AT(dark), 0, 0, NULL},
    {0, "size", "WxH", "pixels of the picture; of text: columns and rows [900x540; text: the terminal]", LLM_STR, AT(size), 0, 0, NULL},
    {0, "to", "FORM", "write the chart as png, svg or text; auto: by the suffix of -o, else text [auto]", LLM_CHOICE, AT(to), 0, 0,
     "auto|png|svg|text"},
    {0}};

const struct llm_cli bench_plot_cli = {
    .name = "llm-bench plot",
    .summary = "Draw columns of training logs and of tables as lines or bars: PNG, SVG, or text for a terminal.",
    .usage = "[-x COLUMN] [-y COLUMN]... [-o CHART.png|CHART.svg] [FILE]...",
    .examples = "llm-bench plot log.jsonl\n"
                "llm-bench plot -y loss -y grad_norm --log-y -o run.png a.jsonl b.jsonl\n"
                "llm-bench speed -m model.llm -p 128,512,2048 | llm-bench plot -x test -y tokens_per_s -o speed.svg",
    .options = options, .operands = LLM_OPERANDS_INPUT,
    .common = LLM_COMMON_OUTPUT,
};

enum { MAX_COLUMNS = 256 };

struct reading {
    const struct args *a;
    struct llm_plot plot;
    const char *x;              /* the column; owned */
    struct llm_strs y;          /* owned texts when they were chosen here */
    const char *file;           /* the one that is read, and whether there are others */
    bool several;
    uint64_t row;               /* of this file, from 1 */
    char *columns[MAX_COLUMNS]; /* that rows have */
    size_t n_columns;
};

/* ---- cells ---- */

/* A number: JSON's, or a text that is one as a whole. */
static bool number_of(const json_t *v, double *x)
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

static int text_of(const json_t *v, struct llm_buf *out, struct llm_err *e)
{
    const char *text = json_string_value(v);
    if (text) return llm_buf_printf(out, e, "%s", text);
    if (json_is_number(v)) return llm_buf_printf(out, e, "%.6g", json_number_value(v));
    return llm_buf_printf(out, e, "%s", json_is_true(v) ? "true" : json_is_false(v) ? "false" : "-");
}

static char *copy(const char *text, struct llm_err *e)
{
    char *s = strdup(text);
    if (!s) llm_no_memory(e, "a name");
    return s;
}

/* ---- columns ---- */

static int know_columns(struct reading *r, const json_t *row, struct llm_err *e)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)row, key, v) {
        size_t i = 0;
        while (i < r->n_columns && strcmp(r->columns[i], key) != 0) i++;
        if (i < r->n_columns || i == MAX_COLUMNS) continue;
        if (!(r->columns[i] = copy(key, e))) return -1;
        r->n_columns++;
    }
    return 0;
}

/* The columns that were not named, by the first row. */
static int choose_columns(struct reading *r, const json_t *row, struct llm_err *e)
{
    const char *key, *first = NULL, *y = json_object_get(row, "loss") ? "loss" : NULL;
    json_t *v;
    double x;
    json_object_foreach((json_t *)(uintptr_t)row, key, v) {
        if (!first) first = key;
    }
    if (!r->x && !(r->x = copy(json_object_get(row, "step") ? "step" : first, e))) return -1;
    json_object_foreach((json_t *)(uintptr_t)row, key, v) {
        if (!y && strcmp(key, r->x) != 0 && number_of(v, &x)) y = key;
    }
    if (r->y.n > 0) return 0;
    if (!y) return llm_fail(e, EX_DATAERR, "expected a column of numbers besides '%s', found none", r->x);
    r->y.v = llm_alloc(1, sizeof *r->y.v, "columns", e);
    if (!r->y.v || !(r->y.v[0] = copy(y, e))) return -1;
    r->y.n = 1;
    return 0;
}

/* Every column that was named is in some row. */
static int check_columns(const struct reading *r, struct llm_err *e)
{
    for (size_t k = 0; k < r->y.n + 2; k++) {
        const char *name = k < r->y.n ? r->y.v[k] : k == r->y.n ? r->x : r->a->by;
        struct llm_suggest near;
        char list[400] = "";
        size_t i = 0;
        while (name && i < r->n_columns && strcmp(r->columns[i], name) != 0) i++;
        if (!name || i < r->n_columns) continue;
        llm_suggest_begin(&near, name);
        for (i = 0; i < r->n_columns; i++) {
            llm_suggest_add(&near, r->columns[i], r->columns[i]);
            strncat(list, i ? " " : "", sizeof list - strlen(list) - 1);
            strncat(list, r->columns[i], sizeof list - strlen(list) - 1);
        }
        return llm_fail(e, LLM_EX_USAGE, "expected one of the columns %s; found '%s'%s", list, name, llm_suggest_text(&near, ""));
    }
    return 0;
}

/* ---- rows ---- */

/* The series of a column in a row: its name says what tells it from the others. */
static struct llm_series *series_of(struct reading *r, const json_t *row, const char *column, struct llm_err *e)
{
    struct llm_buf name = {0};
    struct llm_plot *p = &r->plot;
    int bad = 0;
    if (r->several) bad = llm_buf_printf(&name, e, "%s", r->file);
    if (!bad && r->a->by) bad = llm_buf_printf(&name, e, "%s%s ", name.n ? ": " : "", r->a->by);
    if (!bad && r->a->by) bad = text_of(json_object_get(row, r->a->by), &name, e);
    if (!bad && (r->y.n > 1 || !name.n)) bad = llm_buf_printf(&name, e, "%s%s", name.n ? ": " : "", column) < 0;
    size_t k = 0;
    while (!bad && k < p->n && strcmp(p->v[k].name, name.p) != 0) k++;
    if (!bad && k == p->n && k == LLM_PLOT_SERIES) {
        bad = llm_fail(e, EX_DATAERR, "expected at most %d lines (files, columns, values of --by), found more", LLM_PLOT_SERIES);
    }
    if (!bad && k == p->n) {
        p->v[k] = (struct llm_series){.name = name.p};
        p->n++;
        return &p->v[k];
    }
    llm_buf_release(&name);
    return bad ? NULL : &p->v[k];
}

/* Where a text stands on an axis of names. */
static int name_index(struct llm_plot *p, const json_t *v, double *x, struct llm_err *e)
{
    struct llm_buf text = {0};
    size_t i = 0;
    int status = text_of(v, &text, e);
    while (status == 0 && i < p->n_names && strcmp(p->names[i], text.p) != 0) i++;
    if (status == 0 && i == p->n_names) {
        status = llm_grow((void **)&p->names, &p->names_room, i + 1, sizeof *p->names, e);
        if (status == 0) p->names[p->n_names++] = text.p;
        if (status == 0) text = (struct llm_buf){0};
    }
    llm_buf_release(&text);
    *x = (double)i;
    return status;
}

static int add_point(struct llm_series *s, double x, double y, struct llm_err *e)
{
    if (llm_grow((void **)&s->x, &s->x_room, s->n + 1, sizeof *s->x, e) < 0) return -1;
    if (llm_grow((void **)&s->y, &s->y_room, s->n + 1, sizeof *s->y, e) < 0) return -1;
    s->x[s->n] = x;
    s->y[s->n++] = y;
    return 0;
}

static int take_row(struct reading *r, const json_t *row, struct llm_err *e)
{
    struct llm_plot *p = &r->plot;
    double x, y;
    if (!json_is_object(row)) return llm_fail(e, EX_DATAERR, "expected an object of columns");
    if (know_columns(r, row, e) < 0 || ((!r->x || r->y.n == 0) && json_object_size(row) > 0 && choose_columns(r, row, e) < 0)) return -1;
    const json_t *at = r->x ? json_object_get(row, r->x) : NULL;
    if (!at || json_is_null(at)) return 0;
    bool named = p->n_names > 0 || (p->n == 0 && !number_of(at, &x));
    if (!named && !number_of(at, &x)) return llm_fail(e, EX_DATAERR, "column '%s': expected a number, as in the rows before", r->x);
    for (size_t k = 0; k < r->y.n; k++) {
        if (!number_of(json_object_get(row, r->y.v[k]), &y)) continue;
        if (named && name_index(p, at, &x, e) < 0) return -1;
        struct llm_series *s = series_of(r, row, r->y.v[k], e);
        if (!s || add_point(s, x, y, e) < 0) return -1;
    }
    return 0;
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

static int read_lines(struct reading *r, const struct llm_buf *text, struct llm_err *e)
{
    size_t heading_end = 0, blank = strspn(text->p ? text->p : "", " \t\r\n");
    bool json = text->n > blank && text->p[blank] == '{';
    while (heading_end < text->n && text->p[heading_end] != '\n') heading_end++;
    char separator = text->n && memchr(text->p, '\t', heading_end) ? '\t' : ',';
    json_t *heading = json_array();
    int status = heading ? 0 : llm_no_memory(e, "a row");
    uint64_t number = 0;
    for (size_t at = 0, end; at < text->n && status == 0; at = end + 1) {
        const char *newline = memchr(text->p + at, '\n', text->n - at);
        end = newline ? (size_t)(newline - text->p) : text->n;
        size_t stop = end > at && text->p[end - 1] == '\r' ? end - 1 : end;
        number++;
        if (stop == at) continue;
        bool names = !json && json_array_size(heading) == 0;
        json_t *row = json ? llm_json_parse(text->p + at, stop - at, e) : table_row(text->p + at, text->p + stop, separator, heading, e);
        status = !row ? -1 : names ? 0 : take_row(r, row, e);
        json_decref(row);
        if (status < 0) llm_in(e, "%s: line %" PRIu64, r->file, number);
    }
    json_decref(heading);
    return status;
}

static int read_file(struct reading *r, const char *path, struct llm_err *e)
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
    r->file = f ? llm_file_name(f) : path;
    int status = got < 0 ? -1 : read_lines(r, &text, e);
    llm_file_close(f);
    llm_buf_release(&text);
    return status;
}

/* ---- the chart ---- */

static enum form form_of(const struct args *a)
{
    const char *dot = a->common.output ? strrchr(a->common.output, '.') : NULL;
    if (a->to != FORM_AUTO) return (enum form)a->to;
    if (!dot) return FORM_TEXT;
    return strcmp(dot, ".png") == 0 ? FORM_PNG : strcmp(dot, ".svg") == 0 ? FORM_SVG : FORM_TEXT;
}

static int write_text(const struct llm_plot *p, bool sized, struct llm_output *o, struct llm_err *e)
{
    struct llm_buf text = {0};
    struct winsize window = {0};
    int cols = sized ? p->width : 80, rows = sized ? p->height : 24;
    if (!sized && isatty(1) && ioctl(1, TIOCGWINSZ, &window) == 0 && window.ws_col > 20) {
        cols = window.ws_col;
        rows = window.ws_row > 40 ? 39 : window.ws_row - 1;
    }
    int status = llm_plot_text(p, cols, rows, &text, e);
    if (status == 0) status = llm_output_text(o, text.p, text.n, e);
    llm_buf_release(&text);
    return status;
}

static int write_chart(const struct llm_plot *p, enum form form, const struct args *a, struct llm_err *e)
{
    struct llm_drawing *d = form == FORM_TEXT ? NULL : llm_plot_draw(p, e);
    if (form != FORM_TEXT && !d) return -1;
    struct llm_output *o = llm_output_open(a->common.output, form == FORM_PNG, e);
    int status = o ? 0 : -1;
    if (status == 0 && form == FORM_TEXT) status = write_text(p, a->size != NULL, o, e);
    else if (status == 0) status = (form == FORM_PNG ? llm_drawing_png : llm_drawing_svg)(d, o, e);
    llm_drawing_destroy(d);
    if (status == 0) return llm_output_commit(o, e);
    llm_output_abandon(o);
    return -1;
}

static void read_size(const struct args *a, struct llm_plot *p)
{
    int end = 0;
    p->width = 900;
    p->height = 540;
    if (!a->size || (sscanf(a->size, "%5dx%5d%n", &p->width, &p->height, &end) == 2 && !a->size[end] && p->width >= 20 && p->height >= 8
                     && p->width <= LLM_DRAWING_MAX && p->height <= LLM_DRAWING_MAX)) return;
    llm_usage(&bench_plot_cli, "--size: expected WxH, from 20x8 to %dx%d, found '%s'", LLM_DRAWING_MAX, LLM_DRAWING_MAX, a->size);
}

int bench_plot(int argc, char **argv, struct llm_err *e)
{
    static char stdin_name[] = "-", *standard[] = {stdin_name};
    struct args a = {0};
    int rest = llm_cli_parse(&bench_plot_cli, &a, argc, argv), n = argc - rest;
    char **paths = n > 0 ? argv + rest : standard;
    struct reading r = {.a = &a, .y = a.y, .several = n > 1,
                        .plot = {.title = a.title, .log_x = a.log_x, .log_y = a.log_y, .dark = a.dark}};
    enum form form = form_of(&a);
    read_size(&a, &r.plot);
    int status = llm_output_try(a.common.output, form == FORM_PNG, e);
    if (status == 0 && a.x && !(r.x = copy(a.x, e))) status = -1;
    for (int i = 0; i < (n > 0 ? n : 1) && status == 0; i++) status = read_file(&r, paths[i], e);
    if (status == 0 && r.n_columns > 0) status = check_columns(&r, e);
    r.plot.x_label = r.x ? r.x : "";
    r.plot.y_label = r.y.n == 1 ? r.y.v[0] : "value";
    if (status == 0) status = llm_plot_finish(&r.plot, e);
    if (status == 0) status = write_chart(&r.plot, form, &a, e);
    llm_plot_release(&r.plot);
    for (size_t i = 0; i < r.n_columns; i++) free(r.columns[i]);
    if (r.y.v != a.y.v) {
        free((char *)(uintptr_t)r.y.v[0]);
        free(r.y.v);
    }
    free((char *)(uintptr_t)r.x);
    return status;
}
