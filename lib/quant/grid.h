/* Blocks of grid types (cpu/dtype/grid.h): the search for scales, points and signs whose values are closest to given ones. */
#ifndef LLM_QUANT_GRID_H
#define LLM_QUANT_GRID_H

#include "cpu/dtype/grid.h"
#include "quant/block.h"

/* Chooses for x[256] with weights w[256] ≥ 0. A group whose weights are all 0 counts as if they were 1. For given scales all values
 * together take the best of all points of the grid. */
void llm_grid_choose(const struct llm_grid_kind *kind, const float *x, const float *w, enum llm_block_effort effort, struct llm_grid_block *b);
/* Chooses signs and points of values [8k, 8k + 8) for x[8] with weights w[8] anew; the block's scales stay. */
void llm_grid_choose_eight(const struct llm_grid_kind *kind, const float *x, const float *w, int k, struct llm_grid_block *b);
/* As llm_block_stretch. */
void llm_grid_stretch(const struct llm_grid_kind *kind, const float *x, const float *w, struct llm_grid_block *b);

#endif
