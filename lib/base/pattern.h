/* Shell patterns (fnmatch) that choose by name: parameters, tensors. */
#ifndef LLM_BASE_PATTERN_H
#define LLM_BASE_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

/* A list that can be copied; the texts are borrowed. */
enum { LLM_MAX_PATTERNS = 32 };
struct llm_patterns { size_t n; const char *v[LLM_MAX_PATTERNS]; };
/* Whether `name` matches one of n patterns. */
bool llm_pattern_any(const char *const *v, size_t n, const char *name);

#endif
