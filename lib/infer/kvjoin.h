/* Caches cut and joined. */
#ifndef LLM_INFER_KVJOIN_H
#define LLM_INFER_KVJOIN_H

#include "infer/kvfile.h"

/* Keeps tokens [from, to) of a cache, 0 ≤ from < to ≤ f->n, with their positions and the traced queries among them. Fails (65) if the cache is
 * evicted, or holds a recurrent state and would not stay whole. */
int llm_kv_file_cut(struct llm_kv_file *f, int64_t from, int64_t to, struct llm_err *e) LLM_MUST_CHECK;
/* The tokens of n ≥ 1 caches of one model, one after another at positions from 0 on: keys of tokens that had other positions are rotated to the new
 * ones. The traced queries are those of the last cache. `out` is zero-initialised; release it either way. Fails (65) if the caches are of different
 * models or types, are evicted, hold recurrent states, or have tokens whose positions would change although the model cannot rotate keys to others.
 * *rotated: how many tokens got another position. */
int llm_kv_file_join(struct llm_kv_file *out, const struct llm_kv_file *parts, int64_t n, int64_t *rotated, struct llm_err *e) LLM_MUST_CHECK;

#endif
