/* Experts that the ranks of a group divide (expert parallelism). The rows of different ranks are of different gradient shards, which are added in an
 * order of their own (train/shards.h). So a rank keeps the gradients of its experts apart for each rank whose rows they are of. */
#ifndef LLM_TENSOR_EXPERTS_H
#define LLM_TENSOR_EXPERTS_H

#include "tensor/tensor.h"

/* Floats from one gradient of a parameter to the next, where it has several. */
static inline size_t llm_grad_stride(const struct llm_param *p) { return ((size_t)llm_param_count(p) + 15) / 16 * 16; }
/* The gradient by the rows of rank `number` of the group, or by part `number` of the rows (tensor/sequence.h), or, with parts and ranks, by part
 * `number` of all parts, rank after rank. That of 0 is p->grad itself. NULL: the expert is frozen. */
static inline float *llm_expert_grad(const struct llm_param *p, int number) { return p->grad ? p->grad + (size_t)number * llm_grad_stride(p) : NULL; }

#endif
