/* Tensor parallelism (Shoeybi et al. 2019, Megatron-LM, section 3): the matrices of a block are cut into n slices, and each rank has a run of them
 * (llm_slices). The first matrices of a block are cut by rows, its last one by columns:
 *
 *     x ─┬─ slice 0 of q, k, v; attention of its heads; slice 0 of out ─┬─ Σ ── y
 *        ├─ slice 1 …                                                   ┤
 *
 * The outputs y of the slices, and in the backward pass the gradients of x by the slices, are added in the tree of n terms (dist/tree.h). So their
 * bits depend on n, not on the number of ranks. Each is exchanged once for a block, in F32. Mamba has two such sums, Mamba 2 one, or three where
 * slices share a group. */
#ifndef LLM_TENSOR_SLICES_H
#define LLM_TENSOR_SLICES_H

#include "tensor/tensor.h"

enum { LLM_MAX_SLICES = 64 };

/* The input of a block for each slice of this rank: y[i] is that of slice s->first + i and has the values of x. The gradients that the slices add to
 * their inputs are summed over all ranks' slices. */
void llm_slices_enter(struct llm_ctx *c, struct llm_tensor *x, const struct llm_slices *s, struct llm_tensor **y);
/* The sum over all slices of their outputs, plus the bias, which is whole (NULL: none). y[i], the output of slice s->first + i, is overwritten. */
struct llm_tensor *llm_slices_sum(struct llm_ctx *c, struct llm_tensor *const *y, const struct llm_slices *s, struct llm_param *bias);

/* Columns that all slices read and of which each computes some, as a term of a sum over slices: x, `runs` runs of equal length, becomes
 * [rows, runs · cols], zero but for run i at column i · cols + at. */
struct llm_tensor *llm_slices_place(struct llm_ctx *c, struct llm_tensor *x, int64_t runs, int64_t cols, int64_t at);
/* The norm of rows of which slices have runs of columns: Σ x² of each row of the slice, [rows, 1], and x / sqrt(squares / n + eps), for `squares` of
 * all n columns. */
struct llm_tensor *llm_slices_squares(struct llm_ctx *c, struct llm_tensor *x);
struct llm_tensor *llm_slices_over_rms(struct llm_ctx *c, struct llm_tensor *x, struct llm_tensor *squares, int64_t n, float eps);

/* The sum of terms x[i], of slice s->first + i, over all ranks' slices; [rows, cols], rows `stride` apart. Writes over x. *sum is on `acts` or where
 * x[0] is, with rows *sum_stride apart. False after a failure. */
bool llm_slices_add(struct llm_ctx *c, const struct llm_slices *s, float *const *x, int64_t rows, int64_t cols, int64_t stride, float **sum,
                    int64_t *sum_stride);

/* ---- elements ---- */
/* The first row of slice j of a matrix of `rows` rows that is cut by rows; of slice n: `rows`. Slices of a vocabulary may differ by a row. */
static inline int64_t llm_slices_row(const struct llm_slices *s, int64_t j, int64_t rows) { return j * rows / s->n; }
/* A run of elements of slice j that follow one another in the whole as well: element `at` of the slice is *whole of the whole; returns the number of
 * elements from there on. */
int64_t llm_slices_run(const struct llm_slices *s, int j, int64_t at, int64_t *whole);
/* How many of the first n elements of the whole slice j has: its elements are in the same order. */
int64_t llm_slices_before(const struct llm_slices *s, int j, int64_t n);
/* Copies elements of the whole to slice j, which `slice` has in full, or back. */
void llm_slices_take(const struct llm_slices *s, int j, const float *whole, float *slice);
void llm_slices_put(const struct llm_slices *s, int j, const float *slice, float *whole);

#endif
