/* Dictionaries of features: a sparse autoencoder, or a transcoder, of the values at a place of a model. With centres m and scales s of its input
 * and output, and x' = (x - m) / s: the pre-activations are p = E·x' + e, the features f = act(p), the output is m + s·(D·f + d). The columns of D
 * have length 1. A sparse autoencoder reconstructs its input, a transcoder predicts the value at another place.
 * `llm-train --objective sae|transcoder` learns E, e, D and d (train/objective/dictionary.c). */
#ifndef LLM_INFER_DICTIONARY_H
#define LLM_INFER_DICTIONARY_H

#include "model/forward/watch.h"
#include "model/model.h"
#include "model/weights/beside.h"

enum llm_dictionary_kind {
    LLM_DICTIONARY_TOPK,           /* the k largest positive pre-activations: Gao et al., "Scaling and evaluating sparse autoencoders", 2024 */
    LLM_DICTIONARY_JUMPRELU,       /* pre-activations above e^t of each feature: Rajamanoharan et al., "Jumping Ahead", 2024 */
    LLM_DICTIONARY_L1              /* positive pre-activations */
};
/* "topk", "jumprelu", "l1": words of --dictionary, NULL after the last. */
const char *llm_dictionary_word(int i);

enum {
    LLM_DICTIONARY_ENCODER, LLM_DICTIONARY_ENCODER_BIAS, LLM_DICTIONARY_DECODER, LLM_DICTIONARY_DECODER_BIAS,
    LLM_DICTIONARY_RATE,           /* [features]: the running mean of the share of activations for which a feature is not 0 */
    LLM_DICTIONARY_THRESHOLD,      /* [features]: t of JumpReLU; other kinds have none */
    LLM_DICTIONARY_MAX_PARAMS
};
struct llm_dictionary {
    struct llm_place from, to;     /* equal: a sparse autoencoder */
    enum llm_dictionary_kind kind;
    int64_t k, in, out, features;
    float *mean[2];                /* [in], [out] */
    double scale[2];
    struct llm_param params[LLM_DICTIONARY_MAX_PARAMS];
    size_t n_params;
};
/* Allocates parameters and means, all 0, from `kind`, `k` and the widths. Zero-initialise; release either way. */
int llm_dictionary_create(struct llm_dictionary *d, struct llm_err *e) LLM_MUST_CHECK;
/* Reads a file of kind "dictionary", which must be of the model. Zero-initialise; release either way. */
int llm_dictionary_load(struct llm_dictionary *d, const char *path, struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
/* Adds what the file says besides the parameters to its metadata. 0 or -1. */
int llm_dictionary_describe(const struct llm_dictionary *d, json_t *meta, struct llm_err *e) LLM_MUST_CHECK;
void llm_dictionary_release(struct llm_dictionary *d);
/* Reads the spelling of one place. -1: LLM_EX_USAGE. */
int llm_dictionary_place(const char *text, const struct llm_config *c, struct llm_place *p, struct llm_err *e) LLM_MUST_CHECK;

/* to[r] = (x[r] - mean) / scale, rows of `stride` floats; side 0: of inputs, 1: of outputs. */
void llm_dictionary_scale(const struct llm_dictionary *d, int side, const float *x, int64_t stride, int64_t rows, float *to);
/* The features [rows, features] of scaled inputs z [rows, in], and their pre-activations. 0 or -1. */
int llm_dictionary_encode(const struct llm_dictionary *d, const float *z, int64_t rows, enum llm_compute compute, float *pre, float *f,
                          struct llm_err *e) LLM_MUST_CHECK;
/* Scaled outputs y [rows, out] of features. 0 or -1. */
int llm_dictionary_decode(const struct llm_dictionary *d, const float *f, int64_t rows, enum llm_compute compute, float *y, struct llm_err *e)
    LLM_MUST_CHECK;
/* f[i] = p[i] if p[i] > 0 is among the k largest candidates, else 0. Candidates are the i with of[i] != 0 (`of` NULL: all). Among ties the lowest i
 * wins. `scratch`: [n]. */
void llm_top_k(const float *p, const uint8_t *of, int64_t n, int64_t k, float *f, float *scratch);

/* ---- in a model ---- */
/* What a dictionary makes of the values of passes, in their own units, and how well. */
struct llm_splice {
    struct llm_dictionary d;
    enum llm_compute compute;
    bool measures;                 /* observe alone: values stay as they are */
    bool zero;                     /* replace the values by 0 */
    float *made;                   /* [rows, out] of the last pass at d.from */
    size_t made_room;
    int64_t rows;                  /* of `made` */
    double n, active, error, squares, *sum; /* over all rows: rows, features that are not 0, |y - x|², |x|², and Σ x by column [out] */
    bool *fired;                   /* [features]: whether it was ever not 0 */
};
/* Loads the dictionary for a model. Zero-initialise; release either way. */
int llm_splice_begin(struct llm_splice *s, const char *path, struct llm_model *m, enum llm_compute compute, struct llm_err *e) LLM_MUST_CHECK;
void llm_splice_release(struct llm_splice *s);
/* Appends the watchers to a list with room for two: they observe d.from and replace the value at d.to, or observe both (`measures`). Returns their
 * number. */
int llm_splice_watchers(struct llm_splice *s, struct llm_watcher *w);
/* The shares: features active on average, explained variance (1 - Σ|y - x|² / Σ|x - mean|²), features that were never active. */
double llm_splice_active(const struct llm_splice *s);
double llm_splice_explained(const struct llm_splice *s);
double llm_splice_dead(const struct llm_splice *s);

#endif
