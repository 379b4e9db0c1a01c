/* Names of classes, numbered in the order in which they came. */
#ifndef LLM_BASE_LABELS_H
#define LLM_BASE_LABELS_H

#include "base/json.h"

#define LLM_MOST_LABELS (1 << 20)
struct llm_labels { json_t *names, *numbers; }; /* a list; name → number. NULL: none yet */
void llm_labels_release(struct llm_labels *l);
int64_t llm_labels_count(const struct llm_labels *l);
const char *llm_labels_name(const struct llm_labels *l, int64_t i);
/* The number of a name, or -1. */
int64_t llm_labels_find(const struct llm_labels *l, const char *name);
/* The same; a new name is added. -1: memory is short, or there are too many. */
int64_t llm_labels_add(struct llm_labels *l, const char *name, struct llm_err *e) LLM_MUST_CHECK;
/* As JSON text, appended to a buffer. */
int llm_labels_to_text(const struct llm_labels *l, struct llm_buf *out, struct llm_err *e) LLM_MUST_CHECK;
/* *l (empty) becomes the list of a JSON text: names, each once. */
int llm_labels_from_text(struct llm_labels *l, const char *text, struct llm_err *e) LLM_MUST_CHECK;
/* *l (empty) becomes those of `from`, sorted by their bytes. */
int llm_labels_sorted(struct llm_labels *l, const struct llm_labels *from, struct llm_err *e) LLM_MUST_CHECK;

#endif
