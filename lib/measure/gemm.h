/* How fast matrix products of given shapes are. */
#ifndef LLM_MEASURE_GEMM_H
#define LLM_MEASURE_GEMM_H

#include "cpu/matmul.h"

enum llm_gemm_pass { LLM_GEMM_FORWARD, LLM_GEMM_DX, LLM_GEMM_DW };
struct llm_gemm_job {
    int64_t m, n, k;              /* tokens, outputs, inputs */
    enum llm_dtype weight;        /* DX and DW: F32 or BF16 */
    enum llm_compute compute;
    enum llm_gemm_pass pass;
    bool panels;                  /* forward, DW: the inputs stand packed (llm_panels_put), where the instruction set has panels */
};
/* Whether the weight is read from memory each time: products of a few tokens, as in decoding. The other passes and larger ones find it in caches. */
bool llm_gemm_is_cold(const struct llm_gemm_job *job);
double llm_gemm_bytes(const struct llm_gemm_job *job); /* of weight, inputs and outputs */
/* Operations a second (2·m·n·k each), median of runs over about `seconds`; *best the fastest. 0 or -1. */
int llm_gemm_speed(const struct llm_gemm_job *job, double seconds, double *median, double *best, struct llm_err *e) LLM_MUST_CHECK;

#endif
