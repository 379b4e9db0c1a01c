#include "cpu/matmul.h"

#include <stdatomic.h>
#include <string.h>
#include "cpu/matmul_internal.h"
#include "cpu/pool.h"
#include "cpu/profile.h"
#include "cpu/scratch.h"

#define ROW_BLOCK 256   /* rows of a piece */
#define TOKEN_BLOCK 256 /* of a weight's gradient: the canonical order's */
enum { TAKEN = 192 }; /* columns of a block that is given away: it and its panels fit a cache of 1 MiB */
enum { SYMMETRIC_PIECES = 8, SYMMETRIC_COLUMNS = 96 }; /* blocks of columns on and below a diagonal: at least so many, at most so wide */
enum { NARROW = 2 * LLM_GEMM_PANEL }; /* columns of a product for which x is not packed apart */

/* What is multiplied with x, and where to. */
struct part {
    int64_t n;
    const char *b;      /* packed panels; NULL: each piece packs its own */
    size_t panel;       /* bytes of one */
    void (*multiply)(const struct llm_gemm_job *job);
    const struct llm_weight *w;
    float *c;
    int64_t ldc;
    const float *bias;
    bool add;
    int64_t row_blocks, columns, pieces;
};

/* Products of one x on their way through the pool: pieces are blocks of c. */
struct product {
    const struct llm_gemm *g;
    int64_t m, k;
    const float *x;     /* a before packing */
    int64_t ldx;
    const char *a;      /* packed panels; NULL: x is used as it is */
    char *packing;      /* of `a`, while x is packed */
    bool backward;
    bool symmetric;     /* of the only part, whose columns begin with the rows on the diagonal */
    struct part parts[LLM_MATMUL_MAX];
    int n_parts;
    void (*take)(void *arg, const struct llm_matmul_block *b, int thread); /* of the only part; NULL: blocks are stored */
    void *take_arg;
    atomic_bool failed;
};

static void pack_rows(void *arg, size_t i, int thread)
{
    struct product *p = arg;
    int64_t first = (int64_t)i * LLM_GEMM_PANEL, rows = p->m - first < LLM_GEMM_PANEL ? p->m - first : LLM_GEMM_PANEL;
    (void)thread;
    p->g->pack_a(p->x + first * p->ldx, p->ldx, rows, p->k, p->packing + i * panel_bytes(p->g, p->k));
}

static void multiply_block(struct product *p, const struct part *t, const char *b, int64_t row, int64_t column, int64_t columns, int thread)
{
    float *block = p->take ? llm_scratch_slot(thread, LLM_SCRATCH_BLOCK, ROW_BLOCK * TAKEN * sizeof *block) : NULL;
    if (p->take && !block) {
        atomic_store(&p->failed, true);
        return;
    }
    const struct llm_gemm_job job = {
        .a = p->a ? (const void *)(p->a + (size_t)(row / LLM_GEMM_PANEL) * panel_bytes(p->g, p->k)) : p->x + row * p->ldx,
        .lda = p->a ? p->k : p->ldx, .b = b,
        .m = p->m - row < ROW_BLOCK ? p->m - row : ROW_BLOCK, .n = columns, .k = p->k,
        .c = block ? block : t->c + row * t->ldc + column, .ldc = block ? columns : t->ldc, .bias = t->bias ? t->bias + column : NULL, .add = t->add,
        .round = !p->a && !p->g->direct};
    t->multiply(&job);
    if (block) p->take(p->take_arg, &(struct llm_matmul_block){row, column, job.m, columns, columns, block}, thread);
}

/* What stands below the diagonal's block in `columns` columns of a symmetric c, to the rows right of that block. */
static void mirror(const struct product *p, const struct part *t, int64_t column, int64_t columns)
{
    for (int64_t row = column + columns; row < p->m; row += LLM_GEMM_PANEL) {
        const int64_t end = p->m - row < LLM_GEMM_PANEL ? p->m : row + LLM_GEMM_PANEL;
        for (int64_t j = column; j < column + columns; j++) {
            for (int64_t i = row; i < end; i++) t->c[j * t->ldc + i] = t->c[i * t->ldc + j];
        }
    }
}

