/* Which instruction set to use: what CPU and operating system allow, lowered by LLM_ISA=scalar|avx2|avxvnni|avx512|avx512vnni|avx512bf16|amx or, on
 * AArch64, LLM_ISA=scalar|neon|i8mm. */
#ifndef LLM_CPU_DETECT_H
#define LLM_CPU_DETECT_H

#include <stddef.h>
#include "base/err.h"

struct llm_kernels;

/* One row an instruction set, weakest first. */
struct llm_isa {
    const char *name;
    int (*usable)(void);                       /* by CPUID and XGETBV / auxv (and arch_prctl for AMX) */
    void (*fill)(struct llm_kernels *k);       /* overrides what it improves */
};
extern const struct llm_isa llm_isas[];

/* Fills llm_k (cpu/kernels.h) once; an unknown or unusable LLM_ISA is status 2 / 69. Called by llm_pool_start. */
int llm_kernels_init(struct llm_err *e) LLM_MUST_CHECK;
/* "avx512bf16", and the CPU's name for people. */
const char *llm_isa_name(void);
void llm_cpu_name(char *text, size_t n);
/* Bytes of memory that could be had now without swapping, by the kernel's estimate and the limit of the process's container; 0: not known. */
double llm_memory_available(void);
/* Bytes of this process that are resident and no pages of files; 0: unknown. */
double llm_memory_own(void);
/* Bytes of memory that this machine has, or that the container allows. */
size_t llm_machine_memory(void);

#endif
