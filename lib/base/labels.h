/* Names of classes, numbered from 0 in the order in which they were added. */
#ifndef LLM_BASE_LABELS_H
#define LLM_BASE_LABELS_H

#include "base/json.h"

#define LLM_MAX_LABELS (1 << 20)
struct llm_labels { json_t *names, *numbers; }; /* a list; name → number. NULL: none yet */
void llm_labels_release(struct llm_labels *l);
int64_t llm_labels_count(const struct llm_labels *l);
const char *llm_labels_name(const struct llm_labels *l, int64_t i);
/* The number of a name, or -1. */
int64_t llm_labels_find(const struct llm_labels *l, const char *name);
/* The number of a name, which is added if it is new. -1: memory is short, or there are LLM_MAX_LABELS already. */
int64_t llm_labels_add(struct llm_labels *l, const char *name, struct llm_err *e) LLM_MUST_CHECK;
/* Appends the names to a buffer, as a JSON list. */
int llm_labels_to_text(const struct llm_labels *l, struct llm_buf *out, struct llm_err *e) LLM_MUST_CHECK;
/* Fills *l, which must be empty, from a JSON list of distinct names. */
int llm_labels_from_text(struct llm_labels *l, const char *text, struct llm_err *e) LLM_MUST_CHECK;
/* Fills *l, which must be empty, with the names of `from`, sorted by their bytes. */
int llm_labels_sorted(struct llm_labels *l, const struct llm_labels *from, struct llm_err *e) LLM_MUST_CHECK;

#endif
