/* Tables of results, in one writer for all programs: TSV for programs, aligned columns with units for a person at a terminal, JSON Lines, CSV (RFC
 * 4180) and Markdown. Rows are held until the table is written, so that columns can be aligned. */
#ifndef LLM_IO_TABLE_H
#define LLM_IO_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/cli.h"
#include "io/output.h"

/* How a number is shown in all forms but JSON. */
enum llm_number_style {
    LLM_NUMBER_SIGNIFICANT, /* that many significant digits, never an exponent (0: an integer, all digits); not finite: "-" */
    LLM_NUMBER_GENERAL,     /* %.*g; NaN: "-" */
    LLM_NUMBER_FIXED,       /* %.*f */
    LLM_NUMBER_SCIENTIFIC,  /* %.*e */
    LLM_NUMBER_INTEGER      /* all digits, in JSON too */
};
struct llm_cell {
    const char *text;       /* owned; NULL for a number */
    const char *json;       /* owned; a text's form in JSON, NULL: quoted */
    double number;          /* not finite: null in JSON */
    enum llm_number_style style;
    int digits;
};
struct llm_table {
    const char *const *columns; /* borrowed; names in snake_case, ended by NULL */
    size_t n_columns;
    /* What the caller may set after llm_table_init: */
    bool record;                /* the table has one row, which is written as a line "name, value" for each column (JSON: one object) */
    bool no_heading;            /* TSV and CSV have no heading */
    bool as_shown;              /* JSON has numbers with the digits of the other forms; else in full */
    bool spaced;                /* JSON has spaces after colons and commas */

    struct llm_cell *cells;     /* row after row */
    size_t n_cells, room;
    struct llm_err err;         /* sticky: the first failure */
};
void llm_table_init(struct llm_table *t, const char *const *columns);
void llm_table_release(struct llm_table *t);
/* Cells from left to right; a row is full after n_columns of them. Texts are copied. */
void llm_table_text(struct llm_table *t, const char *text); /* NULL: "-", null */
void llm_table_raw(struct llm_table *t, const char *text, const char *json); /* a text whose form in JSON is not a string: "[2,3]" */
void llm_table_count(struct llm_table *t, double whole);
void llm_table_number(struct llm_table *t, double v, int digits);
void llm_table_printed(struct llm_table *t, double v, enum llm_number_style style, int digits);

/* In the order of the words of --format (base/cli.h). AUTO: ALIGNED for a terminal, else TSV. */
enum llm_table_form { LLM_TABLE_AUTO, LLM_TABLE_TSV, LLM_TABLE_ALIGNED, LLM_TABLE_JSON, LLM_TABLE_CSV, LLM_TABLE_MD };
/* What --json and --format say. */
enum llm_table_form llm_table_form(const struct llm_common *common);
/* Appends the table to b; AUTO is TSV. 0, or -1 also if filling the table had failed. */
int llm_table_show(const struct llm_table *t, enum llm_table_form form, struct llm_buf *b, struct llm_err *e) LLM_MUST_CHECK;
int llm_table_write(const struct llm_table *t, enum llm_table_form form, struct llm_output *o, struct llm_err *e) LLM_MUST_CHECK;
/* AUTO is decided by where the output goes: ALIGNED if `path` (NULL or "-": standard output) is a terminal, else TSV. Other forms stay. */
enum llm_table_form llm_table_form_for(enum llm_table_form form, const char *path);
/* For tables that grow long: writes the rows so far and empties the table, unless the form needs all rows at once (ALIGNED, MD). The heading is
 * written with the first rows. The caller writes the rest by llm_table_write. 0 or -1. */
int llm_table_flush(struct llm_table *t, enum llm_table_form form, struct llm_output *o, struct llm_err *e) LLM_MUST_CHECK;
/* Writes n tables to `path` (NULL or "-": standard output) and releases them; an empty line stands between two, but not in JSON. The output appears
 * whole or not at all. 0 or -1. */
int llm_tables_print(const char *path, enum llm_table_form form, struct llm_table *const *tables, size_t n, struct llm_err *e) LLM_MUST_CHECK;

#endif
