#include "tensor/op/chunks.h"

#include <string.h>
#include "tensor/tape.h"

/* Writes k->chunks, k->first and k->part_first; NULL: only counts chunks and parts. */
static void cut(struct llm_chunks *k, int64_t row_len, int64_t longest)
{
    k->n_chunks = k->n_parts = 0;
    for (int64_t i = 0; i < k->n_segments; i++) {
        const struct llm_segment *g = &k->segments[i];
        if (k->first) k->first[i] = k->n_chunks;
        for (int64_t at = g->first, end, part_end; at < g->first + g->n; at = part_end) {
            if (k->part_first) k->part_first[k->n_parts] = at;
            part_end = llm_fold_end(g->first + g->n, row_len, at / row_len * row_len + at % row_len / LLM_FOLD * LLM_FOLD);
            for (; at < part_end; at = end) {
                end = at + longest < part_end ? at + longest : part_end;
                if (k->chunks) k->chunks[k->n_chunks] = (struct llm_chunk){at, end - at, k->n_parts};
                k->n_chunks++;
            }
            k->n_parts++;
        }
    }
    if (k->first) k->first[k->n_segments] = k->n_chunks;
}

bool llm_chunks_cut(struct llm_ctx *c, struct llm_chunks *k, const struct llm_segment *segments, int64_t n_segments, int64_t tokens, int64_t longest)
{
    *k = (struct llm_chunks){.n_segments = n_segments, .segments = llm_op_alloc(c, n_segments, sizeof *segments)};
    if (!k->segments) return false;
    memcpy(k->segments, segments, (size_t)n_segments * sizeof *segments);
    const int64_t row_len = llm_folds_of(c, tokens).row_len;
    cut(k, row_len, longest);
    k->chunks = llm_op_alloc(c, k->n_chunks, sizeof *k->chunks);
    k->first = llm_op_alloc(c, n_segments + 1, sizeof *k->first);
    k->part_first = llm_op_alloc(c, k->n_parts, sizeof *k->part_first);
    if (llm_ctx_failed(c)) return false;
    cut(k, row_len, longest);
    return true;
}
