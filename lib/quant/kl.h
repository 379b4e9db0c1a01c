/* How far the predictions of a changed model are from those of the model that it was: the mean over the tokens of a text of KL(p ‖ q), p being the
 * distribution of the next token that the base predicts and q the changed model's, in nats. */
#ifndef LLM_QUANT_KL_H
#define LLM_QUANT_KL_H

#include "infer/engine.h"

/* The base and what it computed of a text, in windows. */
struct llm_kl_base {
    struct llm_engine engine;
    int32_t *ids;                  /* [n] */
    int64_t n, context;            /* tokens; of a window */
    float *hidden;                 /* [n, hidden_size] the base's final hidden states */
};
/* Runs `base` over ids[0..n) in windows of `context` tokens (0: 512, or the model's maximum if that is less), of which the last may be shorter.
 * `base` is borrowed and must not change. Products are in FP32, so that the differences are those of the weights.
 * Zero-initialise; release either way. 0; 1 if a signal was caught; -1 (EX_DATAERR: fewer than 2 tokens). */
int llm_kl_base_init(struct llm_kl_base *b, struct llm_model *base, const int32_t *ids, int64_t n, int64_t context, struct llm_err *e) LLM_MUST_CHECK;
void llm_kl_base_release(struct llm_kl_base *b);
int64_t llm_kl_windows(const struct llm_kl_base *b);

struct llm_kl {
    double mean, half;             /* nats per token; half of the interval of 95%, windows being independent. NaN for one window */
    double same_top;               /* share of the tokens whose most probable next token is the same */
    int64_t tokens;
};
/* Measures `m`, which has the base's vocabulary. windows[llm_kl_windows]: the mean of each window, for paired differences; NULL: not wanted.
 * 0; 1 if a signal was caught; -1. */
int llm_kl_measure(struct llm_kl_base *b, struct llm_model *m, struct llm_kl *out, double *windows, struct llm_err *e) LLM_MUST_CHECK;
/* As llm_kl_measure, with a cache of these types (infer/kvtypes.h; NULL: FP32) for `m`. */
int llm_kl_measure_cache(struct llm_kl_base *b, struct llm_model *m, const char *types, struct llm_kl *out, double *windows, struct llm_err *e)
    LLM_MUST_CHECK;

/* Two distributions of the next token, p and q, by their logits [n]. */
struct llm_kl_row {
    double kl;                     /* KL(p ‖ q), in nats */
    double log_p, log_q;           /* of `target` */
    bool same_top;                 /* the same token is the most probable one, of equals the lowest */
};
void llm_kl_of_row(const float *p, const float *q, int64_t n, int32_t target, struct llm_kl_row *out);

/* The mean of n values and half of its interval of 95% by Student's t (NaN for n < 2). */
struct llm_kl_mean { double mean, half; };
struct llm_kl_mean llm_kl_mean_of(const double *v, int64_t n);
/* " ± " and half of the interval; nothing if it is NaN. */
struct llm_kl_interval { char text[40]; } llm_kl_interval(double half);

#endif
