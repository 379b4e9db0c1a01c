/* Low-rank factors of matrices: b·a, which comes nearest to a matrix, or to what rounding took from it, for the inputs of a calibration text. With
 * the inputs' second moments H = R·Rᵀ the squared error of the outputs is |(Δ - b·a)·R|², which the leading singular vectors of Δ·R make smallest
 * (Eckart and Young; of quantisation: Zhang et al., "QERA", 2024; of whole matrices: Wang et al., "SVD-LLM", 2024). */
#ifndef LLM_QUANT_LOWRANK_H
#define LLM_QUANT_LOWRANK_H

#include "model/weights/lora.h"

struct llm_lowrank {
    int64_t rank;                  /* of all matrices, at most the smaller of their dimensions; 0: as `energy` says */
    double energy;                 /* the share of the squared error of the outputs that the factors must take away, within 0 and 1 */
    bool alone;                    /* the factors replace the matrix, which becomes LLM_ZERO */
    struct llm_lora_factors *v;    /* [n] of the matrices so far, in the model's order; owned */
    size_t n, room;
};
/* Whether the matrix gets factors: it is one of layers, and products with it can have an adapter. */
bool llm_lowrank_wants(const struct llm_param *p);

/* A matrix [n, k] and what the model stores in its place, both row by row. */
struct llm_lowrank_job {
    const void *of, *stored;
    const struct llm_weight *mapped; /* the weight that `of` is the data of, whose pages are released once they are read; NULL: they stay */
    enum llm_dtype of_type, stored_type;
    int64_t n, k;
    const float *products;         /* [k, k] sums of products of the matrix's inputs; NULL: not known */
    const float *importance;       /* [k] mean squares of its inputs, if `products` is NULL; NULL: not known, all inputs count the same */
    size_t param;                  /* the matrix's number in the model */
};
/* Adds the factors of `j` to the list. *rank, *energy: how many, and the share of the squared error that they take away. The same bits for any
 * number of threads. 0 or -1. */
int llm_lowrank_add(struct llm_lowrank *l, const struct llm_lowrank_job *j, int64_t *rank, double *energy, struct llm_err *e) LLM_MUST_CHECK;
void llm_lowrank_release(struct llm_lowrank *l);

#endif
