#include "measure/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"

void llm_table_init(struct llm_table *t, const char *const *columns)
{
    *t = (struct llm_table){.columns = columns};
    while (columns[t->n_columns]) t->n_columns++;
}

void llm_table_release(struct llm_table *t)
{
    for (size_t i = 0; i < t->n_cells; i++) free((char *)t->cells[i].text);
    free(t->cells);
    *t = (struct llm_table){0};
}

static struct llm_cell *add(struct llm_table *t)
{
    static struct llm_cell nowhere;
    if (t->err.status || llm_grow((void **)&t->cells, &t->room, t->n_cells + 1, sizeof *t->cells, &t->err) < 0) return &nowhere;
    t->cells[t->n_cells] = (struct llm_cell){.text = NULL};
    return &t->cells[t->n_cells++];
}

void llm_table_text(struct llm_table *t, const char *text)
{
    char *copy = strdup(text);
    if (!copy) {
        if (!t->err.status) llm_no_memory(&t->err, "a table");
        return;
    }
    struct llm_cell *c = add(t);
    if (t->err.status) {
        free(copy);
        return;
    }
    c->text = copy;
}

void llm_table_count(struct llm_table *t, double whole)
{
    llm_table_number(t, whole, 0);
}

void llm_table_number(struct llm_table *t, double v, int digits)
{
    struct llm_cell *c = add(t);
    c->number = v;
    c->digits = digits;
}

/* A number as people and TSV see it: never in exponents, so that sort(1) and awk(1) need no care. */
static void show(const struct llm_cell *c, char *out, size_t room)
{
    double v = c->number;
    if (!isfinite(v)) {
        snprintf(out, room, "-");
    } else if (c->digits == 0) {
        snprintf(out, room, "%.0f", v);
    } else {
        int before = v == 0 ? 1 : (int)floor(log10(fabs(v))) + 1; /* digits before the point; may be negative */
        int after = c->digits - before;
        snprintf(out, room, "%.*f", after < 0 ? 0 : after > 12 ? 12 : after, v);
    }
}

/* Columns that a terminal needs: UTF-8 characters. */
static size_t columns_of(const char *s)
{
    size_t n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

/* A text as a cell of TSV: control characters, tabs among them, would break the table. In place; JSON has them quoted. */
static void mask(char *s)
{
    for (; *s; s++) {
        if ((unsigned char)*s < ' ' || *s == 127) *s = '?';
    }
}

static int put_padded(struct llm_buf *o, const char *text, size_t width, bool right, bool last, struct llm_err *e)
{
    size_t have = columns_of(text);
    int gap = have < width ? (int)(width - have) : 0;
    if (right) return llm_buf_printf(o, e, "%*s%s%s", gap, "", text, last ? "\n" : "  ");
    return llm_buf_printf(o, e, "%s%*s%s", text, last ? 0 : gap, "", last ? "\n" : "  ");
}

static int show_columns(const struct llm_table *t, bool aligned, struct llm_buf *o, struct llm_err *e)
{
    size_t *width = llm_calloc(t->n_columns, sizeof *width, "a table", e);
    bool *is_text = llm_calloc(t->n_columns, sizeof *is_text, "a table", e);
    char number[400];
    int bad = !width || !is_text ? -1 : 0;
    for (size_t i = 0; i < t->n_columns && !bad; i++) width[i] = columns_of(t->columns[i]);
    for (size_t i = 0; i < t->n_cells && !bad; i++) {
        const struct llm_cell *c = &t->cells[i];
        size_t column = i % t->n_columns, n;
        if (!c->text) show(c, number, sizeof number);
        else mask((char *)c->text);
        n = columns_of(c->text ? c->text : number);
        if (n > width[column]) width[column] = n;
        if (c->text) is_text[column] = true;
    }
    for (size_t i = 0; i < t->n_columns + t->n_cells && !bad; i++) {
        size_t column = i % t->n_columns;
        bool last = column + 1 == t->n_columns;
        const char *text = i < t->n_columns ? t->columns[i] : t->cells[i - t->n_columns].text;
        if (!text) {
            show(&t->cells[i - t->n_columns], number, sizeof number);
            text = number;
        }
        bad = aligned ? put_padded(o, text, width[column], !is_text[column], last, e)
                      : llm_buf_printf(o, e, "%s%c", text, last ? '\n' : '\t');
    }
    free(width);
    free(is_text);
    return bad;
}

static int show_json(const struct llm_table *t, struct llm_buf *b, struct llm_err *e)
{
    int bad = 0;
    for (size_t i = 0; i < t->n_cells && !bad; i++) {
        const struct llm_cell *c = &t->cells[i];
        size_t column = i % t->n_columns;
        bad = llm_buf_printf(b, e, "%s\"%s\":", column ? "," : "{", t->columns[column]) < 0
              || (c->text ? llm_json_quote(b, c->text, strlen(c->text), e) : llm_json_number(b, c->number, e)) < 0
              || (column + 1 == t->n_columns && llm_buf_put(b, "}\n", 2, e) < 0);
    }
    return bad ? -1 : 0;
}

int llm_table_show(const struct llm_table *t, enum llm_table_form form, struct llm_buf *b, struct llm_err *e)
{
    if (t->err.status) {
        *e = t->err;
        return -1;
    }
    return form == LLM_TABLE_JSON ? show_json(t, b, e) : show_columns(t, form == LLM_TABLE_ALIGNED, b, e);
}

int llm_table_write(const struct llm_table *t, enum llm_table_form form, struct llm_output *o, struct llm_err *e)
{
    struct llm_buf b = {0};
    int status = llm_table_show(t, form, &b, e);
    if (status == 0 && b.n > 0) status = llm_output_write(o, b.p, b.n, e);
    llm_buf_release(&b);
    return status;
}
