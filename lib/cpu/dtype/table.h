/* The block-quantised types, a row each: what the rest of the toolkit knows of a type follows from its row.
 *
 * X(ID, name, elements, bytes, ggml, file, encode, kind, whole):
 *   ID        LLM_<ID> is its number in enum llm_dtype
 *   name      as on command lines and in tensor messages; cpu/dtype/<file>.c defines llm_<name>_decode and what the row says YES to
 *   elements  of a block, and the bytes of a block
 *   ggml      ggml's number of the type in GGUF files; -1: GGUF has no such type, and files of other formats alone can hold it
 *   file      llama.cpp's number for files most of whose weights have the type (general.file_type); -1: none
 *   encode    YES: there is llm_<name>_encode, from floats to blocks
 *   kind      YES: there is llm_<name>_kind (cpu/dtype/block.h), from which scales are searched for and GPTQ works
 *   whole     YES: its name stands for "this type for every matrix" (llm-quantize -t); NO: types that mixes alone use, or that are only read
 * A type with neither encode nor kind is written if cpu/dtype/grid.c packs it, and else only read. Products decode its blocks, unless
 * kernels/gemm_blocks.h has a row for products of integers. */
#ifndef LLM_CPU_DTYPE_TABLE_H
#define LLM_CPU_DTYPE_TABLE_H

#define LLM_BLOCK_TYPES(X)                                 \
    X(Q8_0, q8_0, 32, 34, 8, 7, YES, YES, YES)             \
    X(Q4_0, q4_0, 32, 18, 2, 2, YES, YES, YES)             \
    X(Q4_1, q4_1, 32, 20, 3, 3, YES, YES, YES)             \
    X(Q5_0, q5_0, 32, 22, 6, 8, YES, YES, YES)             \
    X(Q5_1, q5_1, 32, 24, 7, 9, YES, YES, YES)             \
    X(Q2_K, q2_k, 256, 84, 10, 10, NO, YES, NO)            \
    X(Q3_K, q3_k, 256, 110, 11, 12, NO, YES, NO)           \
    X(Q4_K, q4_k, 256, 144, 12, 15, NO, YES, NO)           \
    X(Q5_K, q5_k, 256, 176, 13, 17, NO, YES, NO)           \
    X(Q6_K, q6_k, 256, 210, 14, 18, NO, YES, NO)           \
    X(Q8_K, q8_k, 256, 292, 15, -1, NO, NO, NO)            \
    X(IQ4_NL, iq4_nl, 32, 18, 20, 25, NO, YES, YES)        \
    X(IQ4_XS, iq4_xs, 256, 136, 23, 30, NO, YES, NO)       \
    X(MXFP4, mxfp4, 32, 17, 39, 38, YES, YES, YES)         \
    X(NVFP4, nvfp4, 64, 36, 40, 39, YES, YES, YES)         \
    X(IQ3_S, iq3_s, 256, 110, 21, 26, NO, NO, NO)          \
    X(IQ3_XXS, iq3_xxs, 256, 98, 18, 23, NO, NO, NO)       \
    X(IQ2_S, iq2_s, 256, 82, 22, 29, NO, NO, NO)           \
    X(IQ2_XS, iq2_xs, 256, 74, 17, 20, NO, NO, NO)         \
    X(IQ2_XXS, iq2_xxs, 256, 66, 16, 19, NO, NO, NO)       \
    X(IQ1_S, iq1_s, 256, 50, 19, 24, NO, NO, NO)           \
    X(IQ1_M, iq1_m, 256, 56, 29, 31, NO, NO, NO)           \
    X(TQ1_0, tq1_0, 256, 54, 34, 36, NO, NO, NO)           \
    X(TQ2_0, tq2_0, 256, 66, 35, 37, NO, NO, NO)           \
    X(Q8_0_2OF4, q8_0_2of4, 32, 22, -1, -1, YES, NO, YES)  \
    X(BF16_2OF4, bf16_2of4, 32, 36, -1, -1, YES, NO, YES)  \
    X(Q8_0_ROT, q8_0_rot, 32, 34, -1, -1, YES, NO, NO)     \
    X(Q4_0_ROT, q4_0_rot, 32, 18, -1, -1, YES, NO, NO)

/* For users of the columns that say YES or NO: what follows, or nothing; an expression, or NULL. */
#define LLM_ONLY_YES(...) __VA_ARGS__
#define LLM_ONLY_NO(...)
#define LLM_OR_NULL_YES(x) (x)
#define LLM_OR_NULL_NO(x) NULL

#endif
