/* The most likely tokens of a row of logits. */
#ifndef LLM_INFER_MOST_H
#define LLM_INFER_MOST_H

#include <stdbool.h>
#include <stdint.h>

/* Whether token a comes after token b in that order: its logit is smaller, or equal and its id higher. */
bool llm_is_after(const float *logits, int32_t a, int32_t b);
/* ids[k]: the k tokens with the largest of n logits, k ≤ n, the largest first, of equals the lowest id. */
void llm_most_likely(const float *logits, int64_t n, int64_t k, int32_t *ids);

#endif
