#include "cpu/dtype.h"

#include <string.h>
#include <strings.h>
#include "cpu/dtype/dtype_internal.h"
#include "cpu/half.h"

#define FLOAT(text, tensors, bytes, functions, number, file)                                                                         \
    {.name = text, .safetensors = tensors, .block_size = 1, .block_bytes = bytes, .is_float = 1, .decode = llm_##functions##_decode, \
     .encode = llm_##functions##_encode, .ggml = number, .ggml_file = file}
#define INTEGER(text, tensors, bytes, number) \
    {.name = text, .safetensors = tensors, .block_size = 1, .block_bytes = bytes, .ggml = number, .ggml_file = -1}
#define BLOCKS(ID, text, elements, bytes, number, file, encodes, kind, whole)                                                    \
    [LLM_##ID] = {.name = #text, .block_size = elements, .block_bytes = bytes, .is_quantised = 1, .decode = llm_##text##_decode, \
                  .encode = LLM_OR_NULL_##encodes(llm_##text##_encode), .ggml = number, .ggml_file = file},

static void zero_decode(const void *in, float *out, size_t n)
{
    (void)in;
    memset(out, 0, n * sizeof *out);
}

static void zero_encode(const float *in, void *out, size_t n)
{
    (void)in, (void)out, (void)n;
}

const struct llm_dtype_row llm_dtypes[LLM_N_DTYPES] = {
    [LLM_F32] = FLOAT("f32", "F32", 4, f32, 0, 0),
    [LLM_F16] = FLOAT("f16", "F16", 2, f16_n, 1, 1),
    [LLM_BF16] = FLOAT("bf16", "BF16", 2, bf16_n, 30, 32),
    [LLM_F64] = FLOAT("f64", "F64", 8, f64, 28, -1),
    [LLM_I8] = INTEGER("i8", "I8", 1, 24),
    [LLM_U8] = INTEGER("u8", "U8", 1, -1),
    [LLM_I16] = INTEGER("i16", "I16", 2, 25),
    [LLM_U16] = INTEGER("u16", "U16", 2, -1),
    [LLM_I32] = INTEGER("i32", "I32", 4, 26),
    [LLM_U32] = INTEGER("u32", "U32", 4, -1),
    [LLM_I64] = INTEGER("i64", "I64", 8, 27),
    [LLM_U64] = INTEGER("u64", "U64", 8, -1),
    [LLM_BOOL] = INTEGER("bool", "BOOL", 1, -1),
    LLM_BLOCK_TYPES(BLOCKS)
    [LLM_ZERO] = {.name = "zero", .block_size = 1, .is_quantised = 1, .decode = zero_decode, .encode = zero_encode, .ggml = -1, .ggml_file = -1},
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
