/* llm-infer --jsonl --prefix-cache: caches of beginnings that prompts share, from one run to the next, as .kv files of a folder. */
#ifndef LLM_BIN_INFER_PREFIX_CACHE_H
#define LLM_BIN_INFER_PREFIX_CACHE_H

#include "bin/infer/infer.h"

struct prefix_cache;
/* Reads the names of the folder of --prefix-cache, which is made if it is absent. NULL: see `e`. `index` is borrowed. */
struct prefix_cache *prefix_cache_open(struct session *s, struct llm_prefix *index, struct llm_err *e) LLM_MUST_CHECK;
void prefix_cache_close(struct prefix_cache *c); /* NULL is fine */
/* Puts the longest beginning of the prompt that a file holds into the index, if that has less of it. A file that cannot be used is named in a
 * warning. 0, or -1 when memory is short. */
int prefix_cache_find(struct prefix_cache *c, const int32_t *ids, int64_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Writes the beginnings of the index that prompts share, and then removes the files that were not used for longest until the folder's files have at
 * most --prefix-cache-size bytes. 0 or -1. */
int prefix_cache_save(struct prefix_cache *c, struct llm_err *e) LLM_MUST_CHECK;

#endif
