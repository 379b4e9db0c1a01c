/* BF16 and IEEE half precision, one number at a time, by integer arithmetic: every build has them and they agree with what the SIMD
 * conversions do. To nearest even; NaN stays a NaN and becomes quiet; half precision keeps subnormals. */
#ifndef LLM_CPU_HALF_H
#define LLM_CPU_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t llm_float_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float llm_bits_float(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float llm_bf16_decode(uint16_t h)
{
    return llm_bits_float((uint32_t)h << 16);
}

static inline uint16_t llm_bf16_encode(float x)
{
    uint32_t u = llm_float_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

static inline float llm_f16_decode(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    if (exponent == 31) return llm_bits_float(sign | 0x7f800000u | mantissa << 13 | (mantissa ? 0x400000u : 0));
    if (exponent) return llm_bits_float(sign | (exponent + 112) << 23 | mantissa << 13);
    float magnitude = (float)mantissa * 0x1p-24f;
    return sign ? -magnitude : magnitude;
}

static inline uint16_t llm_f16_encode(float x)
{
    uint32_t u = llm_float_bits(x), sign = u >> 16 & 0x8000, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x1ff));
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00); /* from 65520 on: infinity */
    if (a < 0x38800000u) { /* below 2^-14: adding 1/2 leaves the subnormal's mantissa, rounded, in the low bits */
        return (uint16_t)(sign | (llm_float_bits(llm_bits_float(a) + 0.5f) - 0x3f000000u));
    }
    a += 0xfffu + (a >> 13 & 1);
    return (uint16_t)(sign | (a - 0x38000000u) >> 13);
}

#endif
