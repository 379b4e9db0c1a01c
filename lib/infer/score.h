/* Log-probabilities of the tokens of a text. */
#ifndef LLM_INFER_SCORE_H
#define LLM_INFER_SCORE_H

#include "infer/engine.h"

/* Token i has probability e^log_prob given what stands before it. */
typedef int llm_score_visit(void *arg, int64_t i, double log_prob, struct llm_err *e);
/* Scores ids[1..n) given ids[0] and, before it, what `begin` holds (NULL: nothing), in order. A text longer than the context is worked on in windows
 * of the context's length, each beginning half a context after the one before: every token is scored once and, but for the first window, sees at
 * least half a context. With `begin` it must fit. 0; 1 when a signal was caught; -1. */
int llm_score(struct llm_engine *g, const struct llm_kv *begin, const int32_t *ids, int64_t n, llm_score_visit *visit, void *arg, struct llm_err *e)
    LLM_MUST_CHECK;

#endif
