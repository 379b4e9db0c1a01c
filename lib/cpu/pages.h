/* Which pages of mapped weights stay in memory. */
#ifndef LLM_CPU_PAGES_H
#define LLM_CPU_PAGES_H

#include "cpu/matmul.h"

/* To be called after the rows ids[n] of a weight were looked up (embeddings). If the weight is mapped and no product reads it in place, the pages of
 * these rows are released: the kernel mapped pages around each row too, which would add up. */
void llm_weight_looked_up(const struct llm_weight *w, const int32_t *ids, int64_t n);

#endif
