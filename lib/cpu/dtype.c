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