/* Packed b: one block of rows by one of columns. Else: all rows, or those from the diagonal on, by one block of columns, which is packed once. */
static void product_piece(void *arg, size_t piece, int thread)
{
    struct product *p = arg;
    const struct part *t = p->parts;
    int64_t i = (int64_t)piece;
    for (; i >= t->pieces; t++) i -= t->pieces;
    int64_t column = (t->b ? i / t->row_blocks : i) * t->columns;
    int64_t columns = t->n - column < t->columns ? t->n - column : t->columns;
    if (t->b) {
        multiply_block(p, t, t->b + (size_t)(column / LLM_GEMM_PANEL) * t->panel, i % t->row_blocks * ROW_BLOCK, column, columns, thread);
        return;
    }
    char *b = llm_scratch_slot(thread, LLM_SCRATCH_PANEL, (size_t)panels_of(columns) * t->panel);
    bool packed = b && llm_weight_pack_panels(t->w, p->g, p->backward, column / LLM_GEMM_PANEL, panels_of(columns), thread, b);
    for (int64_t row = p->symmetric ? column : 0; packed && row < p->m; row += ROW_BLOCK) multiply_block(p, t, b, row, column, columns, thread);
    if (packed && p->symmetric) mirror(p, t, column, columns);
    if (!packed) atomic_store(&p->failed, true);
}

/* Counts a product with operands and results of so many bytes. */
static void count_work(const char *kind, int64_t m, int64_t n, int64_t k, double bytes)
{
    enum llm_profile_unit unit = strcmp(kind, "bf16") == 0 ? LLM_PROFILE_BF16 : strcmp(kind, "int8") == 0 ? LLM_PROFILE_INT8 : LLM_PROFILE_F32;
    llm_profile_work(unit, 2 * (double)m * (double)n * (double)k, bytes);
}

/* As above for products with a weight, in arithmetic of `kind`. */
static void count_product(const struct llm_matmul *a, const struct llm_weight *w, const char *kind, int64_t n, int64_t k)
{
    n = a->symmetric ? (n + 1) / 2 : n;
    double elements = (double)n * (double)k, rows = 4 * (double)a->m;
    double weight = strcmp(kind, "bf16") == 0 ? 2 * elements : 4 * elements;
    if (strcmp(kind, "int8") == 0) weight = (double)llm_dtype_bytes(w->dtype, (uint64_t)(n * k));
    count_work(kind, a->m, n, k, rows * (double)k + (a->accumulate ? 2 : 1) * rows * (double)n + weight);
}

size_t llm_panels_bytes(int64_t m, int64_t k)
{
    return !llm_k.gemm.bf16.pack_b_from_a ? 0 : (size_t)panels_of(m) * panel_bytes(&llm_k.gemm.bf16, k);
}

int64_t llm_panels_unit(void)
{
    return llm_k.gemm.bf16.k_unit;
}

void llm_panels_put(const float *x, int64_t row, int64_t from, int64_t n, int64_t k, void *panels)
{
    const struct llm_gemm *g = &llm_k.gemm.bf16;
    char *panel = (char *)panels + (size_t)(row / LLM_GEMM_PANEL) * panel_bytes(g, k) + from * LLM_GEMM_PANEL * g->element;
    g->pack_a(x, n, 1, n, panel + row % LLM_GEMM_PANEL * g->k_unit * g->element);
}

bool llm_weight_takes_panels(const struct llm_weight *w, enum llm_compute compute)
{
    return compute == LLM_COMPUTE_BF16 && llm_k.gemm.bf16.pack_b_from_a && !gemm_q_of(w->dtype) && w->dtype != LLM_ZERO;
}

/* Packs x, unless the kernel reads it as it is. The family's own kernel may round plain rows (llm_gemm.rounds); the kernel of two-of-four weights
 * needs rows that pack_a has rounded. */
