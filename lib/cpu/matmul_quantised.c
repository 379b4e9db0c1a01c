/* Block-quantised weights times activations rounded to int8 in blocks of 32. */
#include <stdatomic.h>
#include "cpu/matmul_internal.h"
#include "cpu/pool.h"
#include "cpu/scratch.h"

#define ROW_BLOCK 256
#define Q_BLOCK 32
#define GROUP 6 /* panels packed together for many rows */

struct product {
    const struct llm_gemm_q *g;
    const struct llm_matmul *a;
    const struct llm_weight *w;
    int8_t *q;
    float *scale;
    int32_t *sum;
    const char *b;  /* packed, or NULL */
    size_t panel;   /* bytes */
    int64_t row_blocks, columns;
    atomic_bool failed;
};

static void quantise_row(void *arg, size_t i, int thread)
{
    struct product *p = arg;
    int64_t blocks = p->w->k / Q_BLOCK, row = (int64_t)i;
    (void)thread;
    llm_k.gemm.quantise(p->a->x + row * p->a->ldx, p->w->k, p->q + row * p->w->k, p->scale + row * blocks, p->sum + row * blocks);
}

static void multiply_block(const struct product *p, const char *b, int64_t row, int64_t column, int64_t columns)
{
    int64_t blocks = p->w->k / Q_BLOCK, left = p->a->m - row;
    const struct llm_gemm_q_job job = {
        .q = p->q + row * p->w->k, .scale = p->scale + row * blocks, .sum = p->sum + row * blocks, .b = b,
        .m = left < ROW_BLOCK ? left : ROW_BLOCK, .n = columns, .k = p->w->k, .c = p->a->y + row * p->a->ldy + column, .ldc = p->a->ldy,
        .bias = p->a->bias ? p->a->bias + column : NULL, .add = p->a->accumulate};
    p->g->multiply(&job);
}

static void product_piece(void *arg, size_t i, int thread)
{
    struct product *p = arg;
    const struct llm_weight *w = p->w;
    int64_t column = (p->b ? (int64_t)i / p->row_blocks : (int64_t)i) * p->columns;
    int64_t columns = w->n - column < p->columns ? w->n - column : p->columns;
    if (p->b) {
        multiply_block(p, p->b + (size_t)(column / LLM_GEMM_PANEL) * p->panel, (int64_t)i % p->row_blocks * ROW_BLOCK, column, columns);
        return;
    }
    size_t row_bytes = llm_dtype_bytes(w->dtype, (uint64_t)w->k);
    int64_t group = p->a->m < LLM_GEMM_PANEL ? 1 : GROUP;
    char *b = llm_scratch_slot(thread, LLM_SCRATCH_PANEL, p->panel * GROUP);
    if (!b) atomic_store(&p->failed, true);
    for (int64_t at = column, end = column + columns; b && at < end; at += group * LLM_GEMM_PANEL) {
        int64_t here = end - at < group * LLM_GEMM_PANEL ? end - at : group * LLM_GEMM_PANEL;
        for (int64_t j = 0; j < here; j += LLM_GEMM_PANEL)
            p->g->pack((const char *)w->data + (size_t)(at + j) * row_bytes, row_bytes, here - j < LLM_GEMM_PANEL ? here - j : LLM_GEMM_PANEL,
                       w->k, b + (size_t)(j / LLM_GEMM_PANEL) * p->panel);
        for (int64_t row = 0; row < p->a->m; row += ROW_BLOCK) multiply_block(p, b, row, at, here);
    }
}

int llm_matmul_quantised(const struct llm_matmul *a, struct llm_weight *w, struct llm_err *e)
{
    const void *form;
    size_t m = (size_t)a->m, k = (size_t)w->k, blocks = k / Q_BLOCK;
    if (a->m == 0 || w->n == 0) return 0;
    if (llm_weight_form(w, LLM_COMPUTE_BF16, false, a->m, &form, e) < 0) return -1;
    struct product p = {.g = gemm_q_of(w->dtype), .a = a, .w = w, .b = form};
    p.panel = p.g->block_bytes * blocks;
    p.scale = llm_scratch_slot(llm_pool_current(), LLM_SCRATCH_CALL, m * blocks * (sizeof(float) + sizeof(int32_t)) + m * k);
    if (!p.scale) return llm_no_memory(e, "activations of a matrix product");
    p.sum = (int32_t *)(p.scale + m * blocks);
    p.q = (int8_t *)(p.sum + m * blocks);
    llm_parallel(m, quantise_row, &p);
    p.row_blocks = p.b ? (a->m + ROW_BLOCK - 1) / ROW_BLOCK : 1;
    p.columns = columns_of_piece(p.row_blocks, w->n, w->k);
    llm_parallel((size_t)(p.row_blocks * ((w->n + p.columns - 1) / p.columns)), product_piece, &p);
    return atomic_load(&p.failed) ? llm_no_memory(e, "packing a weight") : 0;
}
