/* Plain floating-point types. Arrays need no alignment: they may lie anywhere in a mapped file. */
#include <string.h>
#include "cpu/dtype/dtype_internal.h"
#include "cpu/half.h"

void llm_f32_decode(const void *in, float *out, size_t n) { memmove(out, in, n * sizeof *out); }
void llm_f32_encode(const float *in, void *out, size_t n) { memmove(out, in, n * sizeof *in); }

void llm_f64_decode(const void *in, float *out, size_t n)
{
    double x;
    for (size_t i = 0; i < n; i++) {
        memcpy(&x, (const char *)in + i * sizeof x, sizeof x);
        out[i] = (float)x;
    }
}

void llm_f64_encode(const float *in, void *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double x = in[i];
        memcpy((char *)out + i * sizeof x, &x, sizeof x);
    }
}

#define HALF(type)                                                   \
    void llm_##type##_n_decode(const void *in, float *out, size_t n) \
    {                                                                \
        uint16_t h;                                                  \
        for (size_t i = 0; i < n; i++) {                             \
            memcpy(&h, (const char *)in + i * sizeof h, sizeof h);   \
            out[i] = llm_##type##_decode(h);                         \
        }                                                            \
    }                                                                \
    void llm_##type##_n_encode(const float *in, void *out, size_t n) \
    {                                                                \
        for (size_t i = 0; i < n; i++) {                             \
            uint16_t h = llm_##type##_encode(in[i]);                 \
            memcpy((char *)out + i * sizeof h, &h, sizeof h);        \
        }                                                            \
    }

HALF(f16)
HALF(bf16)
