/* Shared beginnings: an index of the caches of prompts that were read, a radix tree over their tokens. A prompt that begins like one of them takes
 * the pages of the longest common beginning, and only the rest is computed. The bits of a token do not depend on how a prompt is cut into passes, so
 * results are the same with and without.
 *
 * A node stands for a beginning and has a cache of it, whose pages it shares with its parent and with whoever uses it. The tree holds a limited
 * number of pages, as a page takes its whole memory however few of its positions are used. Beyond the limit, leaves are removed, the least recently
 * used first. */
#ifndef LLM_INFER_PREFIX_H
#define LLM_INFER_PREFIX_H

#include "infer/kv.h"

struct llm_prefix_node;
struct llm_prefix {
    struct llm_kv_pool *pool;
    struct llm_prefix_node *root;
    int64_t pages, max_pages; /* stored: each once, however many beginnings share it */
    int64_t nodes;
    uint64_t clock;           /* orders uses */
    uint64_t version;         /* changes when something was stored or removed */
};
/* Whether the caches of a pool can be cut back to any beginning, so that an index of them is possible: not those with a recurrent state. */
bool llm_prefix_possible(const struct llm_kv_pool *pool);
/* Zero-initialise `x`; release it either way, before the pool. */
int llm_prefix_init(struct llm_prefix *x, struct llm_kv_pool *pool, int64_t max_pages, struct llm_err *e) LLM_MUST_CHECK;
void llm_prefix_release(struct llm_prefix *x);
/* How many of the n tokens at the beginnings of two texts are the same. */
int64_t llm_prefix_common(const int32_t *a, const int32_t *b, int64_t n);
/* Length of the longest beginning of ids[0..n) that is stored. */
int64_t llm_prefix_match(const struct llm_prefix *x, const int32_t *ids, int64_t n);
/* An empty cache becomes that of the first n tokens of `ids`, n ≤ llm_prefix_match. 0 or -1. */
int llm_prefix_take(struct llm_prefix *x, struct llm_kv *kv, const int32_t *ids, int64_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Stores the beginning that a cache holds: all of its tokens. The cache must be of plain keys and values (no adapters, nothing evicted). 0 or -1. */
int llm_prefix_put(struct llm_prefix *x, const struct llm_kv *kv, struct llm_err *e) LLM_MUST_CHECK;
/* Removes leaves until at most `max_pages` pages are stored. */
void llm_prefix_shrink(struct llm_prefix *x, int64_t max_pages);
/* Removes the least recently used leaf whose pages nobody else uses, which frees them. false: there is none. */
bool llm_prefix_free(struct llm_prefix *x);
/* Calls `visit` for every beginning that at least two stored ones continue, of `min` tokens or more. Returns the first result that is not 0, or 0. */
int llm_prefix_shared(const struct llm_prefix *x, int64_t min, int (*visit)(void *arg, const struct llm_kv *kv), void *arg);

#endif
