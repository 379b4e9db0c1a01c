/* Zero-shot classification by a model of two towers (CLIP, Radford et al. 2021, 3.1.4): a class is a vector made of texts about it, and a picture
 * belongs to the classes whose vectors are near its own. */
#ifndef LLM_INFER_ZERO_SHOT_H
#define LLM_INFER_ZERO_SHOT_H

#include "infer/engine.h"

struct llm_zero_shot {
    struct llm_labels labels;      /* names of the classes; owned */
    float *classes;                /* [labels, llm_config_vector], of length 1; owned */
};
/* Makes the classes of z->labels. ids: the tokens of n_templates texts of the first class, then those of the second, …; lengths
 * their lengths. The vector of a class: the mean of the vectors of its texts, each divided by its length, divided by its length.
 * 0; 1 if a signal was caught; -1. */
int llm_zero_shot_init(struct llm_zero_shot *z, struct llm_engine *g, const int32_t *ids, const int64_t *lengths, int64_t n_templates,
                       struct llm_err *e) LLM_MUST_CHECK;
void llm_zero_shot_release(struct llm_zero_shot *z);
/* out [labels]: the probability of each class for the vector v of a picture, which is divided by its length: the softmax of the model's scale times
 * the products of the vectors, or, of a model of the sigmoid loss, the sigmoid of each of these plus the model's bias. */
void llm_zero_shot_classify(const struct llm_zero_shot *z, const struct llm_model *m, float *v, double *out);
/* 0, or -1 (EX_UNAVAILABLE) if the model has no two towers. */
int llm_zero_shot_check(const struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;

#endif
