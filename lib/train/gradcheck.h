/* Compares the gradients of a whole model with central differences of its loss, tensor by tensor, in FP32. */
#ifndef LLM_TRAIN_GRADCHECK_H
#define LLM_TRAIN_GRADCHECK_H

#include "io/table.h"
#include "train/trainer.h"

#define LLM_MODEL_GRADCHECK_TOLERANCE 1e-3
#define LLM_MODEL_GRADCHECK_CORNERS 5e-2 /* with ReLU: differences step over corners */

/* Along a direction that is half the gradient's own and half random signs, the analytic slope and (L(w + h) - L(w - h)) / 2h, extrapolated from the
 * two smallest h. Prints a table with a row for each tensor (tensor, analytic, numeric, relative difference, uncertainty of the numeric slope) to
 * standard output. -1 with LLM_EX_FAILURE when one differs by more than the tolerance and the uncertainty. */
int llm_gradcheck_print(struct llm_trainer *t, enum llm_table_form form, struct llm_err *e) LLM_MUST_CHECK;

#endif
