/* Block-quantised weights times activations rounded to int8 in blocks of 32. */
#include <stdatomic.h>
#include <string.h>
#include "cpu/matmul_internal.h"
#include "cpu/pool.h"
#include "cpu/profile.h"
#include "cpu/scratch.h"

#define ROW_BLOCK 256
#define Q_BLOCK 32
#define GROUP 6 /* panels packed together for many rows */
/* From this many rows on, mapping released pages of the file again costs little beside the arithmetic, so activations get their room. With two
 * threads it does cost a sixth of a prefill, since each is interrupted for what the other one releases: the first product alone pays for it. */
#define MANY 64

/* One weight's product. */
struct part {
    const struct llm_gemm_q *g;
    const struct llm_matmul *a;
    const struct llm_weight *w;
    struct llm_gemm_q_x x;
    bool has_x;     /* x is its own, not that of a part before it */
    const char *b;  /* packed, or NULL */
    size_t panel;   /* bytes */
    int64_t row_blocks, columns, pieces;
};

struct product {
    struct part parts[LLM_MATMUL_MAX];
    int n;
    int64_t m, groups, step;
    atomic_bool failed;
};

/* A part's activations from row `row` on. */
static struct llm_gemm_q_x rows_from(const struct product *p, const struct part *t, int64_t row)
{
    struct llm_gemm_q_x x = t->x;
    int64_t at = llm_gemm_q_at(p->groups, p->step, row, 0);
    x.q += at * Q_BLOCK;
    x.scale += at;
    for (int part = 0; part < t->g->parts; part++) {
        x.start[part] += at;
        if (x.sum[part]) x.sum[part] += at;
    }
    return x;
}

static void quantise_row(void *arg, size_t i, int thread)
{
    struct product *p = arg;
    (void)thread;
    for (int j = 0; j < p->n; j++) {
        const struct part *t = &p->parts[j];
        const struct llm_gemm_q_x x = rows_from(p, t, (int64_t)i);
        if (t->has_x) llm_k.gemm.quantise(t->a->x + (int64_t)i * t->a->ldx, t->w->k, t->g, &x);
    }
}

static void multiply_block(const struct product *p, const struct part *t, const char *b, int64_t row, int64_t column, int64_t columns)
{
    int64_t left = p->m - row;
    const struct llm_gemm_q_job job = {
        .x = rows_from(p, t, row), .b = b, .m = left < ROW_BLOCK ? left : ROW_BLOCK, .n = columns, .k = t->w->k,
        .c = t->a->y + row * t->a->ldy + column, .ldc = t->a->ldy, .bias = t->a->bias ? t->a->bias + column : NULL, .add = t->a->accumulate};
    t->g->multiply(&job);
}

static void product_piece(void *arg, size_t piece, int thread)
{
    struct product *p = arg;
    const struct part *t = p->parts;
    int64_t i = (int64_t)piece;
    for (; i >= t->pieces; t++) i -= t->pieces;
    const struct llm_weight *w = t->w;
    int64_t column = (t->b ? i / t->row_blocks : i) * t->columns;
    int64_t columns = w->n - column < t->columns ? w->n - column : t->columns;
    if (t->b) {
        multiply_block(p, t, t->b + (size_t)(column / LLM_GEMM_PANEL) * t->panel, i % t->row_blocks * ROW_BLOCK, column, columns);
        return;
    }
    size_t row_bytes = llm_dtype_bytes(w->dtype, (uint64_t)w->k);
    int64_t group = p->m < LLM_GEMM_PANEL ? 1 : GROUP;
    char *b = llm_scratch_slot(thread, LLM_SCRATCH_PANEL, t->panel * GROUP);
    if (!b) atomic_store(&p->failed, true);
    for (int64_t at = column, end = column + columns; b && at < end; at += group * LLM_GEMM_PANEL) {
        int64_t here = end - at < group * LLM_GEMM_PANEL ? end - at : group * LLM_GEMM_PANEL;
        for (int64_t j = 0; j < here; j += LLM_GEMM_PANEL)
            t->g->pack((const char *)w->data + (size_t)(at + j) * row_bytes, row_bytes, here - j < LLM_GEMM_PANEL ? here - j : LLM_GEMM_PANEL,
                       w->k, b + (size_t)(j / LLM_GEMM_PANEL) * t->panel);
        for (int64_t row = 0; row < p->m; row += ROW_BLOCK) multiply_block(p, t, b, row, at, here);
    }
    if (b && p->m >= MANY && w->many_rows < 2) llm_weight_release_pages(w, (size_t)column * row_bytes, (size_t)columns * row_bytes);
}

