/* Singular values of a cache's keys and values, per head: the effective rank of what the head stores. */
#ifndef LLM_MEASURE_SPECTRUM_H
#define LLM_MEASURE_SPECTRUM_H

#include "infer/kvfile.h"

/* One head's keys or values, as the matrix of tokens × channels. */
struct llm_spectrum {
    int64_t layer, kv_head;
    char what;                  /* 'k' (latent vectors too) or 'v' */
    int64_t n;                  /* singular values: the smaller of tokens and channels */
    double *values;             /* [n], descending; in the memory of llm_spectra */
    double effective_rank;      /* exp of the entropy of the values over their sum (Roy and Vetterli, 2007, "The effective rank") */
    double stable_rank;         /* Σ values² / largest² */
    int64_t rank_90, rank_99;   /* how many of the largest have 90% and 99% of Σ values²; -1, and the ranks above NaN: the values are not finite */
};
struct llm_spectra {
    struct llm_spectrum *rows;  /* layer by layer, head by head, keys before values */
    int64_t n_rows, widest;     /* widest: the largest n */
    double *values;             /* [n_rows, widest] */
};

/* Singular values of x [n, length], n ≤ length, which is overwritten: values [n], descending. work: room for [n, n]. */
void llm_singular_values(double *x, int64_t n, int64_t length, double *values, double *work);

/* All heads of a cache. centred: the mean over the tokens is subtracted first. Zero-initialise `s`; release either way. */
int llm_spectra_of(struct llm_spectra *s, const struct llm_kv_file *f, bool centred, struct llm_err *e) LLM_MUST_CHECK;
void llm_spectra_release(struct llm_spectra *s);

#endif
