/* Where traced queries look: attention of a cache, computed again from its queries and keys. */
#ifndef LLM_MEASURE_LOOK_H
#define LLM_MEASURE_LOOK_H

#include "infer/kvfile.h"

enum { LLM_LOOK = 64 }; /* queries that are looked at together */

/* Whether the layer has keys that queries look at: those of Hyena are summed up by convolutions. */
bool llm_look_attends(const struct llm_kv_file *f, int64_t layer);
/* Channels of a value. With latent attention it is the first channels of the key. */
int64_t llm_look_value_width(const struct llm_kv_file *f, int64_t layer);
/* Refuses caches without traced queries, layers without keys, and models whose attention depends on more than queries and keys. 0 or -1. */
int llm_look_check(const struct llm_kv_file *f, int64_t layer, struct llm_err *e) LLM_MUST_CHECK;
/* The head of keys that a head of queries reads. */
int64_t llm_look_kv_head(const struct llm_kv_file *f, int64_t layer, int64_t head);
/* All rows of a head's keys ('k') or values ('v'), decoded into out [rows, d]. */
void llm_look_decode(const struct llm_kv_file *f, char what, int64_t layer, int64_t kv_head, float *out);
/* Probabilities of n ≤ LLM_LOOK traced queries of a head, from number `first` on, over keys [rows, d_k]: out [n, rows], 0 for keys out of sight.
 * Traced query i is that of token f->n - f->n_queries + i. Products are computed in FP32 as attention computes them, the softmax in double. 0, or -1
 * when memory is short. May be called inside a work item. */
int llm_look(const struct llm_kv_file *f, int64_t layer, int64_t head, const float *keys, int64_t first, int64_t n, float *out) LLM_MUST_CHECK;
/* The rows of a head's keys that token t sees: [*from, *to). */
void llm_look_seen(const struct llm_kv_file *f, int64_t layer, int64_t kv_head, int64_t t, int64_t *from, int64_t *to);

#endif
