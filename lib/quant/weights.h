/* How much an error of each value counts, when scales are searched for. */
#ifndef LLM_QUANT_WEIGHTS_H
#define LLM_QUANT_WEIGHTS_H

#include <stddef.h>
#include "cpu/dtype.h"

/* Weights of the block of type `t` that begins at x[at], to w[block size]. x[n] are the values around it, in pieces that begin at the tensor's first
 * element. importance: of the block's columns; NULL: only the values themselves say how much they count. */
void llm_block_weights(enum llm_dtype t, const float *x, size_t n, size_t at, const float *importance, float *w);

#endif
