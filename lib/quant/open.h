/* Parameters whose values are changed in place. */
#ifndef LLM_QUANT_OPEN_H
#define LLM_QUANT_OPEN_H

#include "model/weights/model.h"

/* The parameter's values in memory of their own, in F32, which becomes its type; packed forms are discarded. NULL: see `e`. */
float *llm_param_open(struct llm_param *p, struct llm_err *e) LLM_MUST_CHECK;

#endif
