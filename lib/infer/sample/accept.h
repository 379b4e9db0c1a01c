/* Drafts of a smaller model, accepted as often as possible (Leviathan et al. 2023; Chen et al. 2023): a token drafted with the probability q is
 * accepted with min(1, p / q), p its probability under the model; else a token is drawn from max(0, p - q). Tokens then have the model's
 * distribution, but other tokens are chosen than without drafts. */
#ifndef LLM_INFER_SAMPLE_ACCEPT_H
#define LLM_INFER_SAMPLE_ACCEPT_H

#include "infer/sample/sampler.h"

/* What a draft was drawn from: probabilities of the tokens that filters left. Zero-initialise. */
struct llm_drafted {
    struct llm_accept_entry { int32_t id; double p; } *v; /* [n] ascending by id */
    size_t n, room;
};
void llm_drafted_release(struct llm_drafted *q);
/* Whether drafts of this kind of sampling may be accepted so: tokens are drawn, and no filter remembers earlier ones. */
bool llm_accept_possible(const struct llm_sampling *p);
/* As llm_sampler_choose, and notes the distribution. 0 or -1. */
int llm_accept_draft(struct llm_sampler *s, const struct llm_sampling *p, const struct llm_history *h, float *logits, size_t n, uint32_t sample,
                     uint32_t position, struct llm_drafted *q, int32_t *id, struct llm_err *e) LLM_MUST_CHECK;
/* Chooses the token, which is `draft` if that is accepted; logits: the model's, changed. 0 or -1. */
int llm_accept_choose(struct llm_sampler *s, const struct llm_sampling *p, const struct llm_history *h, float *logits, size_t n, uint32_t sample,
                      uint32_t position, const struct llm_drafted *q, int32_t draft, int32_t *id, struct llm_err *e) LLM_MUST_CHECK;

#endif
