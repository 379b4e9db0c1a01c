/* Pairs of replies to one prompt, as objectives over preferences share them: lines of JSON to records, records to rows, rows to a pass. */
#ifndef LLM_TRAIN_PAIRS_H
#define LLM_TRAIN_PAIRS_H

#include "train/lines.h"
#include "train/objective.h"

/* llm_objective.record of lines with "chosen" and "rejected", and "prompt": plain texts, or lists of messages; without a prompt, what the two
 * conversations begin with is the prompt. The tokens of the replies have mask 1. Numbers and truth values of the line become columns of the same
 * names, and what a float leaves out of the number NAME becomes the column NAME LLM_PAIRS_LOW. */
int llm_pairs_record(struct llm_lines *l, const json_t *line, struct llm_err *e);
#define LLM_PAIRS_LOW "_low"
/* Lines of single replies ("prompt", "completion"), of which all are needed before the first becomes a record. `keep` appends one to an array;
 * `check`, after the last: whether there are enough; `add` adds the record of line i, a prompt with its reply and with the reply of the line before
 * (of the first line: the last). 0, also if the line is skipped, or -1. */
int llm_singles_keep(json_t *lines, const json_t *line, struct llm_err *e);
int llm_singles_check(const json_t *lines, struct llm_err *e);
int llm_singles_add(struct llm_lines *l, const json_t *lines, size_t i, struct llm_err *e);
/* A sum as two floats keep it, to 48 bits: sums that are computed and sums that were stored are then the same. */
double llm_pairs_kept(double sum);
/* llm_objective.document: the chosen text in `ids`, the rejected one in `source`; one target, at the row's beginning, stands for the pair. */
int llm_pairs_document(const struct llm_task *t, struct llm_rows *rows, int64_t row, const struct llm_document *d, struct llm_err *e);
/* The rows of a pass: of each pair the chosen text, then the rejected one, [2 n_rows, row_len]; on the context's `acts`, targets are the tokens of
 * the replies. -1: no memory. */
int llm_pairs_rows(struct llm_ctx *c, const struct llm_rows *pairs, struct llm_rows *out, struct llm_err *e);
/* The rows of the options that objectives over pairs share. */
#define LLM_PAIRS_OPTIONS LLM_LINES_OPTIONS

#endif
