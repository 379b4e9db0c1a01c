/* How well a model predicts a text. */
#ifndef LLM_MEASURE_QUALITY_H
#define LLM_MEASURE_QUALITY_H

#include "infer/engine.h"

struct llm_quality_text {
    const int32_t *ids;          /* [n] */
    const uint8_t *mask;         /* [n], or NULL; tokens with 0 are read and not scored */
    int64_t n;
    const uint64_t *ends;        /* [n_ends] where documents end, ascending, at most n; tokens after the last end form a document too */
    size_t n_ends;
};
struct llm_quality {
    int64_t tokens;              /* scored: every one but the first of a document */
    double nats, nats_error;     /* per token, and the standard error of that mean (measure/stats.h) */
    double perplexity;           /* e^nats */
    double bytes;                /* of the text of the scored tokens; special tokens have none; NaN without a tokenizer */
    double bits_per_byte, bits_per_byte_error;
};
/* Each document by itself: its tokens but the first, given what stands before them in it, in windows as llm_score makes them (infer/score.h).
 * At least one document must have two tokens. 0; 1 when a signal was caught; -1. */
int llm_quality_of(struct llm_engine *g, const struct llm_quality_text *text, struct llm_quality *q, struct llm_err *e) LLM_MUST_CHECK;

#endif
