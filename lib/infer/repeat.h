/* Drafts from the text itself (prompt lookup, Saxena 2023): what followed the longest earlier occurrence of its last tokens. */
#ifndef LLM_INFER_REPEAT_H
#define LLM_INFER_REPEAT_H

#include <stdint.h>

/* The text is ids[0..n) and then `last`. Fills out[0..wanted) and returns `wanted`, or returns 0 if fewer than 3 tokens at the end have occurred
 * before. Of occurrences that are as long the latest counts; a text that repeats itself goes on repeating. Occurrences that `except` follows do not
 * count; -1: all do. */
int64_t llm_repeat_draft(const int32_t *ids, int64_t n, int32_t last, int32_t except, int64_t wanted, int32_t *out);

#endif
