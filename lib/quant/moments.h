/* Second moments of the inputs of a model's matrices over a calibration text: for each input channel the mean square, which says how much an error of
 * the weights of that channel counts. Matrices that read the same value share one record (queries, keys and values). */
#ifndef LLM_QUANT_MOMENTS_H
#define LLM_QUANT_MOMENTS_H

#include "infer/engine.h"
#include "model/spec/place.h"

struct llm_moment {
    struct llm_place place;
    int64_t expert;                /* -1: every token is counted */
    int64_t k;                     /* channels */
    double count;                  /* tokens */
    double *squares;               /* [k] sums of squares */
    float *products;               /* [k, k] sums of products of the channels; NULL: not wanted, or an expert's */
};
struct llm_moments {
    struct llm_moment *v;          /* [n] */
    size_t n;
    int64_t *of;                   /* [model's n_params] number of the parameter's record; -1: it has none */
    size_t n_params;
    struct llm_kronecker *kronecker; /* [n_params] factors of the curvature (quant/curvature.h); `in` and `out` NULL: the parameter has none. NULL */
    double tokens;                 /* of the text; 0: not known */
    int64_t chunks;                /* windows of the text */
};
/* Empty records of all matrices whose input is a place of the walk. Zero-initialise; release either way. */
int llm_moments_init(struct llm_moments *m, const struct llm_model *model, struct llm_err *e) LLM_MUST_CHECK;
/* Products of all pairs of channels are wanted too, but of experts. Before llm_moments_gather; EX_UNAVAILABLE if there is no memory for them. */
int llm_moments_want_products(struct llm_moments *m, struct llm_err *e) LLM_MUST_CHECK;
void llm_moments_release(struct llm_moments *m);

/* Runs the model over ids[0..n) in windows of `context` tokens (0: 512, or the model's maximum if that is less) and adds what its matrices read.
 * Documents are not separated. The sums do not depend on the number of threads. 0; 1 if a signal was caught; -1. An encoder-decoder is
 * EX_UNAVAILABLE. */
int llm_moments_gather(struct llm_moments *m, struct llm_model *model, const int32_t *ids, size_t n, int64_t context, struct llm_err *e)
    LLM_MUST_CHECK;

/* The mean squares of the inputs of parameter i, to out[k]; false if there is no record, if it counted no token, or if all of them are 0. */
bool llm_moments_importance(const struct llm_moments *m, size_t i, float *out);

/* The products of the inputs of parameter i; NULL: there are none. */
const float *llm_moments_products(const struct llm_moments *m, size_t i);

/* The factors of the curvature by parameter i; NULL: there are none. */
const struct llm_kronecker *llm_moments_kronecker(const struct llm_moments *m, size_t i);

/* Experts, of all layers, and those among them that no token chose. */
struct llm_coverage { size_t experts, unseen; double least; /* tokens of the expert that the fewest tokens chose */ };
struct llm_coverage llm_moments_coverage(const struct llm_moments *m);

#endif
