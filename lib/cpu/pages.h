/* Which pages of mapped weights stay in memory. */
#ifndef LLM_CPU_PAGES_H
#define LLM_CPU_PAGES_H

#include "cpu/matmul.h"

/* The rows ids[n] of a weight were read by number, not by a product. Of a mapped weight that no product reads where it lies their pages are given
 * back: each row has brought its neighbours along. */
void llm_weight_looked_up(const struct llm_weight *w, const int32_t *ids, int64_t n);

#endif
