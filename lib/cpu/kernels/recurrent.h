/* One step of recurrent cells, all over n contiguous floats a gate. */
#ifndef LLM_CPU_KERNELS_RECURRENT_H
#define LLM_CPU_KERNELS_RECURRENT_H

#include <stddef.h>

/* A step of an LSTM, gates in the order i, f, g, o as in PyTorch. */
struct llm_lstm_step {
    float *gates;             /* [4n]: σ, σ, tanh, σ of the sums */
    float *c;                 /* [n] f·c_before + i·g */
    const float *c_before;    /* [n]; may be c */
    float *h;                 /* [n] o·tanh(c) */
    const float *x, *r;       /* [4n] the input's and the previous state's contributions; the gates are functions of their sum */
};
struct llm_lstm_back_step {
    float *d_sums;            /* [4n] */
    float *dc;                /* [n] in: gradient of c from the next step; out: gradient of c_before */
    const float *gates, *c, *c_before;
    const float *dy, *dr;     /* [n] gradients of h: from the output, and from the next step */
};

struct llm_recurrent_kernels {
    void (*lstm)(const struct llm_lstm_step *s, size_t n);
    void (*lstm_back)(const struct llm_lstm_back_step *s, size_t n);
    void (*tanh)(float *h, const float *x, const float *r, size_t n);                            /* h = tanh(x + r) */
    void (*tanh_back)(float *d_sum, const float *h, const float *dy, const float *dr, size_t n); /* (dy + dr)·(1 - h²) */
};

#endif
