/* Parameters whose values are changed in place. */
#ifndef LLM_QUANT_OPEN_H
#define LLM_QUANT_OPEN_H

#include "model/weights/model.h"

/* The parameter's values in F32, to out [llm_param_count]. Pages of a mapped file are released as they are read. */
void llm_param_decode(const struct llm_param *p, float *out);
/* The parameter's values in memory of their own, in F32, which becomes its type; packed forms are discarded. NULL: see `e`. */
float *llm_param_open(struct llm_param *p, struct llm_err *e) LLM_MUST_CHECK;

#endif