/* Whether two types need activations prepared in the same way. */
static bool same_x(const struct llm_gemm_q *a, const struct llm_gemm_q *b)
{
    return a->zero == b->zero && a->parts == b->parts && a->least == b->least;
}

/* Groups of activations that memory is made for: those of rows that are not there too. */
static size_t groups_of(const struct product *p) { return (size_t)((p->m + p->step - 1) / p->step * p->step * p->groups); }

static size_t arrays_of(const struct llm_gemm_q *g) { return (size_t)(1 + g->parts + (g->least ? g->parts : 0)); }

/* Lays a part's activations out in `room`; returns where they end. */
static char *lay_out(const struct product *p, struct part *t, char *room)
{
    size_t n = groups_of(p), parts = (size_t)t->g->parts, arrays = arrays_of(t->g);
    int8_t *q = (int8_t *)room + arrays * n * sizeof(float);
    if (p->m % p->step) {
        size_t last = (size_t)(p->m / p->step * p->step * p->groups);
        for (size_t i = 0; i < arrays; i++) memset(room + (i * n + last) * sizeof(float), 0, (n - last) * sizeof(float));
        memset(q + last * Q_BLOCK, 0, (n - last) * Q_BLOCK);
    }
    t->x = (struct llm_gemm_q_x){.q = q, .scale = (float *)(void *)room, .step = p->step};
    for (size_t part = 0; part < parts; part++) {
        t->x.start[part] = (int32_t *)(void *)(room + (1 + part) * n * sizeof(float));
        if (t->g->least) t->x.sum[part] = (float *)(void *)(room + (1 + parts + part) * n * sizeof(float));
    }
    return (char *)q + n * Q_BLOCK;
}

/* Memory for the quantised activations; types that need the same preparation share it. */
static int make_room(struct product *p, struct llm_err *e)
{
    const struct part *first[LLM_MATMUL_MAX];
    size_t bytes = 0;
    for (int i = 0; i < p->n; i++) {
        struct part *t = &p->parts[i];
        first[i] = t;
        for (int j = i - 1; j >= 0; j--)
            if (same_x(p->parts[j].g, t->g)) first[i] = first[j];
        t->has_x = first[i] == t;
        if (t->has_x) bytes += groups_of(p) * (arrays_of(t->g) * sizeof(float) + Q_BLOCK);
    }
    char *room = llm_scratch_slot(llm_pool_current(), LLM_SCRATCH_CALL, bytes);
    if (!room) return llm_no_memory(e, "activations of a matrix product");
    for (int i = 0; i < p->n; i++) {
        if (p->parts[i].has_x) room = lay_out(p, &p->parts[i], room);
        else p->parts[i].x = first[i]->x;
    }
    return 0;
}

int llm_matmul_quantised(const struct llm_matmul *a, struct llm_weight *const *w, int n, struct llm_err *e)
{
    struct product p = {.n = n, .m = a->m, .groups = w[0]->k / Q_BLOCK, .step = llm_gemm_q_step(a->m)};
    int64_t pieces = 0;
    if (a->m == 0) return 0;
    for (int i = 0; i < n; i++) {
        struct part *t = &p.parts[i];
        const void *form;
        if (llm_weight_form(w[i], LLM_COMPUTE_BF16, false, a->inference, a->m, &form, e) < 0) return -1;
        *t = (struct part){.g = gemm_q_of(w[i]->dtype), .a = &a[i], .w = w[i], .b = form};
        t->panel = panel_bytes_q(t->g, w[i]);
        t->row_blocks = form ? (a->m + ROW_BLOCK - 1) / ROW_BLOCK : 1;
        t->columns = columns_of_piece(t->row_blocks, w[i]->n, w[i]->k);
        t->pieces = t->row_blocks * ((w[i]->n + t->columns - 1) / t->columns);
        pieces += t->pieces;
    }
    if (make_room(&p, e) < 0) return -1;
    {
        LLM_PROFILE_PART("rounding of activations");
        llm_parallel((size_t)a->m, quantise_row, &p);
    }
    llm_parallel((size_t)pieces, product_piece, &p);
    return atomic_load(&p.failed) ? llm_no_memory(e, "packing a weight") : 0;
}
