/* The rows' functions, one file in this folder a type or group of types. */
#ifndef LLM_CPU_DTYPE_INTERNAL_H
#define LLM_CPU_DTYPE_INTERNAL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "cpu/dtype/table.h"

void llm_f32_decode(const void *in, float *out, size_t n);
void llm_f32_encode(const float *in, void *out, size_t n);
void llm_f64_decode(const void *in, float *out, size_t n);
void llm_f64_encode(const float *in, void *out, size_t n);
void llm_f16_n_decode(const void *in, float *out, size_t n);
void llm_f16_n_encode(const float *in, void *out, size_t n);
void llm_bf16_n_decode(const void *in, float *out, size_t n);
void llm_bf16_n_encode(const float *in, void *out, size_t n);
/* Declared of every block-quantised type; defined where its row in table.h says so. */
#define LLM_DECLARED(ID, name, ...)                                \
    void llm_##name##_decode(const void *in, float *out, size_t n); \
    void llm_##name##_encode(const float *in, void *out, size_t n);
LLM_BLOCK_TYPES(LLM_DECLARED)
#undef LLM_DECLARED

/* The largest size of 32 values; NaN is left out. By bits, of which compilers make vectors. */
static inline float llm_largest_size(const float *x)
{
    int32_t bits[32], top[8] = {0};
    memcpy(bits, x, sizeof bits);
    for (int i = 0; i < 32; i += 8) {
        for (int k = 0; k < 8; k++) {
            int32_t size = bits[i + k] & 0x7fffffff;
            size = size > 0x7f800000 ? 0 : size;
            top[k] = size > top[k] ? size : top[k];
        }
    }
    for (int k = 1; k < 8; k++) top[0] = top[k] > top[0] ? top[k] : top[0];
    float largest;
    memcpy(&largest, top, sizeof largest);
    return largest;
}

/* The integer below x · inverse + 1/2, at most `top`; 0 for NaN. */
static inline uint8_t llm_code_above(float x, float inverse, int top)
{
    float y = x * inverse + 0.5f;
    return y > 0 ? y < (float)top ? (uint8_t)y : (uint8_t)top : 0;
}

#endif
