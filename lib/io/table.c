#include "io/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/json.h"

enum { NUMBER_ROOM = 400 };

void llm_table_init(struct llm_table *t, const char *const *columns)
{
    *t = (struct llm_table){.columns = columns};
    while (columns[t->n_columns]) t->n_columns++;
}

static void empty(struct llm_table *t)
{
    for (size_t i = 0; i < t->n_cells; i++) {
        free((char *)t->cells[i].text);
        free((char *)t->cells[i].json);
    }
    t->n_cells = 0;
}

void llm_table_release(struct llm_table *t)
{
    empty(t);
    free(t->cells);
    *t = (struct llm_table){0};
}

/* ---- filling ---- */

static struct llm_cell *add(struct llm_table *t)
{
    static struct llm_cell nowhere;
    if (t->err.status || llm_grow((void **)&t->cells, &t->room, t->n_cells + 1, sizeof *t->cells, &t->err) < 0) return &nowhere;
    t->cells[t->n_cells] = (struct llm_cell){.text = NULL};
    return &t->cells[t->n_cells++];
}

void llm_table_raw(struct llm_table *t, const char *text, const char *json)
{
    char *copy = strdup(text), *json_copy = json ? strdup(json) : NULL;
    if (!copy || (json && !json_copy)) {
        if (!t->err.status) llm_no_memory(&t->err, "a table");
        free(copy);
        free(json_copy);
        return;
    }
    struct llm_cell *c = add(t);
    if (t->err.status) {
        free(copy);
        free(json_copy);
        return;
    }
    c->text = copy;
    c->json = json_copy;
}

void llm_table_text(struct llm_table *t, const char *text)
{
    llm_table_raw(t, text ? text : "-", text ? NULL : "null");
}

void llm_table_count(struct llm_table *t, double whole)
{
    llm_table_number(t, whole, 0);
}

void llm_table_number(struct llm_table *t, double v, int digits)
{
    llm_table_printed(t, v, LLM_NUMBER_SIGNIFICANT, digits);
}

void llm_table_printed(struct llm_table *t, double v, enum llm_number_style style, int digits)
{
    struct llm_cell *c = add(t);
    c->number = v;
    c->style = style;
    c->digits = digits;
}

/* ---- showing ---- */

/* Writes a number without exponent, which sort(1) and awk(1) handle without options. */
static void show_significant(double v, int digits, char *out)
{
    int before = v == 0 ? 1 : (int)floor(log10(fabs(v))) + 1; /* digits before the point; may be negative */
    int after = digits == 0 ? 0 : digits - before;
    snprintf(out, NUMBER_ROOM, "%.*f", after < 0 ? 0 : after > 12 ? 12 : after, v);
}

static void show_number(const struct llm_cell *c, char *out)
{
    double v = c->number;
    if (c->style == LLM_NUMBER_SIGNIFICANT && isfinite(v)) show_significant(v, c->digits, out);
    else if (c->style == LLM_NUMBER_SIGNIFICANT || (c->style == LLM_NUMBER_GENERAL && isnan(v))) snprintf(out, NUMBER_ROOM, "-");
    else if (c->style == LLM_NUMBER_GENERAL) snprintf(out, NUMBER_ROOM, "%.*g", c->digits, v);
    else if (c->style == LLM_NUMBER_INTEGER) snprintf(out, NUMBER_ROOM, "%.0f", v);
    else if (c->style == LLM_NUMBER_FIXED) snprintf(out, NUMBER_ROOM, "%.*f", c->digits, v);
    else snprintf(out, NUMBER_ROOM, "%.*e", c->digits, v);
}

/* `out` has the number in seconds. Times below a second get three digits and a unit in which they are at least 1. */
static void show_seconds(double v, char *out)
{
    static const char *const units[] = {"s", "ms", "us", "ns"};
    int i = 0, digits;
    for (; v != 0 && fabs(v) < 0.9995 && i < 3; i++) v *= 1000;
    digits = fabs(v) < 9.995 ? 2 : fabs(v) < 99.95 ? 1 : 0;
    if (i > 0) snprintf(out, NUMBER_ROOM, "%.*f %s", digits, v, units[i]);
    else snprintf(out + strlen(out), NUMBER_ROOM - strlen(out), " s");
}