static int pack_activations(struct product *p, struct llm_err *e)
{
    bool narrow = p->g->rounds;
    for (int i = 0; i < p->n_parts; i++) narrow &= p->parts[i].n <= NARROW && p->parts[i].multiply == p->g->multiply;
    if (p->g->direct || p->a || narrow) return 0;
    LLM_PROFILE_PART("packing of activations");
    p->packing = llm_scratch_slot(llm_pool_current(), LLM_SCRATCH_CALL, (size_t)panels_of(p->m) * panel_bytes(p->g, p->k));
    if (!p->packing) return llm_no_memory(e, "activations of a matrix product");
    llm_parallel((size_t)panels_of(p->m), pack_rows, p);
    p->a = p->packing;
    return 0;
}

/* A product of many rows with a narrow weight has blocks of rows alone to share out, for which the weight is packed first. */
static int pack_narrow(struct product *p, struct llm_err *e)
{
    struct part *t = p->parts;
    const int thread = llm_pool_current();
    if (p->n_parts > 1 || t->b || t->n > NARROW || p->m <= ROW_BLOCK) return 0;
    char *b = llm_scratch_slot(thread, LLM_SCRATCH_PANEL, (size_t)panels_of(t->n) * t->panel);
    if (!b || !llm_weight_pack_panels(t->w, p->g, p->backward, 0, panels_of(t->n), thread, b)) return llm_no_memory(e, "packing a weight");
    t->b = b;
    return 0;
}

static int run(struct product *p, struct llm_err *e)
{
    int64_t pieces = 0;
    if (p->m == 0) return 0;
    if (pack_activations(p, e) < 0 || pack_narrow(p, e) < 0) return -1;
    for (int i = 0; i < p->n_parts; i++) {
        struct part *t = &p->parts[i];
        t->row_blocks = t->b ? (p->m + ROW_BLOCK - 1) / ROW_BLOCK : 1;
        int64_t decoded = p->backward ? panels_decoded(t->w) * LLM_GEMM_PANEL : 1; /* blocks are decoded whole */
        t->columns = (columns_of_piece(t->row_blocks, t->n, p->k) + decoded - 1) / decoded * decoded;
        if (p->take && t->columns > TAKEN) t->columns = TAKEN;
        if (p->symmetric) {
            t->columns = panels_of((t->n + SYMMETRIC_PIECES - 1) / SYMMETRIC_PIECES) * LLM_GEMM_PANEL;
            if (t->columns > SYMMETRIC_COLUMNS) t->columns = SYMMETRIC_COLUMNS;
        }
        t->pieces = t->row_blocks * ((t->n + t->columns - 1) / t->columns);
        pieces += t->pieces;
    }
    llm_parallel((size_t)pieces, product_piece, p);
    return atomic_load(&p->failed) ? llm_no_memory(e, "packing a weight") : 0;
}

int llm_matmul(const struct llm_matmul *a, struct llm_weight *w, struct llm_err *e)
{
    return llm_matmul_several(a, &w, 1, e);
}

enum { MANY = 64 }; /* rows from which on mapping released pages again costs little beside the arithmetic */

static void release_pages(const struct llm_matmul *a, const struct llm_weight *w)
{
    if (a->release && a->m >= MANY) llm_weight_release_pages(w, 0, llm_dtype_bytes(w->dtype, (uint64_t)(w->n * w->k)));
}

/* A product with a matrix of type LLM_ZERO, [m, n]. */
static void multiply_zero(const struct llm_matmul *a, int64_t n)
{
    for (int64_t i = 0; i < a->m; i++) {
        float *y = a->y + i * a->ldy;
        for (int64_t j = 0; j < n; j++) y[j] = (a->accumulate ? y[j] : 0) + (a->bias ? a->bias[j] : 0);
    }
}

/* Whether all n weights are multiplied by the same kernels. */
static bool same_kernels(const struct llm_matmul *a, struct llm_weight *const *w, int n)
{
    int quantised = 0, zero = 0;
    for (int i = 0; i < n; i++) {
        quantised += gemm_q_of(w[i]->dtype) && a->compute == LLM_COMPUTE_BF16;
        zero += w[i]->dtype == LLM_ZERO;
    }
    return (quantised == 0 || quantised == n) && (zero == 0 || n == 1);
}

