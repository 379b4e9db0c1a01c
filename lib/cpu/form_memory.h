/* Memory for packed forms of weights: huge pages, which small forms share, because a product that reads a form once a token spends a fifth of its
 * time on the address translation of small ones. */
#ifndef LLM_CPU_FORM_MEMORY_H
#define LLM_CPU_FORM_MEMORY_H

#include <stddef.h>

/* `bytes` aligned to 64; NULL if memory is short. Pages are committed when they are first written, in units of a huge page. */
void *llm_form_memory_create(size_t bytes);
/* Releases the unused rest of the current chunk to the operating system: for callers that expect no further allocations. */
void llm_form_memory_trim(void);
void llm_form_memory_destroy(void *p); /* NULL is fine */

#endif
