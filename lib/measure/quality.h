/* How well a model predicts a text. */
#ifndef LLM_MEASURE_QUALITY_H
#define LLM_MEASURE_QUALITY_H

#include "infer/engine.h"

struct llm_quality {
    int64_t tokens;              /* scored: every one but the first */
    double nats, nats_error;     /* per token, and the standard error of that mean (measure/stats.h) */
    double perplexity;           /* e^nats */
    double bytes;                /* of text behind the scored tokens; NaN without a tokenizer */
    double bits_per_byte, bits_per_byte_error;
};
/* ids[1..n) given what stands before each, in windows as llm_score makes them (infer/score.h). n ≥ 2. 0; 1 when a signal was caught; -1. */
int llm_quality_of(struct llm_engine *g, const int32_t *ids, int64_t n, struct llm_quality *q, struct llm_err *e) LLM_MUST_CHECK;

#endif
