/* Matrices kept coarsely: the largest elements of each row, or factors of a low rank (stored.c uses them for activations). */
#ifndef LLM_TENSOR_APPROXIMATE_H
#define LLM_TENSOR_APPROXIMATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

/* Elements of a row that a share keeps: at least one. */
int64_t llm_top_kept(double share, int64_t cols);
/* Whether rows of so many columns have numbers of 16 bits. */
bool llm_top_fits(int64_t cols);
/* Bytes of `rows` rows: for each kept element its column (16 bits) and its value (BF16). */
size_t llm_top_bytes(int64_t rows, int64_t kept);
/* Keeps the `kept` largest elements of each row of x [rows, cols] by size, of equals the first, in the order of columns. False: no memory. */
bool llm_top_encode(const float *x, int64_t rows, int64_t cols, int64_t kept, void *out, int thread);
/* All others become 0. */
void llm_top_decode(const void *in, int64_t rows, int64_t cols, int64_t kept, float *x);

/* Bytes of the factors of `rows` rows in parts of part_rows rows each: of each part [part_rows, rank] and [rank, cols], FP32. */
size_t llm_rank_bytes(int64_t rows, int64_t part_rows, int64_t cols, int64_t rank);
/* Of each part of x [rows, cols] a product C·Q near it: the rows of Q are an orthonormal basis of the space in which two rounds of subspace iteration
 * from fixed vectors find most of the part (Halko et al. 2011). The bits of a part depend on it alone. rank ≤ part_rows, cols. All threads work on
 * it. 0 or -1. */
int llm_rank_encode(const float *x, int64_t rows, int64_t part_rows, int64_t cols, int64_t rank, void *out, struct llm_err *e) LLM_MUST_CHECK;
int llm_rank_decode(const void *in, int64_t rows, int64_t part_rows, int64_t cols, int64_t rank, float *x, struct llm_err *e) LLM_MUST_CHECK;

#endif
