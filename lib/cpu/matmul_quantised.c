/* Block-quantised weights times activations rounded to int8 in blocks of 32. */
#include <stdatomic.h>
#include <string.h>
#include "cpu/matmul_internal.h"
#include "cpu/pool.h"
#include "cpu/scratch.h"

#define ROW_BLOCK 256
#define Q_BLOCK 32
#define GROUP 6 /* panels packed together for many rows */
#define MANY 64 /* rows beside whose arithmetic it costs nothing to have the file's pages mapped again, which then do not add to their activations */

struct product {
    const struct llm_gemm_q *g;
    const struct llm_matmul *a;
    const struct llm_weight *w;
    struct llm_gemm_q_x x;
    int64_t step_row;
    const char *b;  /* packed, or NULL */
    size_t panel;   /* bytes */
    int64_t row_blocks, columns;
    atomic_bool failed;
};

/* The activations from row `row` on. */
static struct llm_gemm_q_x rows_from(const struct product *p, int64_t row)
{
    struct llm_gemm_q_x x = p->x;
    int64_t at = row / LLM_GEMM_PANEL * LLM_GEMM_PANEL * (p->w->k / Q_BLOCK) + row % LLM_GEMM_PANEL * p->step_row;
    x.q += at * Q_BLOCK;
    x.scale += at;
    for (int part = 0; part < p->g->parts; part++) {
        x.start[part] += at;
        if (x.sum[part]) x.sum[part] += at;
    }
    return x;
}

static void quantise_row(void *arg, size_t i, int thread)
{
    struct product *p = arg;
    int64_t row = (int64_t)i;
    const struct llm_gemm_q_x x = rows_from(p, row);
    (void)thread;
    llm_k.gemm.quantise(p->a->x + row * p->a->ldx, p->w->k, p->g, &x);
}

static void multiply_block(const struct product *p, const char *b, int64_t row, int64_t column, int64_t columns)
{
    int64_t left = p->a->m - row;
    const struct llm_gemm_q_job job = {
        .x = rows_from(p, row), .step_row = p->step_row, .b = b, .m = left < ROW_BLOCK ? left : ROW_BLOCK, .n = columns, .k = p->w->k,
        .c = p->a->y + row * p->a->ldy + column, .ldc = p->a->ldy, .bias = p->a->bias ? p->a->bias + column : NULL, .add = p->a->accumulate};
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
    if (b && p->a->m >= MANY) llm_weight_release_pages(w, (size_t)column * row_bytes, (size_t)columns * row_bytes);
}

/* Memory for the activations. */
static int make_room(struct product *p, struct llm_err *e)
{
    bool abreast = p->a->m >= LLM_GEMM_Q_ABREAST;
    size_t m = (size_t)p->a->m, groups = (size_t)p->w->k / Q_BLOCK, parts = (size_t)p->g->parts, arrays = 1 + parts + (p->g->least ? parts : 0);
    size_t n = (abreast ? (m + LLM_GEMM_PANEL - 1) / LLM_GEMM_PANEL * LLM_GEMM_PANEL : m) * groups;
    char *room = llm_scratch_slot(llm_pool_current(), LLM_SCRATCH_CALL, n * (arrays * sizeof(float) + Q_BLOCK));
    if (!room) return llm_no_memory(e, "activations of a matrix product");
    int8_t *q = (int8_t *)room + arrays * n * sizeof(float);
    if (abreast && m % LLM_GEMM_PANEL) {
        size_t last = m / LLM_GEMM_PANEL * LLM_GEMM_PANEL * groups;
        for (size_t i = 0; i < arrays; i++) memset(room + (i * n + last) * sizeof(float), 0, (n - last) * sizeof(float));
        memset(q + last * Q_BLOCK, 0, (n - last) * Q_BLOCK);
    }
    p->step_row = abreast ? 1 : (int64_t)groups;
    p->x = (struct llm_gemm_q_x){.q = q, .scale = (float *)(void *)room, .step = abreast ? LLM_GEMM_PANEL : 1};
    for (size_t part = 0; part < parts; part++) {
        p->x.start[part] = (int32_t *)(void *)(room + (1 + part) * n * sizeof(float));
        if (p->g->least) p->x.sum[part] = (float *)(void *)(room + (1 + parts + part) * n * sizeof(float));
    }
    return 0;
}

int llm_matmul_quantised(const struct llm_matmul *a, struct llm_weight *w, struct llm_err *e)
{
    const void *form;
    if (a->m == 0 || w->n == 0) return 0;
    if (llm_weight_form(w, LLM_COMPUTE_BF16, false, a->m, &form, e) < 0) return -1;
    struct product p = {.g = gemm_q_of(w->dtype), .a = a, .w = w, .b = form};
    p.panel = panel_bytes_q(p.g, w);
    if (make_room(&p, e) < 0) return -1;
    llm_parallel((size_t)a->m, quantise_row, &p);
    p.row_blocks = p.b ? (a->m + ROW_BLOCK - 1) / ROW_BLOCK : 1;
    p.columns = columns_of_piece(p.row_blocks, w->n, w->k);
    llm_parallel((size_t)(p.row_blocks * ((w->n + p.columns - 1) / p.columns)), product_piece, &p);
    return atomic_load(&p.failed) ? llm_no_memory(e, "packing a weight") : 0;
}
