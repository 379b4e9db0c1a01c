/* Chunks of tokens whose logits exist at the same time, their memory, and the sum of their losses. */
#include "tensor/op/cross_entropy_internal.h"
#include "tensor/tape.h"

int64_t ce_chunk_end(int64_t tokens, int64_t row_len, int64_t vocab, int64_t at)
{
    const int64_t max = 32 << 20; /* 128 MiB: larger chunks need fewer passes over the gradient of w */
    if (at % row_len == 0 && row_len * vocab <= max) {
        int64_t rows = max / (row_len * vocab), end = at + rows * row_len;
        return end < tokens ? end : tokens;
    }
    int64_t row_end = (at / row_len + 1) * row_len, blocks = max / (LLM_FOLD * vocab), end = at + (blocks > 1 ? blocks : 1) * LLM_FOLD;
    return end < row_end ? end : row_end;
}

struct llm_loss ce_fold(const struct llm_ctx *c, const struct llm_cross_entropy *a, const double *nll, int64_t tokens)
{
    struct llm_loss loss = {0};
    int64_t row_len = llm_row_len(c, tokens);
    double row = 0;
    for (int64_t at = 0, end; at < tokens; at = end) {
        double block = 0;
        end = llm_fold_end(tokens, row_len, at);
        for (int64_t t = at; t < end; t++) {
            block += a->weights && ce_counted(a, t) ? ce_weight(a, t) * nll[t] : nll[t];
            loss.tokens += ce_counted(a, t);
            if (a->token_nll) a->token_nll[t] = (float)nll[t];
        }
        row += block;
        if (end % row_len == 0 || end == tokens) {
            loss.nll += row;
            row = 0;
        }
    }
    return loss;
}

float *ce_floats(struct llm_ctx *c, struct llm_arena *arena, int64_t rows, int64_t cols)
{
    size_t bytes;
    bool fits = !__builtin_mul_overflow((size_t)rows * sizeof(float), (size_t)cols, &bytes);
    float *p = fits && !llm_ctx_failed(c) ? llm_arena_alloc(arena, bytes) : NULL;
    if (!p) llm_op_fail(c, EX_UNAVAILABLE, "logits: expected at most %zu MiB, found more", arena->limit >> 20);
    return p;
}