static int multiply_several(const struct llm_matmul *a, struct llm_weight *const *w, int n, struct llm_err *e)
{
    struct product p = {.g = gemm_of(a->compute), .m = a->m, .k = w[0]->k, .x = a->x, .ldx = a->ldx, .a = a->panels, .n_parts = n,
                        .take = a->take, .take_arg = a->take_arg};
    LLM_PROFILE_PART("products");
    if (!same_kernels(a, w, n)) {
        int status = 0;
        for (int i = 0; i < n && status == 0; i++) status = multiply_several(&a[i], &w[i], 1, e);
        return status;
    }
    if (w[0]->dtype == LLM_ZERO) {
        multiply_zero(a, w[0]->n);
        return 0;
    }
    for (int i = 0; i < n && llm_profiling; i++) count_product(&a[i], w[i], llm_matmul_kind(w[i]->dtype, a->compute), w[i]->n, w[i]->k);
    if (gemm_q_of(w[0]->dtype) && a->compute == LLM_COMPUTE_BF16) return llm_matmul_quantised(a, w, n, e);
    for (int i = 0; i < n; i++) {
        const void *form;
        if (llm_weight_form(w[i], a->compute, false, a->inference, a->m, &form, e) < 0) return -1;
        const bool fours = form && by_fours(w[i], a->compute, a->m);
        p.symmetric = a[i].symmetric && !form && p.g != &llm_k.gemm.bf16x3; /* high·low comes before low·high on either side of the diagonal */
        p.parts[i] = (struct part){.n = w[i]->n, .b = form, .panel = fours ? panel_bytes_fours(w[i]) : panel_bytes(p.g, p.k), .w = w[i],
                                   .multiply = fours ? llm_k.gemm.multiply_fours : p.g->multiply, .c = a[i].y, .ldc = a[i].ldy,
                                   .bias = a[i].bias, .add = a[i].accumulate};
    }
    return run(&p, e);
}

int llm_matmul_several(const struct llm_matmul *a, struct llm_weight *const *w, int n, struct llm_err *e)
{
    int status = multiply_several(a, w, n, e);
    for (int i = 0; i < n; i++) release_pages(&a[i], w[i]);
    return status;
}

int llm_matmul_dx(const struct llm_matmul *a, struct llm_weight *w, struct llm_err *e)
{
    const void *form;
    LLM_PROFILE_PART("products");
    if (w->dtype == LLM_ZERO) {
        multiply_zero(a, w->k);
        return 0;
    }
    if (llm_profiling) count_product(a, w, llm_matmul_kind(LLM_F32, a->compute), w->k, w->n);
    if (llm_weight_form(w, a->compute, true, false, a->m, &form, e) < 0) return -1;
    struct product p = {.g = gemm_of(a->compute), .m = a->m, .k = w->n, .x = a->x, .ldx = a->ldx, .backward = true, .n_parts = 1};
    p.parts[0] = (struct part){.n = w->k, .b = form, .panel = panel_bytes(p.g, p.k), .multiply = p.g->multiply, .w = w, .c = a->y, .ldc = a->ldy,
                               .add = a->accumulate};
    int status = run(&p, e);
    release_pages(a, w);
    return status;
}

/* A weight's gradient: for each block of tokens, panels of dyᵀ (16 of n; where products take plain floats, dy as it is) and of x (16 of k), all
 * packed before the products. */
struct gradient {
    const struct llm_gemm *g;
    float *dw;
    const float *dy, *x;
    const void *panels;     /* x packed as a product's a; NULL: floats */
    int64_t ldy, ldx, n, k;
    const int64_t *starts;  /* [blocks + 1] or NULL: rows of row_len tokens, each in blocks of TOKEN_BLOCK */
    int64_t row_len, blocks_of_row;
    char *a, *b;            /* a: NULL: dy is not packed */
    size_t panel;           /* bytes, of the longest block of tokens */
    int64_t rows, columns;  /* of a piece */
};

