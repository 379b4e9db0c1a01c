/* GPTQ (Frantar et al. 2022): codes are chosen column by column, and the error of each column is made up for in the columns that are still to
 * come, as far as the inputs that a calibration text gave are correlated. A block's scales are searched for when its turn comes, for weights that
 * make up for the errors so far, and so are the integer scales of each of its groups. Grid types take points for eight columns at a time.
 * With the gradients' factor of the curvature (quant/curvature.h) rows make up for each other's errors too. The triangular factor of the inverse of a
 * Kronecker product is the Kronecker product of the factors' own, so the error at (i, j), over the diagonals, times U_out[i, i']·U_in[j, j'] is taken
 * from the weight at (i', j') (YAQA, Tseng et al. 2025). The gradients' factor is damped by more than the inputs': .3 of its diagonal's mean. */
#ifndef LLM_QUANT_GPTQ_H
#define LLM_QUANT_GPTQ_H

#include "quant/quant.h"

/* Writes job->out. job->products must be given, and job->to must have a block kind or a grid kind that is written; rows are independent if
 * job->gradients is NULL. *damping: the share of the mean of the diagonal that was added to the diagonal of the products' matrix so that it could be
 * factored: .01, and ten times as much after each failure. Inputs that were always 0 get the mean of the diagonal. The bytes do not depend on
 * threads. 0 or -1 (memory; products that are not finite). */
int llm_gptq(const struct llm_quant_job *job, double *damping, struct llm_err *e) LLM_MUST_CHECK;

#endif