/* Writes a number for a person: columns of bytes, FLOPs or seconds get a prefix and the unit. */
static void show_with_unit(const struct llm_cell *c, const char *column, char *out)
{
    static const char *const binary[] = {"B", "KiB", "MiB", "GiB", "TiB"}, *const decimal[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"};
    bool bytes = strstr(column, "bytes"), flops = strncmp(column, "flops", 5) == 0 && !strstr(column, "share");
    double v = c->number, base = bytes ? 1024 : 1000;
    int i = 0;
    show_number(c, out);
    if (!isfinite(v)) return;
    if (strstr(column, "seconds")) show_seconds(v, out);
    if ((!bytes && !flops) || fabs(v) >= 1e18) return;
    for (; fabs(v) >= base && i < 4; i++) v /= base;
    snprintf(out, NUMBER_ROOM, "%.*f %s", i > 0 && fabs(v) < 100 ? 2 : 0, v, bytes ? binary[i] : decimal[i]);
}

/* A cell as it stands in a form; valid until `number` is used again. */
static const char *shown(const struct llm_table *t, size_t i, enum llm_table_form form, char number[NUMBER_ROOM])
{
    const struct llm_cell *c = &t->cells[i];
    if (c->text) return c->text;
    if (form == LLM_TABLE_ALIGNED) show_with_unit(c, t->columns[i % t->n_columns], number);
    else show_number(c, number);
    return number;
}

/* Control characters, tabs among them, would break the lines of TSV and aligned columns, a bar those of Markdown. Delete, which breaks no line, is
 * masked where people read. */
static int put_masked(struct llm_buf *o, const char *s, enum llm_table_form form, struct llm_err *e)
{
    int bad = 0;
    for (; *s && !bad; s++) {
        char c = (unsigned char)*s < ' ' || (*s == 127 && form != LLM_TABLE_TSV) ? '?' : *s;
        bad = form == LLM_TABLE_MD && c == '|' ? llm_buf_put(o, "\\|", 2, e) : llm_buf_put(o, &c, 1, e);
    }
    return bad;
}

static int put_csv(struct llm_buf *o, const char *s, struct llm_err *e)
{
    int bad = 0;
    if (!strpbrk(s, ",\"\r\n")) return llm_buf_put(o, s, strlen(s), e);
    bad = llm_buf_put(o, "\"", 1, e);
    for (; *s && !bad; s++) bad = *s == '"' ? llm_buf_put(o, "\"\"", 2, e) : llm_buf_put(o, s, 1, e);
    return bad ? bad : llm_buf_put(o, "\"", 1, e);
}

/* Columns that a terminal needs: UTF-8 characters. */
static size_t columns_of(const char *s)
{
    size_t n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

/* A table as a grid of texts: its own cells after the heading, or for a record "key" and "value". */
struct grid {
    const struct llm_table *t;
    enum llm_table_form form;
    size_t columns, rows;   /* the heading is row 0 */
};

static const char *at(const struct grid *g, size_t row, size_t column, char number[NUMBER_ROOM])
{
    const struct llm_table *t = g->t;
    if (!t->record) return row == 0 ? t->columns[column] : shown(t, (row - 1) * t->n_columns + column, g->form, number);
    if (row == 0) return column == 0 ? "key" : "value";
    return column == 0 ? t->columns[row - 1] : shown(t, row - 1, g->form, number);
}

static bool is_text(const struct grid *g, size_t row, size_t column)
{
    if (g->t->record) return column == 0 || g->t->cells[row - 1].text;
    return g->t->cells[(row - 1) * g->columns + column].text;
}

static int put_padded(struct llm_buf *o, const char *text, size_t width, bool right, bool last, struct llm_err *e)
{
    size_t have = columns_of(text);
    int gap = have < width ? (int)(width - have) : 0;
    if (right && llm_buf_printf(o, e, "%*s", gap, "") < 0) return -1;
    if (put_masked(o, text, LLM_TABLE_ALIGNED, e) < 0) return -1;
    return llm_buf_printf(o, e, "%*s%s", right || last ? 0 : gap, "", last ? "\n" : "  ");
}

static int put_aligned(const struct grid *g, struct llm_buf *o, struct llm_err *e)
{
    size_t *width = llm_calloc(g->columns, sizeof *width, "a table", e);
    bool *text = width ? llm_calloc(g->columns, sizeof *text, "a table", e) : NULL;
    char number[NUMBER_ROOM];
    int bad = text ? 0 : -1;
    for (size_t i = 0; i < g->columns * g->rows && !bad; i++) {
        size_t row = i / g->columns, column = i % g->columns, n = columns_of(at(g, row, column, number));
        if (row == 0 && g->t->no_heading) continue;
        if (n > width[column]) width[column] = n;
        if (row > 0 && is_text(g, row, column)) text[column] = true;
    }
    for (size_t i = g->t->no_heading ? g->columns : 0; i < g->columns * g->rows && !bad; i++) {
        size_t column = i % g->columns;
        bad = put_padded(o, at(g, i / g->columns, column, number), width[column], !text[column], column + 1 == g->columns, e);
    }
    free(width);
    free(text);
    return bad;
}

/* What stands between the heading and the rows of Markdown; numbers are aligned to the right. */
static int put_rule(const struct grid *g, struct llm_buf *o, struct llm_err *e)
{
    int bad = 0;
    for (size_t c = 0; c < g->columns && !bad; c++) {
        bool text = g->rows == 1;
        for (size_t r = 1; r < g->rows; r++) text |= is_text(g, r, c);
        bad = llm_buf_printf(o, e, text ? "|---" : "|---:");
    }
    return bad ? bad : llm_buf_put(o, "|\n", 2, e);
}

static int put_cell(const struct grid *g, size_t row, size_t column, struct llm_buf *o, struct llm_err *e)
{
    char number[NUMBER_ROOM];
    const char *s = at(g, row, column, number), *end = column + 1 < g->columns ? NULL : "\n";
    if (g->form == LLM_TABLE_CSV) return put_csv(o, s, e) < 0 ? -1 : llm_buf_printf(o, e, "%s", end ? "\r\n" : ",");
    if (g->form == LLM_TABLE_TSV) return put_masked(o, s, g->form, e) < 0 ? -1 : llm_buf_printf(o, e, "%s", end ? end : "\t");
    if (llm_buf_put(o, "| ", 2, e) < 0 || put_masked(o, s, g->form, e) < 0) return -1;
    return llm_buf_printf(o, e, "%s", end ? " |\n" : " ");
}

static int put_lines(const struct grid *g, struct llm_buf *o, struct llm_err *e)
{
    int bad = 0;
    for (size_t r = g->t->no_heading && g->form != LLM_TABLE_MD; r < g->rows && !bad; r++) {
        for (size_t c = 0; c < g->columns && !bad; c++) bad = put_cell(g, r, c, o, e);
        if (r == 0 && !bad && g->form == LLM_TABLE_MD) bad = put_rule(g, o, e);
    }
    return bad;
}

static int put_json(const struct llm_table *t, struct llm_buf *b, struct llm_err *e)
{
    char number[NUMBER_ROOM];
    const char *space = t->spaced ? " " : "";
    int bad = 0;
    for (size_t i = 0; i < t->n_cells && !bad; i++) {
        const struct llm_cell *c = &t->cells[i];
        size_t column = i % t->n_columns;
        bad = llm_buf_printf(b, e, "%s%s\"%s\":%s", column ? "," : "{", column ? space : "", t->columns[column], space);
        if (bad) break;
        if (c->text) bad = c->json ? llm_buf_put(b, c->json, strlen(c->json), e) : llm_json_quote(b, c->text, strlen(c->text), e);
        else if (!isfinite(c->number) || (!t->as_shown && c->style != LLM_NUMBER_INTEGER)) bad = llm_json_number(b, c->number, e);
        else {
            show_number(c, number);
            bad = llm_buf_put(b, number, strlen(number), e);
        }
        if (!bad && column + 1 == t->n_columns) bad = llm_buf_put(b, "}\n", 2, e);
    }
    return bad ? -1 : 0;
}

int llm_table_show(const struct llm_table *t, enum llm_table_form form, struct llm_buf *b, struct llm_err *e)
{
    struct grid g = {.t = t, .form = form == LLM_TABLE_AUTO ? LLM_TABLE_TSV : form, .columns = t->n_columns, .rows = 1 + t->n_cells / t->n_columns};
    if (t->err.status) {
        *e = t->err;
        return -1;
    }
    if (t->record) {
        g.columns = 2;
        g.rows = 1 + t->n_cells;
    }
    if (form == LLM_TABLE_JSON) return put_json(t, b, e);
    return (form == LLM_TABLE_ALIGNED ? put_aligned(&g, b, e) : put_lines(&g, b, e)) ? -1 : 0;
}

int llm_table_write(const struct llm_table *t, enum llm_table_form form, struct llm_output *o, struct llm_err *e)
{
    struct llm_buf b = {0};
    int status = llm_table_show(t, form, &b, e);
    if (status == 0 && b.n > 0) status = llm_output_write(o, b.p, b.n, e);
    llm_buf_release(&b);
    return status;
}

enum llm_table_form llm_table_form(const struct llm_common *common)
{
    return common->json ? LLM_TABLE_JSON : (enum llm_table_form)common->format;
}

enum llm_table_form llm_table_form_for(enum llm_table_form form, const char *path)
{
    bool to_stdout = !path || strcmp(path, "-") == 0;
    if (form != LLM_TABLE_AUTO) return form;
    return to_stdout && isatty(STDOUT_FILENO) ? LLM_TABLE_ALIGNED : LLM_TABLE_TSV;
}

int llm_table_flush(struct llm_table *t, enum llm_table_form form, struct llm_output *o, struct llm_err *e)
{
    if (form == LLM_TABLE_ALIGNED || form == LLM_TABLE_MD) return 0;
    if (llm_table_write(t, form, o, e) < 0) return -1;
    empty(t);
    t->no_heading = true;
    return 0;
}

int llm_tables_print(const char *path, enum llm_table_form form, struct llm_table *const *tables, size_t n, struct llm_err *e)
{
    form = llm_table_form_for(form, path);
    struct llm_output *o = llm_output_open(path, false, e);
    int status = o ? 0 : -1;
    for (size_t i = 0; i < n; i++) {
        if (status == 0 && i > 0 && form != LLM_TABLE_JSON) status = llm_output_write(o, "\n", 1, e);
        if (status == 0) status = llm_table_write(tables[i], form, o, e);
        llm_table_release(tables[i]);
    }
    if (status == 0) return llm_output_commit(o, e);
    llm_output_abandon(o);
    return -1;
}
