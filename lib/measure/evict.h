/* Eviction: which keys of a cache a method keeps, and what attention loses by the others. Each head of keys keeps as many, but not the same ones. */
#ifndef LLM_MEASURE_EVICT_H
#define LLM_MEASURE_EVICT_H

#include "infer/kvfile.h"

enum llm_evict_method {
    LLM_EVICT_WINDOW, /* the last tokens */
    LLM_EVICT_SINKS,  /* the first tokens and the last ones (Xiao et al., 2023, "StreamingLLM") */
    /* The last tokens, and heavy hitters: at each traced query the token goes that got the least attention so far, of what was left then (Zhang et
     * al., 2023, "H2O", algorithm 1). Tokens before the first traced query begin with none. */
    LLM_EVICT_H2O,
    LLM_EVICT_SNAPKV, /* the last tokens, and those that got most attention from the last queries, neighbours with them (Li et al., 2024, "SnapKV") */
    LLM_N_EVICT
};
const char *llm_evict_word(int i); /* NULL after the last */
enum { LLM_EVICT_SINK_TOKENS = 4, LLM_EVICT_OBSERVED = 32, LLM_EVICT_POOL = 7 };

struct llm_evict {
    enum llm_evict_method method;
    int64_t keep;               /* rows of each head, at least 1 */
    int64_t sinks;              /* SINKS: first tokens, fewer than keep */
    int64_t recent;             /* H2O, SNAPKV: last tokens that are kept whatever they got, 1 ≤ recent ≤ keep */
};
/* A method with its default parameters for a budget. */
struct llm_evict llm_evict_of(enum llm_evict_method method, int64_t keep);

/* Sums over the held-out queries of one head. */
struct llm_evict_loss {
    int64_t layer, head;
    double lost;                /* probability of the evicted keys */
    double kl;                  /* KL(kept ‖ all) = -log of the probability of the kept ones, nats */
    double error, size;         /* squared distance of the output from that with all keys; its squared norm */
    int64_t queries;
};
/* What n methods lose in each head of the traced queries of the last `hold` tokens, when the keys before those tokens are evicted as the traced
 * queries before them say. losses: [rows of llm_kv_heads_rows, n]. 0 or -1: the model or the cache do not allow it. */
int llm_evict_losses(const struct llm_kv_file *f, const struct llm_evict *m, int64_t n, int64_t hold, struct llm_evict_loss *losses,
                     struct llm_err *e) LLM_MUST_CHECK;
/* Evicts all but m->keep rows of each head, as all traced queries say. The last token stays in every head. */
int llm_evict(struct llm_kv_file *f, const struct llm_evict *m, struct llm_err *e) LLM_MUST_CHECK;

#endif
