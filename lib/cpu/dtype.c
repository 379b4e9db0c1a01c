#include "cpu/dtype.h"

#include <string.h>
#include <strings.h>
#include "cpu/dtype/dtype_internal.h"
#include "cpu/half.h"

#define PLAIN(text, tensors, bytes) {.name = text, .safetensors = tensors, .block_size = 1, .block_bytes = bytes}

const struct llm_dtype_row llm_dtypes[LLM_N_DTYPES] = {
    [LLM_F32] = {"f32", "F32", 1, 4, 1, 0, llm_f32_decode, llm_f32_encode},
    [LLM_F16] = {"f16", "F16", 1, 2, 1, 0, llm_f16_decode_n, llm_f16_encode_n},
    [LLM_BF16] = {"bf16", "BF16", 1, 2, 1, 0, llm_bf16_decode_n, llm_bf16_encode_n},
    [LLM_F64] = {"f64", "F64", 1, 8, 1, 0, llm_f64_decode, llm_f64_encode},
    [LLM_I8] = PLAIN("i8", "I8", 1),
    [LLM_U8] = PLAIN("u8", "U8", 1),
    [LLM_I16] = PLAIN("i16", "I16", 2),
    [LLM_U16] = PLAIN("u16", "U16", 2),
    [LLM_I32] = PLAIN("i32", "I32", 4),
    [LLM_U32] = PLAIN("u32", "U32", 4),
    [LLM_I64] = PLAIN("i64", "I64", 8),
    [LLM_U64] = PLAIN("u64", "U64", 8),
    [LLM_BOOL] = PLAIN("bool", "BOOL", 1),
    [LLM_Q8_0] = {"q8_0", NULL, 32, 34, 0, 1, llm_q8_0_decode, llm_q8_0_encode},
    [LLM_Q4_0] = {"q4_0", NULL, 32, 18, 0, 1, llm_q4_0_decode, llm_q4_0_encode},
    [LLM_Q4_1] = {"q4_1", NULL, 32, 20, 0, 1, llm_q4_1_decode, llm_q4_1_encode},
    [LLM_Q5_0] = {"q5_0", NULL, 32, 22, 0, 1, llm_q5_0_decode, llm_q5_0_encode},
    [LLM_Q5_1] = {"q5_1", NULL, 32, 24, 0, 1, llm_q5_1_decode, llm_q5_1_encode},
    [LLM_Q2_K] = {"q2_k", NULL, 256, 84, 0, 1, llm_q2_k_decode, NULL},
    [LLM_Q3_K] = {"q3_k", NULL, 256, 110, 0, 1, llm_q3_k_decode, NULL},
    [LLM_Q4_K] = {"q4_k", NULL, 256, 144, 0, 1, llm_q4_k_decode, NULL},
    [LLM_Q5_K] = {"q5_k", NULL, 256, 176, 0, 1, llm_q5_k_decode, NULL},
    [LLM_Q6_K] = {"q6_k", NULL, 256, 210, 0, 1, llm_q6_k_decode, NULL},
    [LLM_Q8_K] = {"q8_k", NULL, 256, 292, 0, 1, llm_q8_k_decode, NULL},
    [LLM_IQ4_NL] = {"iq4_nl", NULL, 32, 18, 0, 1, llm_iq4_nl_decode, NULL},
    [LLM_IQ4_XS] = {"iq4_xs", NULL, 256, 136, 0, 1, llm_iq4_xs_decode, NULL},
    [LLM_MXFP4] = {"mxfp4", NULL, 32, 17, 0, 1, llm_mxfp4_decode, llm_mxfp4_encode},
};

enum llm_dtype llm_dtype_find(const char *name)
{
    for (int t = 0; t < LLM_N_DTYPES; t++)
        if (strcasecmp(name, llm_dtypes[t].name) == 0) return (enum llm_dtype)t; /* safetensors' names differ in case alone */
    return LLM_NO_DTYPE;
}

size_t llm_dtype_bytes(enum llm_dtype t, uint64_t n)
{
    size_t bytes;
    const struct llm_dtype_row *row = &llm_dtypes[t];
    if (n % (uint64_t)row->block_size) return 0;
    if (__builtin_mul_overflow(n / (uint64_t)row->block_size, (uint64_t)row->block_bytes, &bytes)) return 0;
    return bytes;
}

uint16_t llm_bf16_from_f32(float x) { return llm_bf16_encode(x); }
float llm_bf16_to_f32(uint16_t x) { return llm_bf16_decode(x); }
uint16_t llm_f16_from_f32(float x) { return llm_f16_encode(x); }
float llm_f16_to_f32(uint16_t x) { return llm_f16_decode(x); }
