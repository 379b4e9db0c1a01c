/* Which pages of mapped weights stay in memory. */
#ifndef LLM_CPU_PAGES_H
#define LLM_CPU_PAGES_H

#include "cpu/matmul.h"

/* So many rows of a weight were read by number, not by a product. Of a mapped weight that no product reads where it lies the pages are given back now
 * and then: each row has brought its neighbours along. */
void llm_weight_looked_up(const struct llm_weight *w, int64_t rows);

#endif
