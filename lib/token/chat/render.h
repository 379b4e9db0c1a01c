/* One rendering of a conversation, and the search for the assistant's text by several. */
#ifndef LLM_TOKEN_CHAT_RENDER_H
#define LLM_TOKEN_CHAT_RENDER_H

#include "token/chat/jinja.h"

struct llm_chat_request {
    const json_t *messages;
    size_t n;               /* the first n of them */
    const json_t *tools;    /* or NULL */
    const struct llm_chat_options *options; /* whose add_generation_prompt is not looked at */
    bool add_generation_prompt;
};
/* Whether the template marks the assistant's text by {% generation %}. */
bool llm_chat_marks_spans(const struct llm_chat_template *t);
int llm_chat_render_once(const struct llm_chat_template *t, const struct llm_chat_request *r, struct llm_buf *out, struct llm_chat_spans *spans,
                         struct llm_err *e);
/* A text as what it shares with another: its first `same` bytes are those of the other, then it has those of `rest`, and the two differ there or one
 * of them ends. So a long message that stands in both is kept once. */
struct llm_chat_cut { size_t same; struct llm_buf rest; };
/* Renders `r` compared with the n_whole bytes at `whole`. The caller releases cut->rest, which is empty on entry. */
int llm_chat_render_against(const struct llm_chat_template *t, const struct llm_chat_request *r, const char *whole, size_t n_whole,
                            struct llm_chat_cut *cut, struct llm_err *e);
/* As llm_chat_render, for a template without {% generation %}. */
int llm_chat_render_spans(const struct llm_chat_template *t, const struct llm_chat_request *r, struct llm_buf *out, struct llm_chat_spans *spans,
                          struct llm_err *e);
/* A copy of `messages` in which content that is a list of parts is one string, newlines between the parts, where the template does not take
 * lists in messages of that role. If options->image is set and the template takes lists, content that is a string becomes a list instead.
 * NULL: `e`; a part that is no text is EX_DATAERR. The caller releases it. */
json_t *llm_chat_join_parts(const struct llm_chat_template *t, const json_t *messages, const struct llm_chat_options *o, struct llm_err *e)
    LLM_MUST_CHECK;

#endif
