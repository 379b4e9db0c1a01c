/* Kernels over whole rows, or over blocks of tokens for gradients of per-channel parameters. Rows are contiguous; statistics are FP32 sums in an
 * order that depends on the row's length alone. Outputs may stand where the inputs of the same shape do. */
#ifndef LLM_CPU_KERNELS_ROWS_H
#define LLM_CPU_KERNELS_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct llm_ce_row { float max, sum; }; /* log-sum-exp = max + log(sum) */

/* Gradients of per-channel parameters from one block of tokens: each channel is summed over the tokens (and the groups within each) in order from
 * zero, then added. d_gain[j] += Σ dy·(x - mean)·rstd, d_bias[j] += Σ dy. */
struct llm_norm_block {
    float *d_gain, *d_bias;      /* [n]; either may be NULL */
    const float *x, *dy;         /* at the block's first token and the first channel wanted */
    size_t ldx, ldy;             /* from token to token */
    size_t groups, group;        /* normalised runs a token, their width: 1 and anything when the row is one run */
    const float *mean, *rstd;    /* [tokens][groups]; mean NULL: 0 */
    size_t tokens, n;
};

#define LLM_MAX_BLOCK 64

struct llm_rows_kernels {
    void (*softmax)(float *y, const float *x, size_t n);
    /* max[b] = the largest of block b, LLM_MAX_BLOCK elements of x (the last block may have fewer); NaN counts as +infinity. n ≥ 1. */
    void (*block_max)(float *max, const float *x, size_t n);
    /* Σ e^(x - max), each block of LLM_MAX_BLOCK summed in FP32, the blocks in double: within 1e-5 of the sum if max is the largest x. */
    double (*exp_sum)(const float *x, float max, size_t n);
    /* The random numbers that llm_rng_u32 (base/rng.h) makes with this key and counter, of channels [first, first + LLM_MAX_BLOCK). `first` is a
     * multiple of LLM_MAX_BLOCK. Returns the largest. */
    uint32_t (*random_block)(uint32_t bits[LLM_MAX_BLOCK], uint32_t first, const uint32_t key[2], const uint32_t counter[3]);
    /* dx = y·(dy - Σ dy·y), or += */
    void (*softmax_back)(float *dx, const float *y, const float *dy, bool add, size_t n);

    /* y = (x - mean)/sqrt(var + eps)·gain + bias; bias may be NULL. */
    void (*layernorm)(float *y, const float *x, const float *gain, const float *bias, float eps, size_t n, float *mean, float *rstd);
    /* g = dy·gain, h = (x - mean)·rstd: dx = rstd·(g - mean(g) - h·mean(g·h)), or += */
    void (*layernorm_back)(float *dx, const float *x, const float *dy, const float *gain, float mean, float rstd, bool add, size_t n);
    /* y = x/sqrt(mean(x²) + eps)·(gain + offset) */
    void (*rmsnorm)(float *y, const float *x, const float *gain, float offset, float eps, size_t n, float *rstd);
    void (*rmsnorm_back)(float *dx, const float *x, const float *dy, const float *gain, float offset, float rstd, bool add, size_t n);

    void (*norm_params_back)(const struct llm_norm_block *b);
    void (*column_sums)(float *sums, const float *dy, size_t ldy, size_t tokens, size_t n); /* sums[j] += Σ dy */

    /* Cross-entropy of one row of raw products x: logit = softcap(x·scale), softcap 0: none. Leaves e^(logit - max) in x (softcap: the logits). */
    struct llm_ce_row (*ce_forward)(float *x, float scale, float softcap, size_t n);
    /* From what ce_forward left: x = d, the gradient of factor·(-log p(target)) by the raw product. */
    void (*ce_back)(float *x, struct llm_ce_row r, size_t target, float factor, float scale, float softcap, size_t n);
};

#endif
