/* Completions as lines of JSON that training learns from (formats/rollouts.md). */
#ifndef LLM_INFER_ROLLOUT_H
#define LLM_INFER_ROLLOUT_H

#include "base/json.h"
#include "infer/generate.h"

/* What all rollouts of one set of weights say of themselves. Zero-initialise; release either way. */
struct llm_rollouts {
    json_t *common;   /* members that follow those of the completion */
    int64_t groups;   /* prompts of the whole input */
    int64_t step;     /* training steps that the weights have had */
};
/* Takes the fingerprint of the engine's model, which becomes known if it is not. `groups`: prompts of the input. */
int llm_rollouts_open(struct llm_rollouts *r, struct llm_engine *g, int64_t step, int64_t groups, struct llm_err *e) LLM_MUST_CHECK;
void llm_rollouts_release(struct llm_rollouts *r);
/* Adds the members of a completion of prompt number `group` to `o`. 0 or -1. */
int llm_rollouts_put(const struct llm_rollouts *r, const struct llm_completion *c, int64_t group, json_t *o, struct llm_err *e) LLM_MUST_CHECK;

#endif
