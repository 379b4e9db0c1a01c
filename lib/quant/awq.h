/* AWQ (Lin et al. 2024): channels of a matrix's input that are large are made smaller before they reach it, and the matrix's columns larger by
 * as much, so that these columns are rounded more finely. What comes before takes the division: the gain of a norm, or the rows of a matrix
 * whose outputs reach the channels without anything in between that is not linear. The model computes the same function. */
#ifndef LLM_QUANT_AWQ_H
#define LLM_QUANT_AWQ_H

#include "quant/moments.h"
#include "quant/quant.h"

struct llm_awq_counts {
    size_t folded;                 /* places whose channels were scaled */
    size_t plain;                  /* those for which no scaling was better than all 1 */
    size_t closed;                 /* those that nothing linear comes before */
};
/* Scales the places of the first stack of `m` that the plan's matrices read: inputs of mixer and feed-forward that a norm makes, values before
 * the projection from attention, what comes before the projection from the feed-forward part if that is gated or its activation is relu, and
 * MLA's latents. Of 20 powers of the channels' root mean square, from 0 (no scaling), the one with the least error, weighted by the mean
 * squares, after the readers were rounded to their types. Places of which a reader stays as it is, or what comes before it, are closed. The
 * matrices and gains that change become F32; `moments` becomes that of the scaled inputs. The result does not depend on threads. 0 or -1. */
int llm_awq(struct llm_model *m, const struct llm_quant_plan *plan, struct llm_moments *moments, struct llm_awq_counts *counts, struct llm_err *e)
    LLM_MUST_CHECK;

#endif
