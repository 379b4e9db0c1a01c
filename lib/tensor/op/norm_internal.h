/* What layernorm.c and rmsnorm.c share: gradients of gain and bias. */
#ifndef LLM_TENSOR_OP_NORM_INTERNAL_H
#define LLM_TENSOR_OP_NORM_INTERNAL_H

#include "tensor/tape.h"

/* Adds to gain's and bias's gradients (either may be NULL or frozen) in the canonical order. x is normalised in runs of `group` columns; mean (NULL:
 * 0) and rstd are [rows][cols / group]. */
void llm_norm_params_back(struct llm_ctx *c, const struct llm_tensor *x, const struct llm_tensor *y, struct llm_param *gain, struct llm_param *bias,
                          const float *mean, const float *rstd, int64_t group);

#endif