static int64_t block_start(const struct gradient *p, int64_t block)
{
    return p->starts ? p->starts[block] : block / p->blocks_of_row * p->row_len + block % p->blocks_of_row * TOKEN_BLOCK;
}

static int64_t block_length(const struct gradient *p, int64_t block)
{
    if (p->starts) return p->starts[block + 1] - p->starts[block];
    int64_t left = p->row_len - block % p->blocks_of_row * TOKEN_BLOCK;
    return left < TOKEN_BLOCK ? left : TOKEN_BLOCK;
}

/* Line by line of 16 columns a block of tokens lies on as many pages as it has tokens; so where panels are made of units of k, it is packed a unit
 * of tokens at a time, over the whole width. */
static void pack_tokens(void *arg, size_t i, int thread)
{
    struct gradient *p = arg;
    int64_t n_panels = p->a ? panels_of(p->n) : 0, k_panels = panels_of(p->k), all = n_panels + k_panels;
    int64_t block = (int64_t)i, tokens = block_length(p, block), start = block_start(p, block);
    int64_t step = p->g->k_unit > 1 ? p->g->k_unit : tokens;
    size_t panel = panel_bytes(p->g, tokens), unit = panel_bytes(p->g, step);
    char *a = p->a ? p->a + (size_t)(block * n_panels) * p->panel : NULL, *b = p->b + (size_t)(block * k_panels) * p->panel;
    (void)thread;
    for (int64_t from = 0; from < tokens; from += step, a = a ? a + unit : NULL, b += unit) {
        const float *dy = p->dy + (start + from) * p->ldy, *x = p->panels ? NULL : p->x + (start + from) * p->ldx;
        int64_t here = tokens - from < step ? tokens - from : step;
        for (int64_t j = 0; j < all; j++) {
            int64_t first = (j < n_panels ? j : j - n_panels) * LLM_GEMM_PANEL, of = j < n_panels ? p->n : p->k;
            int64_t lines = of - first < LLM_GEMM_PANEL ? of - first : LLM_GEMM_PANEL;
            if (j < n_panels) p->g->pack_a_transposed(dy + first, p->ldy, lines, here, a + (size_t)j * panel);
            else if (p->panels) p->g->pack_b_from_a(p->panels, p->k, start + from, here, first, b + (size_t)(j - n_panels) * panel);
            else p->g->pack_b_transposed(x + first, p->ldx, lines, here, b + (size_t)(j - n_panels) * panel);
        }
    }
}

struct gradient_call { struct gradient *p; int64_t blocks; };

static void gradient_piece(void *arg, size_t i, int thread)
{
    const struct gradient_call *call = arg;
    const struct gradient *p = call->p;
    int64_t row_blocks = (p->n + p->rows - 1) / p->rows;
    int64_t row = (int64_t)i % row_blocks * p->rows, column = (int64_t)i / row_blocks * p->columns;
    int64_t n_panels = panels_of(p->n), k_panels = panels_of(p->k);
    (void)thread;
    for (int64_t block = 0; block < call->blocks; block++) {
        int64_t tokens = block_length(p, block);
        size_t panel = panel_bytes(p->g, tokens);
        const void *packed = p->a ? p->a + (size_t)(block * n_panels) * p->panel + (size_t)(row / LLM_GEMM_PANEL) * panel : NULL;
        const struct llm_gemm_job job = {
            .a = packed ? packed : p->dy + block_start(p, block) * p->ldy + row, .lda = packed ? tokens : p->ldy,
            .transposed = !packed, .round = !packed && !p->g->direct,
            .b = p->b + (size_t)(block * k_panels) * p->panel + (size_t)(column / LLM_GEMM_PANEL) * panel,
            .m = p->n - row < p->rows ? p->n - row : p->rows, .n = p->k - column < p->columns ? p->k - column : p->columns,
            .k = tokens, .c = p->dw + row * p->k + column, .ldc = p->k, .add = true};
        p->g->multiply(&job);
    }
}

