/* Between matmul.c, matmul_weight.c and matmul_quantised.c. */
#ifndef LLM_CPU_MATMUL_INTERNAL_H
#define LLM_CPU_MATMUL_INTERNAL_H

#include "cpu/kernels.h"
#include "cpu/matmul.h"
#include "cpu/pages.h"

/* What llm_weight.packed[] holds. The first of a block-quantised weight is the int8 kernels' form. */
enum { PACKED_BF16, PACKED_BF16_DX, PACKED_F32, PACKED_F32_DX, PACKED_X3, PACKED_X3_DX, PACKED_FOURS, N_PACKED };
_Static_assert(sizeof(((struct llm_weight *)0)->packed) / sizeof(void *) == N_PACKED, "a place for each form");

static inline int64_t panels_of(int64_t n) { return (n + LLM_GEMM_PANEL - 1) / LLM_GEMM_PANEL; }

/* Bytes of a panel of k elements in each of its 16 lines. */
static inline size_t panel_bytes(const struct llm_gemm *g, int64_t k)
{
    return (size_t)((k + g->k_unit - 1) / g->k_unit * g->k_unit) * LLM_GEMM_PANEL * (size_t)g->element;
}

static inline const struct llm_gemm *gemm_of(enum llm_compute compute)
{
    if (compute == LLM_COMPUTE_BF16) return &llm_k.gemm.bf16;
    return compute == LLM_COMPUTE_BF16X3 && llm_k.gemm.bf16x3.multiply ? &llm_k.gemm.bf16x3 : &llm_k.gemm.f32;
}

/* NULL: not block-quantised. */
static inline const struct llm_gemm_q *gemm_q_of(enum llm_dtype t)
{
    return llm_k.gemm.quantised[t].multiply ? &llm_k.gemm.quantised[t] : NULL;
}

/* Whether a product of m rows multiplies panels of fours, once they are made. */
static inline bool by_fours(const struct llm_weight *w, enum llm_compute compute, int64_t m)
{
    return w->dtype == LLM_BF16_2OF4 && compute == LLM_COMPUTE_BF16 && m <= LLM_GEMM_FOURS_ROWS && llm_k.gemm.pack_fours;
}

/* As panel_bytes, for a block-quantised type. */
static inline size_t panel_bytes_q(const struct llm_gemm_q *g, const struct llm_weight *w)
{
    return g->block_bytes * (size_t)(w->k / llm_dtypes[w->dtype].block_size);
}

static inline size_t panel_bytes_fours(const struct llm_weight *w)
{
    return llm_dtype_bytes(w->dtype, (uint64_t)w->k) * LLM_GEMM_PANEL;
}

/* Columns of a work item, by shape alone: few enough columns for many threads to have items, enough columns to reuse what is packed (each item reads
 * all k of its rows, which no cache holds if k is a vocabulary). */
static inline int64_t columns_of_piece(int64_t row_blocks, int64_t n, int64_t k)
{
    int64_t columns = 384, pieces = k < 8192 ? 16 : 4;
    while (columns > 96 && row_blocks * ((n + columns - 1) / columns) < pieces) columns /= 2;
    return columns;
}

/* Packs `count` panels of w, from panel `first` on, for a product: forward, or for dX. False when scratch memory is short. */
bool llm_weight_pack_panels(const struct llm_weight *w, const struct llm_gemm *g, bool backward, int64_t first, int64_t count, int thread, char *out);
/* Panels whose blocks are decoded together for dX: it is quickest to pack so many, from a multiple of that on. */
static inline int64_t panels_decoded(const struct llm_weight *w)
{
    int64_t block = llm_dtypes[w->dtype].block_size;
    return block > LLM_GEMM_PANEL ? block / LLM_GEMM_PANEL : 1;
}
/* *form is the valid packed form, made now if m (the rows of the product) is a reason to make it, else NULL. -1: memory. */
int llm_weight_form(struct llm_weight *w, enum llm_compute compute, bool backward, bool inference, int64_t m, const void **form,
                    struct llm_err *e);
/* llm_matmul_several of quantised weights, integer dots. */
int llm_matmul_quantised(const struct llm_matmul *a, struct llm_weight *const *w, int n, struct llm_err *e);

#endif
