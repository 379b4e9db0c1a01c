/* Nearest-neighbour language models (Khandelwal et al. 2020, "Generalization through Memorization"): the model's distribution is mixed with that of
 * the tokens which followed the most similar hidden states of a text, p = λ·p_kNN + (1 − λ)·p_model. The states and the tokens after them are the
 * rows of an index. */
#ifndef LLM_INFER_KNN_H
#define LLM_INFER_KNN_H

#include "model/model.h"
#include "search/search.h"

/* The place of the pass whose values are compared: the head's input. */
#define LLM_KNN_PLACE "final_norm"

struct llm_knn_options {
    const char *index;          /* path; NULL: no mixing */
    double lambda;              /* in [0, 1] */
    double temperature;         /* > 0: a neighbour at squared distance d weighs exp(-d / (temperature · the mean squared distance of all of them)) */
    int64_t k;                  /* neighbours */
};
extern const struct llm_knn_options llm_knn_defaults;

struct llm_knn {
    struct llm_knn_options o;
    struct llm_index index;
    int32_t *next;              /* [index.n] the token that followed the state of each row */
};
/* Opens o->index. The index must hold states of this model at LLM_KNN_PLACE. `o` is copied; its path is borrowed. Zero-initialise; release either
 * way. 0 or -1. */
int llm_knn_open(struct llm_knn *k, const struct llm_knn_options *o, struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
void llm_knn_release(struct llm_knn *k);
/* Replaces rows [n, vocab] of logits by the logarithms of the mixed distributions. hidden: [n, hidden_size], the states that the logits were computed
 * from. A row has the bits that it has alone. 0 or -1. */
int llm_knn_mix(const struct llm_knn *k, const float *hidden, float *logits, int64_t n, int64_t vocab, struct llm_err *e) LLM_MUST_CHECK;

/* Options of programs that mix. */
#define LLM_KNN_OPTIONS(ARGS, FIELD)                                                                                                                 \
    {0, "knn", "INDEX", "mix the model's predictions with the tokens that followed similar hidden states of a text (llm-index)", LLM_INPUT,        \
     offsetof(ARGS, FIELD.index), 0, 0, NULL},                                                                                                     \
    {0, "lambda", "X", "with --knn: weight of these tokens [.25]", LLM_REAL, offsetof(ARGS, FIELD.lambda), 0, 1, NULL},                            \
    {0, "knn-neighbours", "N", "with --knn: hidden states that are compared [64]", LLM_INT, offsetof(ARGS, FIELD.k), 1, 1 << 20, NULL},            \
    {0, "knn-temperature", "X", "with --knn: a state at squared distance d weighs exp(-d / (X mean d)) [.1]", LLM_REAL,                            \
     offsetof(ARGS, FIELD.temperature), 1e-6, 1e6, NULL},

#endif
