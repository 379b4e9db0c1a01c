/* What the files of the loss share. Each calls those before it only: cross_entropy_chunks.c, cross_entropy_slices.c (heads that are cut into slices),
 * cross_entropy.c. */
#ifndef LLM_TENSOR_OP_CROSS_ENTROPY_INTERNAL_H
#define LLM_TENSOR_OP_CROSS_ENTROPY_INTERNAL_H

#include "tensor/ops.h"

static inline bool ce_counted(const struct llm_cross_entropy *a, int64_t token)
{
    return a->targets[token] >= 0 && (!a->mask || a->mask[token]);
}
static inline double ce_weight(const struct llm_cross_entropy *a, int64_t token)
{
    return a->weights ? (double)a->weights[token] : 1;
}
/* The end (exclusive) of the chunk that begins at token `at`: whole rows, or whole blocks of one row, at least one, of at most 32 Mi logits. */
int64_t ce_chunk_end(int64_t tokens, int64_t row_len, int64_t vocab, int64_t at);
/* Sums the losses in the canonical order: each block from zero, the blocks of a row in order, the rows in order. */
struct llm_loss ce_fold(const struct llm_ctx *c, const struct llm_cross_entropy *a, const double *nll, int64_t tokens);
/* Memory for [rows, cols] floats. NULL and a sticky failure if the arena is used up. */
float *ce_floats(struct llm_ctx *c, struct llm_arena *arena, int64_t rows, int64_t cols);
/* llm_cross_entropy of a head whose slices are tiles of the vocabulary. */
struct llm_loss ce_slices(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *w, const struct llm_cross_entropy *a);

#endif
