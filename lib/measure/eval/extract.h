/* The answer in a generated text, by regular expressions (PCRE2, UTF-8). */
#ifndef LLM_MEASURE_EVAL_EXTRACT_H
#define LLM_MEASURE_EVAL_EXTRACT_H

#include "base/json.h"

struct llm_extract;
/* From a task's "extract" (a pattern: its only group, the first of several groups that is not empty, or without groups all of the match is the
 * answer), "extract_last" (the last match instead of the first), "ignore" (patterns whose matches are removed from the answer, one pattern after
 * another) and "ignore_case": as lm-eval's filter `regex` and its exact_match, with Python's re. NULL: `e`. The caller destroys it. */
struct llm_extract *llm_extract_create(const json_t *task, struct llm_err *e) LLM_MUST_CHECK;
void llm_extract_destroy(struct llm_extract *x);
/* Appends the answer, without white space at its ends, to `out`. 1; 0 if the text has none; -1. */
int llm_extract_answer(const struct llm_extract *x, const char *text, size_t n, struct llm_buf *out, struct llm_err *e) LLM_MUST_CHECK;
/* The same for a reference answer. Where the pattern does not match, the whole text is normalised. 0 or -1. */
int llm_extract_gold(const struct llm_extract *x, const char *text, size_t n, struct llm_buf *out, struct llm_err *e) LLM_MUST_CHECK;

#endif
