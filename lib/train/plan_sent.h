/* What one rank sends in a step, and the work that it has: parts of a plan (train/plan.h). They are the layout's arithmetic; nothing is measured. */
#ifndef LLM_TRAIN_PLAN_SENT_H
#define LLM_TRAIN_PLAN_SENT_H

#include "train/plan.h"

/* Stage k of n, which has chunks k, k + n, … of all those that begin at first[0 … chunks - 1]; first[chunks]: the number of layers. */
struct llm_stage_chunks { int64_t k, n, chunks; const int64_t *first; };
bool llm_stage_has_layer(const struct llm_stage_chunks *s, int64_t layer);
bool llm_stage_has_param(const struct llm_stage_chunks *k, const struct llm_param_spec *s);
/* Layers of a stage (NULL: of the model) whose feed-forward part is a mixture. */
double llm_stage_mixtures(const struct llm_config *c, const struct llm_stage_chunks *s);

/* Bytes that a member of a tensor-parallel group sends to the others in a step of so many tokens: the sums of its layers and those of their
 * gradients; with the vocabulary the embeddings it looks up, the tiles of each token, and the sum of the head's gradients. */
double llm_sent_by_member(const struct llm_config *c, const struct llm_train_options *o, int64_t members, double tokens, double layers,
                          bool embeds, bool heads);
/* Bytes that a rank of a group that divides the experts of `layers` sends to the others in a step of so many tokens, if experts are chosen evenly: in
 * the forward pass hidden states and outputs of slots, in the backward pass hidden states with gradients of outputs, and gradients of hidden states;
 * so for each of its slices. */
double llm_sent_to_experts(const struct llm_config *c, const struct llm_train_options *o, const struct llm_layout *l, double layers, double tokens);
/* Bytes that a rank which divides rows with others sends to these in a step of so many tokens of its own: queries, keys, values and what attention
 * makes of them, or the states of recurrences, and their gradients. */
double llm_sent_by_rows(const struct llm_config *c, const struct llm_train_options *o, const struct llm_layout *l, double tokens, double layers);
/* llm_share_sent of the parameters that a rank has: the model's (k NULL), or a stage's. */
int llm_sent_of_params(double *bytes, const struct llm_config *c, const struct llm_model *m, const struct llm_train_options *o,
                       const struct llm_layout *l, const struct llm_stage_chunks *k, int64_t replicas, struct llm_err *e) LLM_MUST_CHECK;
/* p->work, p->forward and p->messages, from the FLOPs of a step, which passes forward take `forward` of. */
int llm_plan_add_work(struct llm_plan *p, const struct llm_config *c, const struct llm_train_options *o, const struct llm_layout *l, double forward,
                      struct llm_err *e) LLM_MUST_CHECK;

#endif
