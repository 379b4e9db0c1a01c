/* Log-probabilities of continuations, many at once. What continuations have in common at their beginning is computed once: the context of an item's
 * choices, and what all items of a group begin with (examples). The results do not depend on how continuations are grouped. */
#ifndef LLM_MEASURE_EVAL_CONTINUATIONS_H
#define LLM_MEASURE_EVAL_CONTINUATIONS_H

#include "infer/engine.h"

struct llm_continuation {
    const int32_t *ids;        /* [n] context and continuation; borrowed */
    int64_t n, first;          /* ids[first..n) are scored; 1 ≤ first < n */
    int64_t family;            /* continuations of one item have the same; they are neighbours */
    /* Results: */
    double log_prob;           /* Σ log p(ids[i] | ids[0..i)), i in [first, n) */
    bool greedy;               /* each scored token is the most likely one, of equals the lowest id */
};

struct llm_continuations {
    struct llm_engine *engine; /* borrowed */
    struct llm_kv base;        /* the beginning of the last group */
    double least, greatest;    /* log-probability of a token so far: equal if the model gives every token the same */
    int64_t tokens;            /* scored so far */
};
void llm_continuations_init(struct llm_continuations *c, struct llm_engine *g);
void llm_continuations_release(struct llm_continuations *c);
/* Scores v[0..n), none longer than the engine's context. 0; 1 if a signal was caught; -1. */
int llm_continuations_score(struct llm_continuations *c, struct llm_continuation *v, size_t n, struct llm_err *e) LLM_MUST_CHECK;

#endif
