/* Shared by the sources of the gemm family and its micro-kernels. */
#ifndef LLM_CPU_KERNELS_GEMM_INTERNAL_H
#define LLM_CPU_KERNELS_GEMM_INTERNAL_H

#include "cpu/kernels.h"

#if defined __clang__
#define LLM_UNROLL _Pragma("unroll")
#else
#define LLM_UNROLL _Pragma("GCC unroll 32")
#endif

/* The quantised products of this instruction set (kernels/gemm_quantised.c). */
void KERNEL(llm_fill_gemm_quantised)(struct llm_kernels *k);
/* Its quantised products for many rows, on top of those (kernels/gemm_quantised_rows.c; not for vectors shorter than 8). */
void KERNEL(llm_fill_gemm_quantised_rows)(struct llm_kernels *k);
/* Panels of BF16X3 (micro/gemm_x3_amx.c), without the product. */
void llm_fill_gemm_x3_amx(struct llm_kernels *k);
/* Quantised products for many rows by AMX (micro/gemm_int8_amx.c). */
void llm_fill_gemm_int8_amx(struct llm_kernels *k);
/* The same by SMMLA (micro/gemm_int8_i8mm.c). */
void llm_fill_gemm_int8_i8mm(struct llm_kernels *k);

#endif
