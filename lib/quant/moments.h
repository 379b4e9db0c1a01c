/* Second moments of the inputs of a model's matrices over a calibration text: for each input channel the mean square, which says how much an error of
 * the weights of that channel counts. Matrices that read the same value share one record (queries, keys and values). */
#ifndef LLM_QUANT_MOMENTS_H
#define LLM_QUANT_MOMENTS_H

#include "infer/engine.h"
#include "model/spec/place.h"
#include "quant/spool.h"

struct llm_moment {
    struct llm_place place;
    int64_t expert;                /* -1: every token is counted */
    int64_t k;                     /* channels */
    double count;                  /* tokens */
    double *squares;               /* [k] sums of squares */
    bool wanted;                   /* products are, or will be, gathered */
    float *products;               /* [k, k] sums of products of the channels; NULL: not wanted, not gathered yet, or an expert's */
};
struct llm_moments {
    struct llm_moment *v;          /* [n] */
    size_t n;
    int64_t *of;                   /* [model's n_params] number of the parameter's record; -1: it has none */
    size_t n_params;
    struct llm_kronecker *kronecker; /* [n_params] factors of the curvature (quant/curvature.h); `in` and `out` NULL: the parameter has none. NULL */
    double tokens;                 /* of the text; 0: not known */
    int64_t chunks;                /* windows of the text */
    /* Bytes of products, and of factors of the curvature, that are gathered at a time: the text is read once for each part, whose sums then wait in
     * `spool`. The sums are the same. At least those of one matrix are gathered together. 0: all, in memory. */
    uint64_t memory;
    struct llm_quant_spool spool;
};
/* Empty records of all matrices whose input is a place of the walk. Zero-initialise; release either way. */
int llm_moments_init(struct llm_moments *m, const struct llm_model *model, struct llm_err *e) LLM_MUST_CHECK;
/* Products of all pairs of channels are wanted too, but of experts. Before llm_moments_gather. */
void llm_moments_want_products(struct llm_moments *m);
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

/* Moves `n` floats from the heap to m->spool, if there is a limit of memory: *p becomes a mapping of them. EX_IOERR: there is no room on the disk. */
int llm_moments_spool(struct llm_moments *m, float **p, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Releases the memory that the sums of parameter i take, if they wait in the spool. They may be read again. */
void llm_moments_unload(const struct llm_moments *m, size_t i);

/* The factors of the curvature by parameter i; NULL: there are none. */
const struct llm_kronecker *llm_moments_kronecker(const struct llm_moments *m, size_t i);

/* Experts, of all layers, and those among them that no token chose. */
struct llm_coverage { size_t experts, unseen; double least; /* tokens of the expert that the fewest tokens chose */ };
struct llm_coverage llm_moments_coverage(const struct llm_moments *m);

#endif
