/* The coordinate check of a parametrisation (Yang et al. 2022): how large activations are, place by place, as a model is made wider and learns one
 * batch for a few steps. Under muP they do not grow with the width. */
#ifndef LLM_TRAIN_COORDCHECK_H
#define LLM_TRAIN_COORDCHECK_H

#include "io/table.h"
#include "train/trainer.h"

enum { LLM_COORDCHECK_STEPS = 4 }; /* before which and after each of which activations are measured */

struct llm_coordcheck {
    struct llm_coordcheck_row { char place[96]; int64_t width, step; double size; } *rows; /* size: mean |x| over tokens and channels */
    size_t n, room;
};
/* One width: the model of `c`, trained with `o` at a constant rate on its first batch (of random tokens without data). Takes over `*d`. */
int llm_coordcheck_run(struct llm_coordcheck *k, const struct llm_config *c, const struct llm_train_options *o, struct llm_train_data *d,
                       struct llm_err *e) LLM_MUST_CHECK;
void llm_coordcheck_release(struct llm_coordcheck *k);
/* To standard output: a table of width, step, place, mean_abs. */
int llm_coordcheck_print(const struct llm_coordcheck *k, enum llm_table_form form, struct llm_err *e) LLM_MUST_CHECK;
/* The least-squares slope of log size by log width after the last step, of the place where it is steepest (borrowed name). 0 with one width. */
double llm_coordcheck_slope(const struct llm_coordcheck *k, const char **place);
/* Writes a heat map (PNG) with a row for each place and a column for each width, grouped by step. A cell shows the size divided by that of the first
 * width at the same place and step. `o` is not committed. */
int llm_coordcheck_draw(const struct llm_coordcheck *k, struct llm_output *o, struct llm_err *e) LLM_MUST_CHECK;

#endif
