/* Prompts that a run of reinforcement samples completions of: JSON Lines as llm-infer --jsonl reads them, in memory. */
#ifndef LLM_TRAIN_PROMPTS_H
#define LLM_TRAIN_PROMPTS_H

#include "base/json.h"
#include "model/model.h"
#include "token/chat/find.h"

struct llm_asked {
    json_t *object;     /* "id" first, then what the line carries besides the prompt */
    int32_t *ids;
    int64_t n;
    uint64_t key;       /* of its random numbers (llm_draw_prompt) */
    bool chat;          /* a conversation: ends of turns end the completion */
};
struct llm_prompts {
    struct llm_asked *v;
    size_t n, room;
    struct llm_chat chat;       /* the template of lines with "messages"; empty: there is none */
    struct llm_err no_chat;     /* then why */
    int32_t ends[4];            /* tokens that end the assistant's turn */
    size_t n_ends;
};
/* Reads all lines of `path`: "prompt" (a text), "ids" (a list) or "messages" (a conversation, by the chat template of `from`, a model's path). A
 * prompt must leave room for a token within `context`. Options of sampling in a line are refused: all completions are drawn alike. EX_DATAERR names
 * the line. Zero-initialise; release either way. */
int llm_prompts_read(struct llm_prompts *p, const char *path, const struct llm_model *m, const char *from, int64_t context, struct llm_err *e)
    LLM_MUST_CHECK;
void llm_prompts_release(struct llm_prompts *p);

#endif
