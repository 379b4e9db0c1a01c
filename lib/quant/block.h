/* Scales and codes of blocks (cpu/dtype/block.h): the search for those whose values are closest to given ones. */
#ifndef LLM_QUANT_BLOCK_H
#define LLM_QUANT_BLOCK_H

#include "cpu/kernels/fit.h"

/* How scales are chosen. RTN: from the range of each group's values. SEARCH: the scales with the least weighted squared error among several
 * candidates, refined by least squares. */
enum llm_block_effort { LLM_BLOCK_RTN, LLM_BLOCK_SEARCH };

/* A group's scale and offset before they are rounded, for x[n] with weights w[n] ≥ 0 that are not all 0, n a multiple of 16. */
struct llm_group_fit llm_group_fit(const struct llm_block_kind *kind, const float *x, const float *w, int n, enum llm_block_effort effort);

/* The code whose level is the nearest to x (in units of the scale). */
int llm_block_code(const struct llm_block_kind *kind, float x);
int llm_block_level(const struct llm_block_kind *kind, int code);
/* The value of code q in group g, to the bit as the type's decode function computes it. */
static inline float llm_block_value(const struct llm_block_kind *kind, const struct llm_block *b, int g, int q)
{
    return b->d * (float)b->scale[g] * (float)llm_block_level(kind, q) - b->least * (float)b->low[g];
}

/* Chooses scales and codes for x[size] with weights w[size] ≥ 0. A group whose weights are all 0 counts as if they were 1. */
void llm_block_choose(const struct llm_block_kind *kind, const float *x, const float *w, enum llm_block_effort effort, struct llm_block *b);
/* Values y with the least error are shorter than x: Σ w x y is Σ w x² less the error, so that each matrix would answer with too little. Makes the
 * scales of `b` larger, until both sums are equal, by a quarter at most; types whose scales are a list stay. */
void llm_block_stretch(const struct llm_block_kind *kind, const float *x, const float *w, struct llm_block *b);
/* What makes values y of n elements as long as x: Σ w x² / Σ w x y, in [1, 1.25]. */
float llm_block_shortness(const float *x, const float *y, const float *w, int n);
/* Chooses the integer scale, the integer offset and the codes of group g for x[group] with weights w[group]; the block's own scales stay. */
void llm_block_regroup(const struct llm_block_kind *kind, const float *x, const float *w, int g, struct llm_block *b);

#endif
