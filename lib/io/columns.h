/* Rows of columns from logs and tables: JSON Lines (an object a line), TSV or CSV (RFC 4180) with a heading. A row is a JSON object whose members
 * are its columns; fields of TSV and CSV are texts, which llm_column_number reads as numbers. */
#ifndef LLM_IO_COLUMNS_H
#define LLM_IO_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"
#include "base/json.h"

/* Takes a row, which is the reader's. `file`: its name in messages. 0 or -1. */
typedef int (*llm_row_fn)(void *arg, const char *file, const json_t *row, struct llm_err *e);
/* Reads the file ("-": standard input) and calls `take` for each row in order. -1: see `e`, which names file and line. */
int llm_columns_read(const char *path, llm_row_fn take, void *arg, struct llm_err *e) LLM_MUST_CHECK;

/* A number, or a text that is one as a whole. False: neither, or not finite; NULL too. */
bool llm_column_number(const json_t *v, double *x);

/* The names of the columns that rows have had, each once. Zero-initialise. */
enum { LLM_MAX_COLUMNS = 256 };
struct llm_column_names { char *v[LLM_MAX_COLUMNS]; size_t n; };
int llm_column_names_add(struct llm_column_names *c, const json_t *row, struct llm_err *e) LLM_MUST_CHECK;
bool llm_column_names_have(const struct llm_column_names *c, const char *name);
/* Status 2, with the columns that there are, unless `name` is one of them. */
int llm_column_names_check(const struct llm_column_names *c, const char *name, struct llm_err *e) LLM_MUST_CHECK;
void llm_column_names_release(struct llm_column_names *c);

#endif
