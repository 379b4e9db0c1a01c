/* The steps of sample/table.h, one file each. */
#ifndef LLM_INFER_SAMPLE_STEPS_H
#define LLM_INFER_SAMPLE_STEPS_H

#include "infer/sample/sampler.h"

#define LLM_SAMPLE_DECLARED(name) extern const struct llm_sample_step llm_sample_##name;
LLM_SAMPLE_TABLE(LLM_SAMPLE_DECLARED, LLM_SAMPLE_NO_OPTION, LLM_SAMPLE_NO_OPTION, , )

#endif
