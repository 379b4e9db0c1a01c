/* Data types: one row each, block-quantised ones too. A new block-quantised type is one file in cpu/dtype/ and its row in cpu/dtype/table.h. */
#ifndef LLM_CPU_DTYPE_H
#define LLM_CPU_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include "cpu/dtype/table.h"

enum llm_dtype {
    LLM_F32, LLM_F16, LLM_BF16, LLM_F64, LLM_I8, LLM_U8, LLM_I16, LLM_U16, LLM_I32, LLM_U32, LLM_I64, LLM_U64, LLM_BOOL,
#define LLM_NUMBER(ID, ...) LLM_##ID,
    LLM_BLOCK_TYPES(LLM_NUMBER)
#undef LLM_NUMBER
    LLM_ZERO, /* every element is 0 and none is stored: a matrix of which low-rank factors stand alone (struct llm_adapter) */
    LLM_N_DTYPES, LLM_NO_DTYPE = -1
};

struct llm_dtype_row {
    const char *name;        /* on command lines: "f32", "q8_0" */
    const char *safetensors; /* "F32"; NULL for block types, which are stored as U8 */
    int block_size;          /* elements a block, 1 for plain types */
    int block_bytes;
    int is_float;            /* plain floating point: F32 F16 BF16 F64 */
    int is_quantised;
    /* n elements, a multiple of block_size; NULL for integer types. Encoding rounds to nearest even; block types as ggml does.
     * encode: NULL too for block types that are only read, or written by llm_block_kind.pack alone. */
    void (*decode)(const void *in, float *out, size_t n);
    void (*encode)(const float *in, void *out, size_t n);
    int ggml;                /* ggml's number of the type in GGUF files; -1: it has none */
    int ggml_file;           /* llama.cpp's number for files most of whose weights have the type; -1: it has none */
};

extern const struct llm_dtype_row llm_dtypes[LLM_N_DTYPES];

/* By command-line name ("q8_0", any case) or safetensors name; LLM_NO_DTYPE when unknown. */
enum llm_dtype llm_dtype_find(const char *name);
/* Bytes of n elements in rows of row_len (each row whole blocks); 0 when n is not a multiple or the product overflows. */
size_t llm_dtype_bytes(enum llm_dtype t, uint64_t n);

/* The type of the blocks of a type that stores rotated values (q8_0 of q8_0_rot); every other type is its own. */
enum llm_dtype llm_dtype_unrotated(enum llm_dtype t);
/* Rotates each 32 of n values, as those types do; again: back. */
void llm_dtype_rotate(float *x, size_t n);

uint16_t llm_bf16_from_f32(float x); /* nearest even; NaN stays a quiet NaN */
float llm_bf16_to_f32(uint16_t x);
uint16_t llm_f16_from_f32(float x);
float llm_f16_to_f32(uint16_t x);

#endif
