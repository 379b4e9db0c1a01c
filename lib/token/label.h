/* Tokens as labels for people: in pictures and tables. */
#ifndef LLM_TOKEN_LABEL_H
#define LLM_TOKEN_LABEL_H

#include "token/tokenizer.h"

/* Appends what `id` puts into a text, on one line and in UTF-8: a space becomes U+2423 (open box), control characters and bytes that are not UTF-8
 * become escapes (\n, \t, \xE4), an id that puts nothing becomes its number in angle brackets. */
int llm_token_label(const struct llm_tokenizer *t, int32_t id, struct llm_buf *out, struct llm_err *e) LLM_MUST_CHECK;

#endif
