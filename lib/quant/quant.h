/* Storing weights in fewer bits: which tensors change to which type, the change, and how much it costs. */
#ifndef LLM_QUANT_QUANT_H
#define LLM_QUANT_QUANT_H

#include "base/cli.h"
#include "model/model.h"

/* Types that weights can be stored in: a row of cpu/dtype.h each. To add one: its dtype. LLM_NO_DTYPE is last: keep the stored type. */
extern const enum llm_dtype llm_quant_types[];
/* Name of type i, "keep" for the one that ends them, NULL after that (struct llm_words). */
const char *llm_quant_word(int i);

/* The result for one tensor. */
struct llm_quant_report {
    const char *name;        /* the model's own */
    int n_dims;
    int64_t shape[4];
    enum llm_dtype from, to;
    const char *kept;        /* why it stayed as it was: "1-D", "rows", "pattern", "same", "keep"; NULL: it changed */
    uint64_t bytes_from, bytes_to;
    /* of the difference between the values before and after */
    double rmse, max_error;
    double snr_db;           /* 10 log10(Σx² / Σ(x - y)²); infinite where nothing was lost */
    double cosine;
};

struct llm_quant_plan {
    enum llm_dtype type;
    const struct llm_strs *only, *except; /* shell patterns of names; `only` empty: all. A name that both match stays */
};
/* Changes the model's matrices to plan->type, one after another. Old values are released at once, so at most one tensor
 * is in memory twice. Vectors (norms, biases) stay, as do matrices whose rows are no whole blocks of the type and those that the patterns leave out.
 * `report` is called for every tensor, in the model's order. The model's fingerprint is reset. 0 or -1; a value that is not finite is EX_DATAERR. */
int llm_quantize_model(struct llm_model *m, const struct llm_quant_plan *plan,
                       int (*report)(void *arg, const struct llm_quant_report *r, struct llm_err *e), void *arg, struct llm_err *e) LLM_MUST_CHECK;

/* n values of type `from`, in rows of whole blocks of both, to type `to`; fills the error fields of `r`. Works on all threads in pieces of fixed
 * size: the same sums for any number. */
int llm_quantize_tensor(const void *in, enum llm_dtype from, void *out, enum llm_dtype to, uint64_t n, struct llm_quant_report *r,
                        struct llm_err *e) LLM_MUST_CHECK;

#endif