static void pack_all_tokens(struct gradient *p, int64_t blocks)
{
    LLM_PROFILE_PART("packing of tokens for weights' gradients");
    llm_parallel((size_t)blocks, pack_tokens, p);
}

static void count_gradient(const struct gradient *p, int64_t blocks)
{
    int64_t m = block_start(p, blocks - 1) + block_length(p, blocks - 1) - block_start(p, 0);
    count_work(p->g == &llm_k.gemm.bf16 ? "bf16" : "f32", m, p->n, p->k, 4 * ((double)m * (double)(p->n + p->k) + 2 * (double)p->n * (double)p->k));
}

static void narrow_piece(void *arg, size_t i, int thread)
{
    const struct gradient_call *call = arg;
    const struct gradient *p = call->p;
    const bool by_n = p->n <= p->k; /* n is the narrow side */
    const int64_t column = (int64_t)i * LLM_GEMM_NARROW_COLUMNS, left = (by_n ? p->k : p->n) - column;
    (void)thread;
    for (int64_t block = 0; block < call->blocks; block++) {
        const int64_t start = block_start(p, block);
        const float *dy = p->dy + start * p->ldy, *x = p->x + start * p->ldx;
        struct llm_gemm_narrow_job job = {
            .narrow = by_n ? dy : x, .ld_narrow = by_n ? p->ldy : p->ldx, .lines = by_n ? p->n : p->k,
            .wide = (by_n ? x : dy) + column, .ld_wide = by_n ? p->ldx : p->ldy,
            .columns = left < LLM_GEMM_NARROW_COLUMNS ? left : LLM_GEMM_NARROW_COLUMNS,
            .tokens = block_length(p, block), .c = p->dw + column * (by_n ? 1 : p->k), .of_line = by_n ? p->k : 1, .of_column = by_n ? 1 : p->k};
        p->g->multiply_narrow(&job);
    }
}

/* Whether one side is so narrow that tokens are not packed. */
static bool is_narrow(const struct gradient *p, int64_t longest)
{
    return p->g->multiply_narrow && !p->panels && longest <= TOKEN_BLOCK && (p->n <= LLM_GEMM_NARROW || p->k <= LLM_GEMM_NARROW);
}

/* Sizes of a piece, by shape alone. Plain columns of dy are copied for each tile of rows and piece of columns, so pieces have as many columns as
 * caches hold, and few rows; few enough of both for many threads to have as much to do. */
static void size_pieces(struct gradient *p, bool plain)
{
    enum { COLUMNS = 384, LEAST_COLUMNS = 96, LEAST_ROWS = 48, PIECES = 16 };
    const int64_t across = (p->k + COLUMNS - 1) / COLUMNS;
    if (!plain) {
        p->rows = ROW_BLOCK;
        p->columns = columns_of_piece((p->n + p->rows - 1) / p->rows, p->k, TOKEN_BLOCK);
        return;
    }
    p->columns = panels_of((p->k + across - 1) / across) * LLM_GEMM_PANEL;
    p->rows = 4 * LEAST_ROWS;
    while (p->rows > LEAST_ROWS && across * ((p->n + p->rows - 1) / p->rows) < PIECES) p->rows /= 2;
    const int64_t down = (p->n + p->rows - 1) / p->rows;
    while (p->columns > LEAST_COLUMNS && down * ((p->k + p->columns - 1) / p->columns) < PIECES)
        p->columns = panels_of(p->columns / 2) * LLM_GEMM_PANEL;
}

