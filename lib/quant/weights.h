/* How much an error of each value counts, when scales are searched for. */
#ifndef LLM_QUANT_WEIGHTS_H
#define LLM_QUANT_WEIGHTS_H

#include <stddef.h>
#include "cpu/dtype.h"

enum { LLM_BLOCK_AROUND = 256 }; /* values whose mean square stands for the size of each of them; a multiple of every block size */

/* The mean squares of each LLM_BLOCK_AROUND of x[n], the last ones may be fewer. */
void llm_block_squares(const float *x, size_t n, float *square);

/* Weights of a block of type `t` whose values are x, to w[block size]. square: the mean square of the values around it. importance: of the block's
 * columns; NULL: only the values themselves say how much they count. */
void llm_block_weights(enum llm_dtype t, const float *x, float square, const float *importance, float *w);

#endif
