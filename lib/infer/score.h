/* Log-probabilities of the tokens of a text. */
#ifndef LLM_INFER_SCORE_H
#define LLM_INFER_SCORE_H

#include "infer/engine.h"

/* Receives token i, whose probability given the tokens before it is e^log_prob. */
typedef int llm_score_visit(void *arg, int64_t i, double log_prob, struct llm_err *e);
/* Scores ids[1..n) in order, given ids[0] and the tokens that the cache `begin` holds before it (NULL: none). A text longer than the context is
 * scored in windows of the context's length, each of which begins half a context after the previous one: every token is scored once and, except
 * in the first window, sees at least half a context. With `begin` the text must fit. 0; 1 if a signal was caught; -1. */
int llm_score(struct llm_engine *g, const struct llm_kv *begin, const int32_t *ids, int64_t n, llm_score_visit *visit, void *arg, struct llm_err *e)
    LLM_MUST_CHECK;

#endif
