/* Tables of results: TSV for programs, aligned columns for a person at a terminal, JSON Lines with --json. Rows are held until the table is
 * written, so that columns can be aligned. */
#ifndef LLM_MEASURE_TABLE_H
#define LLM_MEASURE_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include "base/buf.h"
#include "io/output.h"

struct llm_cell {
    const char *text;       /* owned; NULL for a number */
    double number;          /* NaN: not known ("-", null) */
    int digits;             /* significant digits of a number in TSV and aligned tables; 0: a whole number, all of it */
};
struct llm_table {
    const char *const *columns; /* borrowed; names in snake_case, ended by NULL */
    size_t n_columns;
    struct llm_cell *cells;     /* row after row */
    size_t n_cells, room;
    struct llm_err err;         /* sticky: the first failure */
};
void llm_table_init(struct llm_table *t, const char *const *columns);
void llm_table_release(struct llm_table *t);
/* Cells from left to right; a row is full after n_columns of them. Text is copied. */
void llm_table_text(struct llm_table *t, const char *text);
void llm_table_count(struct llm_table *t, double whole);
void llm_table_number(struct llm_table *t, double v, int digits);

enum llm_table_form { LLM_TABLE_TSV, LLM_TABLE_ALIGNED, LLM_TABLE_JSON };
/* Puts the table behind what is in b. JSON has every number in full. 0, or -1 also when filling the table had failed. */
int llm_table_show(const struct llm_table *t, enum llm_table_form form, struct llm_buf *b, struct llm_err *e) LLM_MUST_CHECK;
int llm_table_write(const struct llm_table *t, enum llm_table_form form, struct llm_output *o, struct llm_err *e) LLM_MUST_CHECK;

#endif
