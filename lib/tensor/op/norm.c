/* Gradients of gains and biases of LayerNorm, GroupNorm and RMSNorm. */
#include "cpu/kernels.h"
#include "tensor/experts.h"
#include "tensor/op/norm_internal.h"

struct work { struct llm_norm_block block; int64_t rows; struct llm_folds folds; size_t gain_stride, bias_stride; };

static void columns(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    (void)thread;
    for (int64_t at = 0, end; at < w->rows; at = end) {
        end = llm_fold_end(w->rows, w->folds.row_len, at);
        const size_t part = (size_t)llm_folds_part(&w->folds, at);
        struct llm_norm_block b = w->block;
        b.n = (size_t)(to - from);
        b.tokens = (size_t)(end - at);
        b.x += (size_t)at * b.ldx + (size_t)from;
        b.dy += (size_t)at * b.ldy + (size_t)from;
        if (b.d_gain) b.d_gain += part * w->gain_stride + (size_t)from;
        if (b.d_bias) b.d_bias += part * w->bias_stride + (size_t)from;
        if (b.mean) b.mean += (size_t)at * b.groups;
        b.rstd += (size_t)at * b.groups;
        llm_k.rows.norm_params_back(&b);
    }
}

void llm_norm_params_back(struct llm_ctx *c, const struct llm_tensor *x, const struct llm_tensor *y, struct llm_param *gain, struct llm_param *bias,
                          const float *mean, const float *rstd, int64_t group)
{
    struct work w = {.rows = x->rows, .folds = llm_folds_of(c, x->rows), .gain_stride = gain ? llm_grad_stride(gain) : 0,
                     .bias_stride = bias ? llm_grad_stride(bias) : 0};
    w.block = (struct llm_norm_block){.d_gain = gain ? gain->grad : NULL, .d_bias = bias ? bias->grad : NULL, .x = x->data, .dy = y->grad,
                                      .ldx = (size_t)x->stride, .ldy = (size_t)y->grad_stride, .groups = (size_t)(x->cols / group),
                                      .group = (size_t)group, .mean = mean, .rstd = rstd};
    if (w.block.d_gain || w.block.d_bias) llm_for_columns(group, columns, &w);
}
