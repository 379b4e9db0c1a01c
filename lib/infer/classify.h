/* Classes of texts and pictures. */
#ifndef LLM_INFER_CLASSIFY_H
#define LLM_INFER_CLASSIFY_H

#include "infer/engine.h"

/* 0, or -1 (EX_UNAVAILABLE) if the model has no classification head. */
int llm_classify_check(const struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
/* out [num_labels]: the probability of each class. v [hidden_size]: the text's hidden states, pooled as llm_config_pooling says (infer/embed.h). */
int llm_classify(struct llm_engine *g, const float *v, double *out, struct llm_err *e) LLM_MUST_CHECK;
/* The same for a batch of images. pixels: [n, num_channels, image_size, image_size]; out: [n, num_labels]. 0, -1, or 1: interrupted by a signal. */
int llm_classify_pictures(struct llm_engine *g, const float *pixels, int64_t n, double *out, struct llm_err *e) LLM_MUST_CHECK;

/* x [n], n ≥ 1, becomes softmax(x). */
void llm_classify_softmax(double *x, int64_t n);

/* 0, or -1 (EX_UNAVAILABLE) if the model has no head of one score (llm-train --objective reward). */
int llm_score_reward_check(const struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
/* *out: the score of a text, whose pooled hidden states are v [hidden_size], as of llm_classify. */
int llm_score_reward(struct llm_engine *g, const float *v, double *out, struct llm_err *e) LLM_MUST_CHECK;

#endif