static int gradient_run(struct gradient *p, int64_t blocks, int64_t longest, struct llm_err *e)
{
    struct gradient_call call = {p, blocks};
    LLM_PROFILE_PART("products of weights' gradients");
    if (llm_profiling) count_gradient(p, blocks);
    if (is_narrow(p, longest)) {
        const int64_t wide = p->n <= p->k ? p->k : p->n;
        llm_parallel((size_t)((wide + LLM_GEMM_NARROW_COLUMNS - 1) / LLM_GEMM_NARROW_COLUMNS), narrow_piece, &call);
        return 0;
    }
    const bool plain = !p->g->pack_a_transposed;
    size_pieces(p, plain);
    p->panel = panel_bytes(p->g, longest);
    size_t a_bytes = plain ? 0 : (size_t)(blocks * panels_of(p->n)) * p->panel, b_bytes = (size_t)(blocks * panels_of(p->k)) * p->panel;
    char *packed = llm_scratch_slot(llm_pool_current(), LLM_SCRATCH_CALL, a_bytes + b_bytes);
    if (!packed) return llm_no_memory(e, "the gradient of a weight");
    p->a = plain ? NULL : packed;
    p->b = packed + a_bytes;
    pack_all_tokens(p, blocks);
    llm_parallel((size_t)(((p->n + p->rows - 1) / p->rows) * ((p->k + p->columns - 1) / p->columns)), gradient_piece, &call);
    return 0;
}

/* Over m tokens, in rows of p->row_len. */
static int gradient_of_rows(struct gradient *p, int64_t m, struct llm_err *e)
{
    if (p->row_len < 1 || m % p->row_len)
        return llm_fail(e, LLM_EX_FAILURE, "gradient of a weight: expected a multiple of %lld tokens, found %lld", (long long)p->row_len,
                        (long long)m);
    if (m == 0 || p->n == 0 || p->k == 0) return 0;
    p->blocks_of_row = (p->row_len + TOKEN_BLOCK - 1) / TOKEN_BLOCK;
    return gradient_run(p, m / p->row_len * p->blocks_of_row, p->row_len < TOKEN_BLOCK ? p->row_len : TOKEN_BLOCK, e);
}

int llm_matmul_dw(float *dw, const float *dy, int64_t ldy, const float *x, int64_t ldx, int64_t m, int64_t row_len, int64_t n, int64_t k,
                  enum llm_compute compute, struct llm_err *e)
{
    return gradient_of_rows(&(struct gradient){.g = gemm_of(compute), .dw = dw, .dy = dy, .x = x, .ldy = ldy, .ldx = ldx, .n = n, .k = k,
                                               .row_len = row_len}, m, e);
}

int llm_matmul_dw_panels(float *dw, const float *dy, int64_t ldy, const void *panels, int64_t m, int64_t row_len, int64_t n, int64_t k,
                         struct llm_err *e)
{
    return gradient_of_rows(&(struct gradient){.g = gemm_of(LLM_COMPUTE_BF16), .dw = dw, .dy = dy, .panels = panels, .ldy = ldy, .n = n, .k = k,
                                               .row_len = row_len}, m, e);
}

int llm_matmul_dw_blocks(float *dw, const float *dy, int64_t ldy, const float *x, int64_t ldx, const int64_t *starts, int64_t n_blocks, int64_t n,
                         int64_t k, enum llm_compute compute, struct llm_err *e)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < n_blocks; i++) {
        if (starts[i + 1] - starts[i] > longest) longest = starts[i + 1] - starts[i];
    }
    if (longest == 0 || n == 0 || k == 0) return 0;
    struct gradient p = {.g = gemm_of(compute), .dw = dw, .dy = dy, .x = x, .ldy = ldy, .ldx = ldx, .n = n, .k = k, .starts = starts};
    return gradient_run(&p, n_blocks, longest, e);
}

const char *llm_matmul_kind(enum llm_dtype w, enum llm_compute compute)
{
    if (compute != LLM_COMPUTE_BF16) return gemm_of(compute) == &llm_k.gemm.f32 ? "f32" : "bf16";
    return gemm_q_of(w) ? "int8" : "bf16";
}

const char *llm_compute_word(int i)
{
    static const char *const words[] = {[LLM_COMPUTE_F32] = "f32", [LLM_COMPUTE_BF16] = "bf16", [LLM_COMPUTE_BF16X3] = "bf16x3", NULL};
    return words[i];
}
