/* The recurrences of RWKV over a run of tokens. Numbers of a channel depend neither on how many channels nor on how many tokens a call has. */
#ifndef LLM_CPU_KERNELS_WKV_H
#define LLM_CPU_KERNELS_WKV_H

#include <stddef.h>

enum { LLM_WKV_CHUNK = 32 }; /* tokens of one backward call at most */

/* RWKV 4 (Peng et al. 2023): y[t] is the mean of v[i], i ≤ t, with weights e^(w·(t - 1 - i) + k[i]) for i < t and e^(u + k[t]) for i = t. The state
 * is its numerator and its denominator, both divided by e^max, and max; all 0 before the first token. */
struct llm_wkv4_run {
    size_t tokens, channels;
    const float *w, *u;        /* [channels]; w < 0 */
    const float *k, *v;        /* [tokens][ldk], [tokens][ldv] */
    size_t ldk, ldv;
    float *state;              /* [3][ld_state]: numerators, denominators, maxima; in: before the run; out: after it */
    size_t ld_state;
    float *y;                  /* [tokens][ldy] */
    size_t ldy;
};
/* The backward pass over at most LLM_WKV_CHUNK tokens. */
struct llm_wkv4_back {
    struct llm_wkv4_run run;   /* state: before the run, not changed; y is not used */
    const float *dy;           /* [tokens][ld_dy] */
    size_t ld_dy;
    float *g;                  /* [2][channels] in: gradients of numerators and denominators after the run; out: of those before it */
    float *dk, *dv;            /* [tokens][ld_dk], [tokens][ld_dv]: written */
    size_t ld_dk, ld_dv;
    float *dw, *du;            /* [channels]: added to */
};

/* RWKV 5 to 7 (Peng et al. 2024, 2025): a head has a matrix of states, S [keys i, values j]. Without a and b (versions 5 and 6):
 * y[j] = Σ_i r[i]·(S[i, j] + u[i]·k[i]·v[j]), then S[i, j] = w[i]·S[i, j] + k[i]·v[j]. With them (version 7), where q[j] = Σ_i a[i]·S[i, j]:
 * S[i, j] = w[i]·S[i, j] + b[i]·q[j] + k[i]·v[j], then y[j] = Σ_i r[i]·S[i, j]. */
struct llm_wkv_run {
    size_t tokens, size;       /* size: of the head, keys and values */
    const float *r, *k, *v, *w, *a, *b; /* [tokens][ld], each of `size`; a and b: both or neither */
    size_t ldr, ldk, ldv, ldw, lda, ldb; /* ldw 0: w is the same for all tokens */
    const float *u;            /* [size]; NULL with a and b */
    float *state;              /* [size][size] in: before the run; out: after it */
    float *y;                  /* [tokens][ldy] */
    size_t ldy;
};
/* The backward pass over at most LLM_WKV_CHUNK tokens. */
struct llm_wkv_back {
    struct llm_wkv_run run;    /* state: before the run, not changed; y is not used */
    const float *dy;           /* [tokens][ld_dy] */
    size_t ld_dy;
    float *g;                  /* [size][size] in: gradient of the state after the run; out: of that before it */
    float *dr, *dk, *dv, *dw, *da, *db; /* [tokens][ld]: written; if ldw is 0, dw is [size] and added to */
    size_t ld;
    float *du;                 /* [size]: added to */
    float *scratch;            /* LLM_WKV_SCRATCH(size) floats */
};
#define LLM_WKV_SCRATCH(size) ((LLM_WKV_CHUNK + 1) * (size) * (size) + 2 * (size))

/* The factors of states from the model's numbers x: e^(-e^x) (versions 4 to 6), or e^(-sigmoid(x)/√e) (version 7). */
enum llm_wkv_decay { LLM_WKV_EXP, LLM_WKV_SIGMOID, LLM_WKV_DECAYS };

/* Shares of RWKV 6, which depend on the token: share + hᵀ·w, where h [rank] is the token's and w is [rank][ldw]. */
struct llm_mix_rank {
    const float *share, *w;    /* [n] and [rank][ldw] */
    size_t rank, ldw, n;
};

struct llm_wkv_kernels {
    void (*forward4)(const struct llm_wkv4_run *r);
    void (*backward4)(const struct llm_wkv4_back *b);
    void (*forward)(const struct llm_wkv_run *r);
    void (*backward)(const struct llm_wkv_back *b);
    void (*decay[LLM_WKV_DECAYS])(float *y, const float *x, size_t n);
    void (*decay_back[LLM_WKV_DECAYS])(float *dx, const float *dy, const float *x, size_t n); /* dx += dy·slope */
    void (*mix)(float *y, const float *x, const float *d, const float *share, size_t n); /* y = x + d ⊙ share; y may be x */
    /* d_share += dy ⊙ d */
    void (*mix_back)(float *d_share, const float *dy, const float *d, size_t n);
    void (*mix_rank)(float *y, const float *x, const float *d, const float *h, const struct llm_mix_rank *m); /* y = x + d ⊙ (share + hᵀ·w) */
    /* dd += dy ⊙ (share + hᵀ·w); dh[i] += Σ dy ⊙ d ⊙ w[i]. Either may be NULL. */
    void (*mix_rank_back)(float *dd, float *dh, const float *dy, const float *d, const float *h, const struct llm_mix_rank *m);
    /* dw[i] += h[i]·dy ⊙ d for each row i < rank; dw is [rank][ldw] */
    void (*mix_rank_dw)(float *dw, const float *dy, const float *d, const float *h, size_t rank, size_t ldw, size_t n);
};

#endif
