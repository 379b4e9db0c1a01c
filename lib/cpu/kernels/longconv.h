/* Convolutions as long as the sequence, and the implicit filters of Hyena (Poli et al. 2023). Fourier transforms are in double: what they add to the
 * error of a float is far below its last bit, so that sums in another order (decoding) give the same floats but for rare ties. */
#ifndef LLM_CPU_KERNELS_LONGCONV_H
#define LLM_CPU_KERNELS_LONGCONV_H

#include <stdbool.h>
#include <stddef.h>

/* Transforms of LLM_FFT_CHANNELS real channels at once. A series is [n][LLM_FFT_CHANNELS]: the numbers of all channels at one time side by side. n is
 * a power of two. */
enum { LLM_FFT_CHANNELS = 16, LLM_FFT_MAX_LOG = 26 };
/* Factors e^(-2πij/2^log) for all sizes up to n, as the transforms read them: [log] points to e^(-2πij/n), its square and its cube, as cosine and
 * sine, for j < n/4. Kept for the life of the process. NULL: memory is short. */
const double *const *llm_fft_factors(size_t n);

/* Direct sums of a few tokens: y[i] = Σ over j in [0, past + i] of u[j]·k[past + i - j], for i < tokens, in double, oldest first. */
struct llm_conv_step {
    size_t tokens, past, channels;
    const float *u;           /* [past + tokens][ldu] */
    const float *k;           /* [past + tokens][ldk] */
    size_t ldu, ldk;
    double *y;                /* [tokens][channels]: added to */
};

struct llm_longconv_kernels {
    /* Turns the series x into its spectrum, in place. Only `product` and `series` know how a spectrum is laid out. */
    void (*spectrum)(double *x, size_t n, const double *const *factors);
    void (*series)(double *x, size_t n, const double *const *factors); /* the inverse, times n */
    void (*product)(double *y, const double *a, const double *b, bool conjugate, size_t n); /* a·b, or a·conj(b); y may be either */
    void (*step)(const struct llm_conv_step *s);
    void (*sine)(float *y, const float *freq, const float *x, size_t n); /* sin(freq ⊙ x) */
    /* dx = dy ⊙ freq ⊙ cos(freq ⊙ x), or dx += when add; d_freq += dy ⊙ x ⊙ cos(freq ⊙ x). Either may be NULL. dx may be dy. */
    void (*sine_back)(float *dx, float *d_freq, const float *freq, const float *x, const float *dy, bool add, size_t n);
    void (*window)(float *y, const float *x, const float *decay, float time, float shift, bool add, size_t n); /* y = x ⊙ (e^(-time·|decay|) + shift),
                                                                                                 * or y += when add */
};

#endif
