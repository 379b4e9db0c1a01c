/* llm-bench plot: columns of logs and tables as a chart. */
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "bin/bench/bench.h"
#include "bin/bench/chart.h"
#include "io/columns.h"

struct args {
    struct llm_common common;
    const char *x, *by, *title, *size;
    struct llm_strs y;
    int log_x, log_y, dark, to;
};
#define AT(field) offsetof(struct args, field)

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

struct reading {
    const struct args *a;
    struct llm_plot plot;
    const char *x;              /* the column; owned */
    struct llm_strs y;          /* owned texts when they were chosen here */
    const char *file;           /* the one that is read, and whether there are others */
    bool several;
    struct llm_column_names columns; /* that rows have */
};

/* ---- cells ---- */

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
        if (!y && strcmp(key, r->x) != 0 && llm_column_number(v, &x)) y = key;
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
        if (name && llm_column_names_check(&r->columns, name, e) < 0) return -1;
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

static int take_row(void *arg, const char *file, const json_t *row, struct llm_err *e)
{
    struct reading *r = arg;
    struct llm_plot *p = &r->plot;
    double x, y;
    r->file = file;
    if (llm_column_names_add(&r->columns, row, e) < 0) return -1;
    if ((!r->x || r->y.n == 0) && json_object_size(row) > 0 && choose_columns(r, row, e) < 0) return -1;
    const json_t *at = r->x ? json_object_get(row, r->x) : NULL;
    if (!at || json_is_null(at)) return 0;
    bool named = p->n_names > 0 || (p->n == 0 && !llm_column_number(at, &x));
    if (!named && !llm_column_number(at, &x)) return llm_fail(e, EX_DATAERR, "column '%s': expected a number, as in the rows before", r->x);
    for (size_t k = 0; k < r->y.n; k++) {
        if (!llm_column_number(json_object_get(row, r->y.v[k]), &y)) continue;
        if (named && name_index(p, at, &x, e) < 0) return -1;
        struct llm_series *s = series_of(r, row, r->y.v[k], e);
        if (!s || add_point(s, x, y, e) < 0) return -1;
    }
    return 0;
}

/* ---- the chart ---- */

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
    enum bench_form form = bench_form_of(a.common.output, a.to);
    read_size(&a, &r.plot);
    int status = llm_output_try(a.common.output, form == BENCH_PNG, e);
    if (status == 0 && a.x && !(r.x = copy(a.x, e))) status = -1;
    for (int i = 0; i < (n > 0 ? n : 1) && status == 0; i++) status = llm_columns_read(paths[i], take_row, &r, e);
    if (status == 0 && r.columns.n > 0) status = check_columns(&r, e);
    r.plot.x_label = r.x ? r.x : "";
    r.plot.y_label = r.y.n == 1 ? r.y.v[0] : "value";
    if (status == 0) status = llm_plot_finish(&r.plot, e);
    if (status == 0) status = bench_chart(&r.plot, a.common.output, form, a.size != NULL, e);
    llm_plot_release(&r.plot);
    llm_column_names_release(&r.columns);
    if (r.y.v != a.y.v) {
        free((char *)(uintptr_t)r.y.v[0]);
        free(r.y.v);
    }
    free((char *)(uintptr_t)r.x);
    return status;
}
