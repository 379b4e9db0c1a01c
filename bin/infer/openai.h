/* llm-infer --jsonl: lines of OpenAI's batches, {"custom_id": …, "url": …, "body": {…}}, and their answers. */
#ifndef LLM_BIN_INFER_OPENAI_H
#define LLM_BIN_INFER_OPENAI_H

#include "bin/infer/tools.h"

/* What an answer repeats of its request, and its choices so far. Zero-initialise. */
struct openai {
    bool is;                   /* the line is such a request */
    bool chat;                 /* it asks for a message, not for a text */
    bool logprobs;
    char *model;               /* as the request names it; NULL: it does not */
    json_t *choices;
    int64_t made;              /* tokens of the choices */
};
void openai_release(struct openai *r);
/* If *object is such a request, a line of ours with the same meaning takes its place. A member of the request that is not understood is refused, by
 * name. 0 or -1. */
int openai_take(struct openai *r, json_t **object, struct llm_err *e) LLM_MUST_CHECK;
/* Adds a completion to the choices; `t`: the tools that it may call. `log_probs` is stolen; NULL: none were asked for. 0 or -1. */
int openai_choice(struct openai *r, const struct session *s, const struct tools *t, const struct llm_completion *c, json_t *log_probs,
                  struct llm_err *e) LLM_MUST_CHECK;
/* The answer with all choices; `id` is the request's custom_id, `prompt` its number among random numbers, which names the answer. NULL: see `e`. */
json_t *openai_answer(const struct openai *r, const struct session *s, const json_t *id, uint64_t prompt, int64_t prompt_tokens, struct llm_err *e)
    LLM_MUST_CHECK;
/* The answer to a request that cannot be used, in place of {"id": …, "error": …}. NULL: see `e`. */
json_t *openai_error(const json_t *id, const char *text, struct llm_err *e) LLM_MUST_CHECK;

#endif
