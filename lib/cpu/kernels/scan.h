/* Selective scans (Mamba; Gu & Dao 2023, Dao & Gu 2024) over a run of tokens, and short convolutions. Channels are independent of each other
 * and contiguous; a channel's numbers depend neither on how many channels nor on how many tokens a call has. */
#ifndef LLM_CPU_KERNELS_SCAN_H
#define LLM_CPU_KERNELS_SCAN_H

#include <stdbool.h>
#include <stddef.h>

enum { LLM_SCAN_CHUNK = 16, LLM_SCAN_STATES = 256 }; /* most tokens of a backward call; most states of a channel */

/* h[n] = e^(dt·a[n])·h[n] + dt·x·b[n], y = Σ h[n]·c[n] + skip·x, token by token. */
struct llm_scan_run {
    size_t tokens, channels, states;
    bool one_decay;           /* a [channels] for all states, else [states][lda] */
    const float *a, *skip;    /* skip [channels] */
    size_t lda;
    const float *x, *dt;      /* [tokens][ldx], [tokens][ldt] */
    const float *b, *c;       /* [tokens][ldb], [tokens][ldc]: of states each */
    size_t ldx, ldt, ldb, ldc;
    float *h;                 /* [states][ldh]: before the run, and behind it */
    size_t ldh;
    float *y;                 /* [tokens][ldy] */
    size_t ldy;
};
/* The way back over at most LLM_SCAN_CHUNK tokens. */
struct llm_scan_back {
    struct llm_scan_run run;  /* h: before the run, not changed; y not used */
    const float *dy;
    size_t ld_dy;
    float *g;                 /* [states][channels]: of the state behind the run, becomes that of the state before it */
    float *dx, *ddt;          /* [tokens][ld_dx], [tokens][ld_ddt]: written */
    size_t ld_dx, ld_ddt;
    float *d_bc;              /* [tokens][2·states]: of b, of c, summed over the channels: written */
    float *da, *d_skip;       /* as a (without gaps: [states][channels]) and skip: added to */
    float *scratch;           /* LLM_SCAN_SCRATCH floats, 64-byte aligned */
};
#define LLM_SCAN_SCRATCH ((2 * (size_t)LLM_SCAN_CHUNK + 1) * 8 * 2 * 16) /* floats */

struct llm_scan_kernels {
    void (*forward)(const struct llm_scan_run *r);
    void (*backward)(const struct llm_scan_back *b);
    /* dt = min(max(softplus(raw + bias), low), high) */
    void (*time_step)(float *dt, const float *raw, const float *bias, float low, float high, size_t n);
    /* d_raw = d_dt·slope of that, 0 where it is at a bound */
    void (*time_step_back)(float *d_raw, const float *d_dt, const float *raw, const float *bias, float low, float high, size_t n);
    void (*decay)(float *a, const float *a_log, size_t n);                       /* -e^a_log */
    /* y = silu(bias + Σ_j w[j]·taps[j]): w [k][ldw], bias may be NULL */
    void (*conv)(float *y, const float *const *taps, const float *w, size_t ldw, const float *bias, size_t k, size_t n);
    /* d_sum = dy·silu'(bias + Σ …) */
    void (*conv_back)(float *d_sum, const float *dy, const float *const *taps, const float *w, size_t ldw, const float *bias, size_t k, size_t n);
    /* y = Σ_j w[j]·rows[j], or added to y */
    void (*conv_input)(float *y, bool add, const float *const *rows, const float *w, size_t ldw, size_t k, size_t n);
    /* d_w[j] += d_sum·taps[j]: d_w [k][ldw] */
    void (*conv_weights)(float *d_w, size_t ldw, const float *d_sum, const float *const *taps, size_t k, size_t n);
};

#endif
