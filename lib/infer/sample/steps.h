/* The rows that sampler.c lists, one file each. */
#ifndef LLM_INFER_SAMPLE_STEPS_H
#define LLM_INFER_SAMPLE_STEPS_H

#include "infer/sample/sampler.h"

extern const struct llm_sample_step llm_sample_logit_bias, llm_sample_penalties, llm_sample_top_k, llm_sample_typical, llm_sample_top_p,
    llm_sample_min_p, llm_sample_temperature;

#endif
