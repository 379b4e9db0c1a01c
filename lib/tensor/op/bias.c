/* The gradients of a vector that is added to all rows, and of a matrix that multiplies them. */
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "tensor/sequence.h"
#include "tensor/tape.h"

struct llm_folds llm_folds_of(const struct llm_ctx *c, int64_t rows)
{
    const int64_t parts = llm_sequence_parts(c);
    return (struct llm_folds){.row_len = llm_row_len(c, rows) / parts, .parts = parts};
}

bool llm_weight_grad(struct llm_ctx *c, const struct llm_param *w, float *grad, const float *dy, int64_t ldy, const float *x, int64_t ldx,
                     const void *panels, int64_t m, const struct llm_folds *folds, enum llm_compute compute)
{
    const int64_t n = w->weight.n, k = w->weight.k;
    if (panels) return llm_matmul_dw_panels(grad, dy, ldy, panels, m, folds->row_len, n, k, &c->err) == 0;
    for (int64_t at = 0, end; at < m; at = end) {
        float *of = grad + (size_t)llm_folds_part(folds, at) * llm_grad_stride(w);
        end = folds->parts > 1 && m - at > folds->row_len ? at + folds->row_len : m;
        if (llm_matmul_dw(of, dy + at * ldy, ldy, x + at * ldx, ldx, end - at, folds->row_len, n, k, compute, &c->err) < 0) return false;
    }
    return true;
}

struct bias_work { float *grad; const float *dy; int64_t dy_stride, rows; const struct llm_folds *folds; size_t stride; };

static void bias_columns(void *arg, int64_t from, int64_t to, int thread)
{
    const struct bias_work *w = arg;
    (void)thread;
    for (int64_t at = 0, block = 0, end; at < w->rows; at = end, block++) {
        end = w->folds->starts ? w->folds->starts[block + 1] : llm_fold_end(w->rows, w->folds->row_len, at);
        float *grad = w->grad + (size_t)llm_folds_part(w->folds, at) * w->stride + from;
        llm_k.rows.column_sums(grad, w->dy + at * w->dy_stride + from, (size_t)w->dy_stride, (size_t)(end - at), (size_t)(to - from));
    }
}

void llm_bias_grad(struct llm_param *b, const float *dy, int64_t dy_stride, int64_t rows, const struct llm_folds *folds, int64_t cols)
{
    if (!b || !b->grad) return;
    struct bias_work work = {b->grad, dy, dy_stride, rows, folds, llm_grad_stride(b)};
    LLM_PROFILE("bias gradient", 4 * (double)rows * (double)cols);
    llm_for_columns(cols, bias_columns, &work);
}
