/* Which pages of mapped weights stay in memory. */
#ifndef LLM_CPU_PAGES_H
#define LLM_CPU_PAGES_H

#include "cpu/matmul.h"

/* To be called after the rows ids[n] of a weight were looked up (embeddings). If the weight is mapped and no product reads it in place, the pages of
 * these rows are released: the kernel mapped pages around each row too, which would add up. */
void llm_weight_looked_up(const struct llm_weight *w, const int32_t *ids, int64_t n);

/* Releases the pages of `bytes` bytes of a mapped weight from byte `from` on; later accesses read them from the file again. At the weight's ends
 * the pages of its neighbours in the file that were mapped along with them are released too. */
void llm_weight_release_pages(const struct llm_weight *w, size_t from, size_t bytes);

#endif
