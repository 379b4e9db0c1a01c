/* Segments of recurrences as chunks of a few tokens. The forward pass keeps the state before each chunk; the backward pass recomputes the others. */
#ifndef LLM_TENSOR_OP_CHUNKS_H
#define LLM_TENSOR_OP_CHUNKS_H

#include "tensor/ops.h"

struct llm_chunk { int64_t first, n, part; }; /* tokens */
struct llm_chunks {
    struct llm_segment *segments; /* copied */
    int64_t n_segments, n_chunks, n_parts;
    struct llm_chunk *chunks;    /* ordered by segment; a part is a run of chunks within one block of the canonical order of sums over tokens */
    int64_t *first;              /* [n_segments + 1]: the first chunk of each segment */
    int64_t *part_first;         /* [n_parts]: the first token of each part, ascending */
};
/* Cuts the segments of `tokens` tokens into chunks of at most `longest` tokens. Memory is on `acts`. False after a failure. */
bool llm_chunks_cut(struct llm_ctx *c, struct llm_chunks *k, const struct llm_segment *segments, int64_t n_segments, int64_t tokens, int64_t longest);

#endif
