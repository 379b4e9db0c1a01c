/* Log-probabilities of the tokens of a text. */
#ifndef LLM_INFER_SCORE_H
#define LLM_INFER_SCORE_H

#include "infer/engine.h"

/* The prediction of a token from the tokens before it. */
struct llm_scored {
    double log_prob;
    double entropy;              /* of the predicted distribution, in nats; NaN unless llm_scorer.entropy */
};
typedef int llm_score_visit(void *arg, int64_t i, const struct llm_scored *s, struct llm_err *e);

struct llm_scorer {
    struct llm_engine *engine;
    const struct llm_kv *begin;  /* the tokens before the text; NULL: none */
    bool entropy;
    llm_score_visit *visit;      /* called in the order of the tokens */
    void *arg;
};
/* Scores ids[1..n) in order, given ids[0] and the tokens that the cache `begin` holds before it. A text longer than the context is
 * scored in windows of the context's length, each of which begins half a context after the previous one: every token is scored once and, except
 * in the first window, sees at least half a context. With `begin` the text must fit. 0; 1 if a signal was caught; -1. */
int llm_score(const struct llm_scorer *s, const int32_t *ids, int64_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Tokens [at, at + n) of a text, of which [skip, n) are scored. */
struct llm_score_part { int64_t at, n, skip; };
/* The windows in which llm_score reads a text of n tokens, one after another; the first after a zeroed `p`. False after the last. */
bool llm_score_next(int64_t context, int64_t n, struct llm_score_part *p);
/* Scores tokens [skip, n) of a window, skip ≥ 1, whose token 0 the visitor knows as token `first`. n is at most the context + 1: the last token is
 * then predicted and not read. 0, 1 or -1 as above. */
int llm_score_window(const struct llm_scorer *s, const int32_t *ids, int64_t n, int64_t first, int64_t skip, struct llm_err *e) LLM_MUST_CHECK;

#endif
