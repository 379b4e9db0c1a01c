/* Selective scans (Mamba; Gu & Dao 2023, Dao & Gu 2024) over a run of tokens, and short convolutions. Channels are independent of each other
 * and contiguous; a channel's numbers depend neither on how many channels nor on how many tokens a call has. */
#ifndef LLM_CPU_KERNELS_SCAN_H
#define LLM_CPU_KERNELS_SCAN_H

#include <stdbool.h>
#include <stddef.h>

/* Maxima: tokens of one backward call of a scan; states of a channel; taps of a convolution. */
enum { LLM_SCAN_CHUNK = 16, LLM_SCAN_STATES = 256, LLM_CONV_TAPS = 16 };

/* h[n] = e^(dt·a[n])·h[n] + dt·x·b[n], y = Σ h[n]·c[n] + skip·x, token by token. */
struct llm_scan_run {
    size_t tokens, channels, states;
    bool one_decay;           /* a [channels] for all states, else [states][lda] */
    const float *a, *skip;    /* skip [channels] */
    size_t lda;
    const float *x, *dt;      /* [tokens][ldx], [tokens][ldt] */
    const float *b, *c;       /* [tokens][ldb], [tokens][ldc]: of states each */
    size_t ldx, ldt, ldb, ldc;
    float *h;                 /* [states][ldh] in: states before the run; out: states after it */
    size_t ldh;
    float *y;                 /* [tokens][ldy] */
    size_t ldy;
};
/* The backward pass over at most LLM_SCAN_CHUNK tokens. */
struct llm_scan_back {
    struct llm_scan_run run;  /* h: before the run, not changed; y not used */
    const float *dy;
    size_t ld_dy;
    float *g;                 /* [states][channels] in: gradient of the state after the run; out: of the state before it */
    float *dx, *ddt;          /* [tokens][ld_dx], [tokens][ld_ddt]: written */
    size_t ld_dx, ld_ddt;
    float *d_bc;              /* [tokens][2·states]: of b, of c, summed over the channels: written */
    float *da, *d_skip;       /* as a (without gaps: [states][channels]) and skip: added to */
    float *scratch;           /* LLM_SCAN_SCRATCH floats, 64-byte aligned */
};
#define LLM_SCAN_SCRATCH ((2 * (size_t)LLM_SCAN_CHUNK + 1) * 8 * 2 * 16) /* floats */

/* The backward pass of y = silu(bias + Σ_j w[j]·x[t - k + 1 + j]), without `silu` of the sum itself, over a run of tokens. */
struct llm_conv_back {
    size_t tokens, behind, channels, k; /* behind: how many of the k - 1 tokens after the run belong to its sequence */
    const float *const *before;         /* [k - 1]: the rows before x, oldest first */
    const float *x, *dy;                /* [tokens + behind][ldx], [tokens + behind][ld_dy] */
    size_t ldx, ld_dy;
    const float *w, *bias;              /* [k][ldw]; bias may be NULL */
    size_t ldw;
    float *dx;                          /* [tokens][ld_dx]: written, or added to; NULL: not wanted */
    size_t ld_dx;
    bool add;
    float *d_w;                         /* [k + 1][ld_dw]: of w, of the bias: added to */
    size_t ld_dw;
    bool silu;
};

struct llm_scan_kernels {
    void (*forward)(const struct llm_scan_run *r);
    void (*backward)(const struct llm_scan_back *b);
    /* dt = min(max(softplus(raw + bias), low), high) */
    void (*time_step)(float *dt, const float *raw, const float *bias, float low, float high, size_t n);
    /* d_raw = d_dt·slope of that, 0 where it is at a bound */
    void (*time_step_back)(float *d_raw, const float *d_dt, const float *raw, const float *bias, float low, float high, size_t n);
    float (*sum)(const float *x, size_t n);
    void (*decay)(float *a, const float *a_log, size_t n);                       /* -e^a_log */
    /* y = silu(bias + Σ_j w[j]·taps[j]), without `silu` the sum itself: w [k][ldw], bias may be NULL */
    void (*conv)(float *y, const float *const *taps, const float *w, size_t ldw, const float *bias, size_t k, size_t n,
                 bool silu);
    void (*conv_back)(const struct llm_conv_back *b);
};

#endif
