/* Conversations to tokens, with a mask over the tokens of the assistant's turns. */
#ifndef LLM_TOKEN_CHAT_CONVERSATION_H
#define LLM_TOKEN_CHAT_CONVERSATION_H

#include <stdint.h>
#include <time.h>
#include "token/chat/find.h"

/* Takes n tokens and their mask. 0 or -1. */
typedef int llm_conversation_sink(void *arg, const int32_t *ids, const uint8_t *mask, size_t n, struct llm_err *e);
struct llm_conversation {
    int32_t *ids;
    uint8_t *mask;              /* 1: a token of the assistant's turn, the end of the turn included; 0: another */
    size_t n, room, mask_room;
    bool numbered;              /* set by the caller: a token of the assistant has the number of its turn, from 1 to at most 255, instead of 1 */
    llm_conversation_sink *sink; /* set by the caller, or NULL: takes the tokens of a conversation of 1 MiB and more in parts; n is 0 afterwards */
    void *sink_arg;
    struct llm_json_long json;  /* of llm_conversation_line */
};
/* Replaces the tokens by those of a conversation as the template renders it. messages, tools: as of llm_chat_render. `prompt`: end with the
 * generation prompt. `day`: the date that the template's strftime_now returns, or NULL. */
int llm_conversation_encode(struct llm_conversation *c, const struct llm_chat *chat, const struct llm_tokenizer *t, const json_t *messages,
                            const json_t *tools, bool prompt, const struct tm *day, struct llm_err *e) LLM_MUST_CHECK;
/* The same for a line of JSON: {"messages": [...], "tools": [...]}, or the array of messages. The line is used up: long strings are decoded in place,
 * and a long line is released once it is rendered. */
int llm_conversation_line(struct llm_conversation *c, const struct llm_chat *chat, const struct llm_tokenizer *t, struct llm_buf *line, bool prompt,
                          const struct tm *day, struct llm_err *e) LLM_MUST_CHECK;
/* Appends tokens that all have the same mask. */
int llm_conversation_add(struct llm_conversation *c, const int32_t *ids, size_t n, uint8_t masked, struct llm_err *e) LLM_MUST_CHECK;
/* Appends a plain prompt and a plain reply as one text: with what the tokenizer puts around texts, and an end token unless the reply has one.
 * *first: the first token of the text that is not of the prompt alone. Tokens that span both are the reply's. The mask is 0. */
int llm_conversation_plain(struct llm_conversation *c, const struct llm_tokenizer *t, const json_t *prompt, const json_t *reply, size_t *first,
                           struct llm_err *e) LLM_MUST_CHECK;
void llm_conversation_release(struct llm_conversation *c);

#endif
