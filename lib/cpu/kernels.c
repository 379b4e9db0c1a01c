/* The table of kernels, filled from every family's build for one instruction set, weaker ones first, so that a family or a micro-kernel
 * that does not exist for the chosen one is that of the next weaker. */
#include "cpu/kernels.h"

struct llm_kernels llm_k;

#define CALL(family, isa) llm_fill_##family##_##isa(k);
#define DECLARE(family, isa) void llm_fill_##family##_##isa(struct llm_kernels *k);

/* llm_fill_<isa>: all families of this instruction set over `weaker`. */
#define ISA_FILL(isa, weaker)                            \
    void llm_fill_##isa(struct llm_kernels *k);          \
    LLM_KERNEL_FAMILIES(DECLARE_##isa)                   \
    void llm_fill_##isa(struct llm_kernels *k)           \
    {                                                    \
        weaker                                           \
        LLM_KERNEL_FAMILIES(CALL_##isa)                  \
    }

#define DECLARE_scalar(family) DECLARE(family, scalar)
#define CALL_scalar(family) CALL(family, scalar)
ISA_FILL(scalar, )

#if defined __x86_64__
#define DECLARE_avx2(family) DECLARE(family, avx2)
#define CALL_avx2(family) CALL(family, avx2)
ISA_FILL(avx2, llm_fill_scalar(k);)

#define DECLARE_avx512(family) DECLARE(family, avx512)
#define CALL_avx512(family) CALL(family, avx512)
ISA_FILL(avx512, llm_fill_avx2(k);)

/* VNNI has dot products of bytes for quantised products and nothing else. */
#define VNNI_FILL(isa, weaker)                            \
    void llm_fill_##isa(struct llm_kernels *k);           \
    DECLARE(gemm_quantised, isa)                          \
    void llm_fill_##isa(struct llm_kernels *k)            \
    {                                                     \
        llm_fill_##weaker(k);                             \
        CALL(gemm_quantised, isa)                         \
    }
VNNI_FILL(avxvnni, avx2)
VNNI_FILL(avx512vnni, avx512)

/* Dot products of pairs of BF16, for products and attention and nothing else. */
void llm_fill_avx512bf16(struct llm_kernels *k);
DECLARE(gemm, avx512bf16)
DECLARE(gemm_fours, avx512bf16)
DECLARE(attention, avx512bf16)
void llm_fill_avx512bf16(struct llm_kernels *k)
{
    llm_fill_avx512vnni(k);
    CALL(gemm, avx512bf16)
    CALL(gemm_fours, avx512bf16)
    CALL(attention, avx512bf16)
}

/* AMX has tiles for products and nothing else. */
void llm_fill_amx(struct llm_kernels *k);
DECLARE(gemm, amx)
DECLARE(attention, amx)
void llm_fill_amx(struct llm_kernels *k)
{
    llm_fill_avx512bf16(k);
    CALL(gemm, amx)
    CALL(attention, amx)
}
#elif defined __aarch64__
#define DECLARE_neon(family) DECLARE(family, neon)
#define CALL_neon(family) CALL(family, neon)
ISA_FILL(neon, llm_fill_scalar(k);)

/* Matrix products of 2 × 2 blocks, for products and nothing else. */
void llm_fill_i8mm(struct llm_kernels *k);
DECLARE(gemm, i8mm)
void llm_fill_i8mm(struct llm_kernels *k)
{
    llm_fill_neon(k);
    CALL(gemm, i8mm)
}
#endif
