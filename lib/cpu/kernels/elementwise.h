/* One number in, one out: conversion, sums, activations, gated activations, dropout, rotation of channels. All are over n contiguous floats; y may be
 * x (in place) where both are given, no other overlap. An element's value does not depend on n or on where it stands in the run. */
#ifndef LLM_CPU_KERNELS_ELEMENTWISE_H
#define LLM_CPU_KERNELS_ELEMENTWISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum llm_act { LLM_ACT_GELU /* erf */, LLM_ACT_GELU_TANH, LLM_ACT_RELU, LLM_ACT_SILU, LLM_ACT_SIGMOID, LLM_ACT_TANH, LLM_ACT_RELU2 /* relu² */,
               LLM_ACT_QUICK_GELU /* x·sigmoid(1.702·x) */,
               LLM_ACT_LINEAR /* x itself: gated, a product */,
               LLM_N_ACTS };

struct llm_elementwise_kernels {
    void (*add)(float *y, const float *a, const float *b, size_t n);                     /* y = a + b; y may be either */
    void (*axpy)(float *y, float factor, const float *x, size_t n);                      /* y += factor·x */
    void (*scale)(float *y, float factor, const float *x, size_t n);                     /* y = factor·x */
    void (*to_bf16)(uint16_t *y, const float *x, size_t n);                              /* nearest even */
    void (*from_bf16)(float *y, const uint16_t *x, size_t n);
    void (*from_f16)(float *y, const uint16_t *x, size_t n);
    void (*act[LLM_N_ACTS])(float *y, const float *x, size_t n);
    /* dx = dy·act'(x), or dx += when add; dx may be dy. */
    void (*act_back[LLM_N_ACTS])(float *dx, const float *x, const float *dy, bool add, size_t n);
    void (*gated[LLM_N_ACTS])(float *y, const float *gate, const float *up, size_t n);   /* act(gate)·up */
    /* d_gate = dy·up·act'(gate), d_up = dy·act(gate), each += when its add; either may be NULL; d_gate or d_up may be dy. */
    void (*gated_back[LLM_N_ACTS])(float *d_gate, float *d_up, const float *gate, const float *up, const float *dy, bool add_gate, bool add_up,
                                   size_t n);
    /* y = x·keep, or y += when add. keep = factor, or 0 where the 24-bit draw of channel 0, 1, …, n - 1 is below `drop` (p·2^24): the numbers of
     * llm_rng_u32 (base/rng.h) with this key and counter. */
    void (*dropout)(float *y, const float *x, const uint32_t key[2], const uint32_t counter[3], uint32_t drop, float factor, bool add, size_t n);
    /* Turns pairs of channels by angles whose cos and sin are given, [half] each: pairs (i, i + half), or (2i, 2i + 1).
     * y may be x; y += when add. */
    void (*rope_halves)(float *y, const float *x, const float *cos, const float *sin, bool add, size_t half);
    void (*rope_interleaved)(float *y, const float *x, const float *cos, const float *sin, bool add, size_t half);
};

#endif
