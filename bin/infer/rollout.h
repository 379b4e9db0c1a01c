/* llm-infer --rollout: completions as lines that llm-train learns from (formats/rollouts.md). */
#ifndef LLM_BIN_INFER_ROLLOUT_H
#define LLM_BIN_INFER_ROLLOUT_H

#include "bin/infer/infer.h"

/* What all rollouts of a run say of themselves. Zero-initialise; release either way. */
struct rollout {
    json_t *common;   /* members that follow those of the completion */
    int64_t groups;   /* prompts of the whole input */
    int64_t step;     /* training steps that the model has had */
};
/* Takes the model's fingerprint and step. `groups`: prompts of the input. */
int rollout_open(struct rollout *r, struct session *s, int64_t groups, struct llm_err *e) LLM_MUST_CHECK;
void rollout_release(struct rollout *r);
/* Adds the members of a completion of prompt number `group` to `o`. 0 or -1. */
int rollout_put(const struct rollout *r, const struct llm_completion *c, int64_t group, json_t *o, struct llm_err *e) LLM_MUST_CHECK;

#endif
