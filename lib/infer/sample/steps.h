/* The rows that sampler.c lists, one file each. */
#ifndef LLM_INFER_SAMPLE_STEPS_H
#define LLM_INFER_SAMPLE_STEPS_H

#include "infer/sample/sampler.h"

/* In the order of application. */
#define LLM_SAMPLE_STEPS(X) \
    X(logit_bias) \
    X(penalties) \
    X(top_k) \
    X(typical) \
    X(top_p) \
    X(min_p) \
    X(temperature)

#define LLM_SAMPLE_DECLARED(name) extern const struct llm_sample_step llm_sample_##name;
LLM_SAMPLE_STEPS(LLM_SAMPLE_DECLARED)

#endif
