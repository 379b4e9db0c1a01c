/* Matrices in another order of rows and columns, as some files keep them (model/weights/names.h). */
#include <string.h>
#include "base/buf.h"
#include "model/config/config.h"
#include "model/weights/names.h"

void *llm_transposed(const void *data, size_t element, int64_t rows, int64_t cols, struct llm_err *e)
{
    char *out = llm_alloc((size_t)rows * (size_t)cols, element, "a transposed matrix", e);
    const char *in = data;
    if (!out) return NULL;
    for (int64_t r0 = 0; r0 < rows; r0 += 32) { /* in squares that fit the cache */
        for (int64_t c0 = 0; c0 < cols; c0 += 32) {
            for (int64_t r = r0; r < r0 + 32 && r < rows; r++) {
                for (int64_t c = c0; c < c0 + 32 && c < cols; c++) {
                    memcpy(out + (size_t)(c * rows + r) * element, in + (size_t)(r * cols + c) * element, element);
                }
            }
        }
    }
    return out;
}

size_t llm_row_by_head(const struct llm_config *c, size_t row)
{
    const size_t d = (size_t)c->head_dim, heads = (size_t)c->num_attention_heads, block = row / d;
    return (block % 3 * heads + block / 3) * d + row % d;
}

void llm_rows_by_head(const struct llm_config *c, const void *data, size_t row_bytes, bool to_file, void *out)
{
    const size_t d = (size_t)c->head_dim, rows = 3 * (size_t)c->num_attention_heads * d;
    for (size_t theirs = 0; theirs < rows; theirs += d) {
        const size_t ours = llm_row_by_head(c, theirs), from = to_file ? ours : theirs, to = to_file ? theirs : ours;
        memcpy((char *)out + to * row_bytes, (const char *)data + from * row_bytes, d * row_bytes);
    }
}

void llm_rows_in_pairs(const struct llm_config *c, const void *data, int64_t rows, size_t row_bytes, bool to_pairs, void *out)
{
    int64_t d = c->head_dim, half = c->rotary_dim / 2;
    for (int64_t r = 0; r < rows; r++) {
        int64_t k = r % d, from = r;
        if (k < 2 * half) from = r - k + (to_pairs ? k / 2 + k % 2 * half : 2 * (k % half) + k / half);
        memcpy((char *)out + (size_t)r * row_bytes, (const char *)data + (size_t)from * row_bytes, row_bytes);
    }
}
