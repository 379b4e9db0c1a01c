/* Conversations to tokens. */
#ifndef LLM_BIN_TOKENIZE_CHAT_H
#define LLM_BIN_TOKENIZE_CHAT_H

#include <time.h>
#include "token/chat/find.h"

struct chat_tokens { int32_t *ids; uint8_t *mask; size_t n, room, mask_room; }; /* mask 1: the assistant's */
/* Encodes a line of JSON: {"messages": [...], "tools": [...]} or the array alone. `prompt`: end with the generation prompt. `day`: the date that the
 * template's strftime_now formats; NULL: the function is not defined. */
int chat_encode(struct chat_tokens *c, const struct llm_chat *chat, const struct llm_tokenizer *t, const char *line, size_t n, bool prompt,
                const struct tm *day, struct llm_err *e) LLM_MUST_CHECK;
/* Appends tokens that all have the same mask. */
int chat_tokens_add(struct chat_tokens *c, const int32_t *ids, size_t n, uint8_t masked, struct llm_err *e) LLM_MUST_CHECK;
void chat_tokens_release(struct chat_tokens *c);

#endif
