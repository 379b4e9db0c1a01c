/* The rows' functions, one file in this folder a type or group of types. */
#ifndef LLM_CPU_DTYPE_INTERNAL_H
#define LLM_CPU_DTYPE_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

void llm_f32_decode(const void *in, float *out, size_t n);
void llm_f32_encode(const float *in, void *out, size_t n);
void llm_f64_decode(const void *in, float *out, size_t n);
void llm_f64_encode(const float *in, void *out, size_t n);
void llm_f16_decode_n(const void *in, float *out, size_t n);
void llm_f16_encode_n(const float *in, void *out, size_t n);
void llm_bf16_decode_n(const void *in, float *out, size_t n);
void llm_bf16_encode_n(const float *in, void *out, size_t n);
void llm_q8_0_decode(const void *in, float *out, size_t n);
void llm_q8_0_encode(const float *in, void *out, size_t n);
void llm_q4_0_decode(const void *in, float *out, size_t n);
void llm_q4_0_encode(const float *in, void *out, size_t n);
void llm_q4_1_decode(const void *in, float *out, size_t n);
void llm_q4_1_encode(const float *in, void *out, size_t n);
void llm_q5_0_decode(const void *in, float *out, size_t n);
void llm_q5_0_encode(const float *in, void *out, size_t n);
void llm_q5_1_decode(const void *in, float *out, size_t n);
void llm_q5_1_encode(const float *in, void *out, size_t n);
void llm_q2_k_decode(const void *in, float *out, size_t n);
void llm_q3_k_decode(const void *in, float *out, size_t n);
void llm_q4_k_decode(const void *in, float *out, size_t n);
void llm_q5_k_decode(const void *in, float *out, size_t n);
void llm_q6_k_decode(const void *in, float *out, size_t n);
void llm_q8_k_decode(const void *in, float *out, size_t n);
void llm_iq4_nl_decode(const void *in, float *out, size_t n);
void llm_iq4_xs_decode(const void *in, float *out, size_t n);
void llm_mxfp4_decode(const void *in, float *out, size_t n);
void llm_mxfp4_encode(const float *in, void *out, size_t n);


/* The integer below x · inverse + 1/2, at most `top`; 0 for NaN. */
static inline uint8_t llm_code_above(float x, float inverse, int top)
{
    float y = x * inverse + 0.5f;
    return y > 0 ? y < (float)top ? (uint8_t)y : (uint8_t)top : 0;
}

#endif
