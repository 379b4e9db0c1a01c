/* The kernels of this process: function pointers filled once at start (cpu/detect.h). A family is one source in cpu/kernels/, built once per
 * instruction set with the vectors of cpu/simd.h; its header cpu/kernels/<family>.h has the struct of its pointers, the contract of each,
 * and stands in the list below. The scalar build is the same source with vectors of one element: the reference that the tests compare
 * the others with, beside formulas in double. A micro-kernel (cpu/micro/<tile>_<isa>.c) overrides single pointers.
 *
 * To add a family: kernels/<name>.c and .h, and its row in LLM_KERNEL_FAMILIES. */
#ifndef LLM_CPU_KERNELS_H
#define LLM_CPU_KERNELS_H

#include "cpu/kernels/gemm.h"        /* matmul tiles, packing, quantised dots */
#include "cpu/kernels/elementwise.h" /* convert, add, scale, activations, gated activations, dropout, rope */
#include "cpu/kernels/rows.h"        /* softmax, norms and their backward, reductions over rows, cross-entropy rows */
#include "cpu/kernels/attention.h"   /* 64-key tiles of online softmax, forward and backward */
#include "cpu/kernels/recurrent.h"   /* steps of recurrent cells */
#include "cpu/kernels/scan.h"        /* selective scans, short convolutions */
#include "cpu/kernels/wkv.h"         /* RWKV's recurrences */
#include "cpu/kernels/longconv.h"    /* long convolutions by FFT, implicit filters */
#include "cpu/kernels/optim.h"       /* AdamW and friends, sums of squares */
#include "cpu/kernels/bytes.h"       /* classes of characters */
#include "cpu/kernels/fit.h"         /* scales of quantised blocks */
#include "cpu/kernels/search.h"      /* products of a vector with chosen rows */
#include "cpu/kernels/normals.h"     /* random numbers */

#define LLM_KERNEL_FAMILIES(X) X(gemm) X(gemm_fours) X(gemm_narrow) X(elementwise) X(rows) X(attention) X(recurrent) X(scan) X(wkv) X(longconv) \
    X(optim) X(bytes) X(fit) X(search) X(normals)

struct llm_kernels {
    const char *isa;
    struct llm_gemm_kernels gemm;
    struct llm_elementwise_kernels elementwise;
    struct llm_rows_kernels rows;
    struct llm_attention_kernels attention;
    struct llm_recurrent_kernels recurrent;
    struct llm_scan_kernels scan;
    struct llm_wkv_kernels wkv;
    struct llm_longconv_kernels longconv;
    struct llm_optim_kernels optim;
    struct llm_bytes_kernels bytes;
    struct llm_fit_kernels fit;
    struct llm_search_kernels search;
    struct llm_normals_kernels normals;
};

extern struct llm_kernels llm_k;

/* In cpu/kernels/<family>.c:  void KERNEL(llm_fill_<family>)(struct llm_kernels *k)  sets k-><family>.
 * KERNEL(name) is name_<isa>. */
#define LLM_KERNEL_PASTE2(a, b) a##_##b
#define LLM_KERNEL_PASTE(a, b) LLM_KERNEL_PASTE2(a, b)
#define KERNEL(name) LLM_KERNEL_PASTE(name, LLM_ISA)
#ifdef LLM_ISA
#define LLM_KERNEL_PROTOTYPE(family) void KERNEL(llm_fill_##family)(struct llm_kernels *k);
LLM_KERNEL_FAMILIES(LLM_KERNEL_PROTOTYPE)
#endif

#endif
