/* The gradient of a vector that is added to all rows. */
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "tensor/tape.h"

struct bias_work { float *grad; const float *dy; int64_t dy_stride, rows; const struct llm_folds *folds; };

static void bias_columns(void *arg, int64_t from, int64_t to, int thread)
{
    const struct bias_work *w = arg;
    (void)thread;
    for (int64_t at = 0, block = 0, end; at < w->rows; at = end, block++) {
        end = w->folds->starts ? w->folds->starts[block + 1] : llm_fold_end(w->rows, w->folds->row_len, at);
        llm_k.rows.column_sums(w->grad + from, w->dy + at * w->dy_stride + from, (size_t)w->dy_stride, (size_t)(end - at), (size_t)(to - from));
    }
}

void llm_bias_grad(struct llm_param *b, const float *dy, int64_t dy_stride, int64_t rows, const struct llm_folds *folds, int64_t cols)
{
    struct bias_work work = {b ? b->grad : NULL, dy, dy_stride, rows, folds};
    if (!work.grad) return;
    LLM_PROFILE("bias gradient", 4 * (double)rows * (double)cols);
    llm_for_columns(cols, bias_columns, &work);
}
