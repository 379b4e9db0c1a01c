/* What the filters share: their rows. */
#ifndef LLM_TOKEN_CHAT_FILTERS_H
#define LLM_TOKEN_CHAT_FILTERS_H

#include "token/chat/jinja.h"

enum { MAX_FILTER_ARGUMENTS = 4 };
struct filter {
    const char *name, *params; /* params: as llm_jinja_bind has them, at most MAX_FILTER_ARGUMENTS */
    struct value (*run)(struct work *w, struct value v, const struct value *arg);
};
extern const struct filter llm_jinja_sequence_filters[]; /* ends with a NULL name */
/* select, reject, selectattr, rejectattr: a test by name with its own arguments. */
bool llm_jinja_selects(const char *name);
struct value llm_jinja_select(struct work *w, const char *name, struct value v, const struct call *c);
/* map(attribute=…, default=…) or map('filter', …) */
struct value llm_jinja_map(struct work *w, struct value v, const struct call *c);

#endif
