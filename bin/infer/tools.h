/* llm-infer --jsonl: "tools" of a line, "tool_choice" and "parallel_tool_calls"; calls of them in the answer. */
#ifndef LLM_BIN_INFER_TOOLS_H
#define LLM_BIN_INFER_TOOLS_H

#include "bin/infer/infer.h"
#include "token/chat/tools.h"

#define TOOLS_FINISH "tool_calls" /* finish_reason of an answer with calls */
struct tools {
    json_t *list;                     /* for the template; NULL: none */
    const struct llm_tool_form *form; /* of calls in the answer; NULL: none are looked for */
    bool always, many;                /* the answer must be a call; it may be several */
    char mark[96];                    /* what the prompt ends in if `always` */
    json_t *chosen;                   /* those that may be called */
};
void tools_release(struct tools *t);
/* Takes the members out of a line; the arguments of earlier calls in its messages get the form that the template wants. 0 or -1. */
int tools_take(struct tools *t, struct session *s, json_t *object, struct llm_err *e) LLM_MUST_CHECK;
/* Lets the answer's calls be what the schemas of the tools allow, unless the prompt has a constraint already. A constraint that was made counts as
 * the line's (constraints_drop). 0 or -1. */
int tools_constrain(struct tools *t, struct session *s, struct llm_prompt *p, struct llm_err *e) LLM_MUST_CHECK;
/* The assistant's message. *called: it has calls, under "tool_calls" as OpenAI's interface has them. NULL: see `e`. */
json_t *tools_message(const struct tools *t, const struct session *s, const struct llm_completion *c, bool *called, struct llm_err *e) LLM_MUST_CHECK;

#endif
