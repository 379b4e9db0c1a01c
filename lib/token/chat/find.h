/* Where a model's chat template is: what the user names, else what came with the model or tokenizer. */
#ifndef LLM_TOKEN_CHAT_FIND_H
#define LLM_TOKEN_CHAT_FIND_H

#include "token/chat/chat.h"
#include "token/tokenizer.h"

struct llm_chat {
    struct llm_chat_template *template;
    char *text;      /* what it was made from */
    char *bos, *eos; /* bos_token, eos_token; NULL where there is none */
    const char *image; /* set by the caller: as of llm_chat_options. Borrowed */
};
/* spec: the name of a built-in template, or a file that holds one (Jinja, or JSON with "chat_template"). NULL: the one that belongs to `path`, a
 * folder or a file: its metadata key llm.chat_template, else chat_template.jinja or tokenizer_config.json in the folder. bos and eos: of that
 * tokenizer_config.json, else of `t` (may be NULL). A missing template is EX_DATAERR. Zero-initialise; release also after failure. */
int llm_chat_find(struct llm_chat *c, const char *spec, const char *path, const struct llm_tokenizer *t, struct llm_err *e) LLM_MUST_CHECK;
void llm_chat_release(struct llm_chat *c);
/* The tokens that end the assistant's turn: those that the template puts right after what the assistant said. Appends to `ids` (room for 4). */
size_t llm_chat_turn_ends(const struct llm_chat *c, const struct llm_tokenizer *t, int32_t ids[4]);

#endif
