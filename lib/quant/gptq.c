#include "quant/gptq.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "cpu/pool.h"
#include "quant/block.h"
#include "quant/factor.h"
#include "quant/grid.h"

/* ---- rounding ---- */

enum {
    CHUNK = 256,                   /* columns at most that are rounded before their errors are passed on to later columns; whole blocks */
    ROWS = 8,                      /* rows that share each row of U while it is in the cache */
    PANEL = 32                     /* rows whose errors are passed on to later rows together */
};

/* The damping of the gradients' factor, which knows the curvature less well than that of the inputs does: with less, rows make up for each other's
 * errors where another text's gradients do not agree. */
#define ROWS_DAMPING 0.3

struct rounding {
    const struct llm_quant_job *job;
    const struct llm_block_kind *kind; /* NULL: `grid` is the type's */
    const struct llm_grid_kind *grid;
    int64_t size;                  /* columns of a block */
    int64_t n, k, chunk;           /* rows; columns; columns of a chunk */
    const float *u;                /* [k, k] upper triangular, of the columns in `order` */
    const int64_t *order;          /* [k] */
    const float *v;                /* [n, n] as u, of the rows in `row_order`; NULL: rows do not make up for each other's errors */
    const int64_t *row_order;      /* [n] */
    float *left, *made_up;         /* [n, k] with v: weights less the errors of earlier rows; what the errors of earlier columns add to them */
    float *error, *lost;           /* with v: [n, chunk] errors of the chunk, divided by U's diagonal; [PANEL, chunk] those of whole weights */
    int64_t first, width, row, rows; /* with v: the chunk at hand, and the panel */
    bool *failed;                  /* [items] no memory */
};

/* A block whose columns are order[at..at + size), y[0] being the first of them; later columns of the chunk, up to y[width), make up for
 * its errors. */
struct block_columns {
    float *y;                      /* becomes the rounded values */
    int64_t at, width;
    float *error;                  /* [size] errors, divided by U's diagonal */
};

static int column_in_block(const struct rounding *w, const struct block_columns *t, int j)
{
    return (int)(w->order[t->at + j] % w->size);
}

/* The block's values as they are now, in the matrix's order, and the weights of the loss that GPTQ makes small, Σ (error / diagonal of U)². */
static void gather(const struct rounding *w, const struct block_columns *t, float *x, float *weights)
{
    for (int j = 0; j < w->size; j++) {
        const float diagonal = w->u[(t->at + j) * (w->k + 1)];
        x[column_in_block(w, t, j)] = t->y[j];
        weights[column_in_block(w, t, j)] = 1 / (diagonal * diagonal);
    }
}

/* Column j becomes `rounded`. */
static void round_column(const struct rounding *w, const struct block_columns *t, int j, float rounded)
{
    const float *u = w->u + (t->at + j) * w->k, scaled = (t->y[j] - rounded) / u[t->at + j];
    t->error[j] = scaled;
    t->y[j] = rounded;
    for (int64_t m = j + 1; m < t->width; m++) t->y[m] -= scaled * u[t->at + m];
}

static void round_block(const struct rounding *w, const struct block_columns *t, struct llm_block *b)
{
    const struct llm_block_kind *kind = w->kind;
    float x[LLM_BLOCK_MAX], weights[LLM_BLOCK_MAX];
    gather(w, t, x, weights);
    llm_block_choose(kind, x, weights, LLM_BLOCK_SEARCH, b);
    for (int i = 0; i < kind->size; i += kind->group) {
        const int g = column_in_block(w, t, i) / kind->group;
        if (i > 0) {
            for (int j = i; j < i + kind->group; j++) x[column_in_block(w, t, j)] = t->y[j];
            llm_block_regroup(kind, x + g * kind->group, weights + g * kind->group, g, b);
        }
        for (int j = i; j < i + kind->group; j++) {
            const float d = b->d * (float)b->scale[g], low = b->least * (float)b->low[g];
            const int q = llm_block_code(kind, d != 0 ? (t->y[j] + low) / d : 0);
            b->q[column_in_block(w, t, j)] = (uint8_t)q;
            round_column(w, t, j, llm_block_value(kind, b, g, q));
        }
    }
}

/* Points are chosen for eight columns together, when their turn comes. */
static void round_grid_block(const struct rounding *w, const struct block_columns *t, struct llm_grid_block *b)
{
    float x[LLM_GRID_BLOCK], weights[LLM_GRID_BLOCK];
    gather(w, t, x, weights);
    llm_grid_choose(w->grid, x, weights, LLM_BLOCK_SEARCH, b);
    for (int i = 0; i < LLM_GRID_BLOCK; i += 8) {
        const int k = column_in_block(w, t, i) / 8;
        for (int j = i; j < i + 8; j++) x[column_in_block(w, t, j)] = t->y[j];
        llm_grid_choose_eight(w->grid, x + k * 8, weights + k * 8, k, b);
        for (int j = i; j < i + 8; j++) round_column(w, t, j, llm_grid_value(w->grid, b, column_in_block(w, t, j)));
    }
}

/* Rounds columns [first, first + width) of a row and writes their blocks. y[width] in: the weights with all earlier errors made up for; out: the
 * rounded values. error[width]. */
static void round_chunk(const struct rounding *w, int64_t row, int64_t first, int64_t width, float *y, float *error)
{
    const struct llm_dtype_row *to = &llm_dtypes[w->job->to];
    char *out = (char *)w->job->out + llm_dtype_bytes(w->job->to, (uint64_t)(row * w->k));
    struct llm_block b;
    struct llm_grid_block points;
    for (int64_t i = 0; i < width; i += w->size) {
        const struct block_columns t = {y + i, first + i, width - i, error + i};
        const int64_t block = w->order[first + i] / w->size;
        if (w->grid) {
            round_grid_block(w, &t, &points);
            w->grid->pack(&points, out + block * to->block_bytes);
            continue;
        }
        round_block(w, &t, &b);
        w->kind->pack(&b, out + block * to->block_bytes);
        if (w->job->sink) w->job->sink->take(w->job->sink->arg, w->job->param, (uint64_t)(row * (w->k / w->size) + block), &b);
    }
}

static void read_row(const struct rounding *w, int64_t row, float *scratch, float *x)
{
    llm_dtypes[w->job->from].decode((const char *)w->job->in + llm_dtype_bytes(w->job->from, (uint64_t)(row * w->k)), scratch, (size_t)w->k);
    for (int64_t j = 0; j < w->k; j++) x[j] = scratch[w->order[j]];
}

/* Rows by themselves. */
static void round_rows(void *arg, size_t item, int thread)
{
    const struct rounding *w = arg;
    const int64_t k = w->k, first = (int64_t)item * ROWS, rows = w->n - first < ROWS ? w->n - first : ROWS;
    float *x = malloc((size_t)((ROWS + 1) * k) * sizeof *x), error[ROWS][CHUNK];
    (void)thread;
    w->failed[item] = !x;
    if (!x) return;
    for (int64_t r = 0; r < rows; r++) read_row(w, first + r, x + ROWS * k, x + r * k);
    for (int64_t c = 0; c < k; c += w->chunk) {
        const int64_t width = k - c < w->chunk ? k - c : w->chunk;
        for (int64_t r = 0; r < rows; r++) {
            round_chunk(w, first + r, c, width, x + r * k + c, error[r]);
            for (int64_t j = 0; j < width; j++) error[r][j] = -error[r][j];
        }
        for (int64_t r = 0; r < rows; r++) llm_add_rows(x + r * k + c + width, error[r], w->u + c * k + c + width, k, width, k - c - width);
    }
    free(x);
}

/* ---- with the rows' own factor ---- */

static void read_rows(void *arg, size_t item, int thread)
{
    const struct rounding *w = arg;
    (void)thread;
    read_row(w, w->row_order[item], w->made_up + (int64_t)item * w->k, w->left + (int64_t)item * w->k);
    memset(w->made_up + (int64_t)item * w->k, 0, (size_t)w->k * sizeof(float));
}

/* The errors of the panel, to a later row. */
static void later_row(void *arg, size_t item, int thread)
{
    const struct rounding *w = arg;
    const int64_t row = w->row + w->rows + (int64_t)item;
    float share[PANEL];
    (void)thread;
    for (int64_t i = 0; i < w->rows; i++) share[i] = -w->v[(w->row + i) * w->n + row] / w->v[(w->row + i) * (w->n + 1)];
    llm_add_rows(w->left + row * w->k + w->first, share, w->lost, w->chunk, w->rows, w->width);
}

/* The errors of the chunk, to the later columns of a row. */
static void later_columns(void *arg, size_t row, int thread)
{
    const struct rounding *w = arg;
    const int64_t c = w->first + w->width;
    (void)thread;
    llm_add_rows(w->made_up + (int64_t)row * w->k + c, w->error + (int64_t)row * w->chunk, w->u + w->first * w->k + c, w->k, w->width, w->k - c);
}

/* Rows of the panel one after another: each makes up for the errors of those before it. */
static void round_panel(const struct rounding *w)
{
    for (int64_t i = 0; i < w->rows; i++) {
        const int64_t row = w->row + i;
        float *left = w->left + row * w->k + w->first, *lost = w->lost + i * w->chunk, y[CHUNK];
        const float *made_up = w->made_up + row * w->k + w->first;
        for (int64_t h = 0; h < i; h++) {
            const float share = -w->v[(w->row + h) * w->n + row] / w->v[(w->row + h) * (w->n + 1)];
            llm_add_rows(left, &share, w->lost + h * w->chunk, 0, 1, w->width);
        }
        for (int64_t j = 0; j < w->width; j++) y[j] = left[j] - made_up[j];
        round_chunk(w, w->row_order[row], w->first, w->width, y, w->error + row * w->chunk);
        for (int64_t j = 0; j < w->width; j++) lost[j] = left[j] - y[j];
    }
}

static int round_together(struct rounding *w, struct llm_err *e)
{
    w->left = llm_alloc((size_t)(w->n * w->k), sizeof *w->left, "GPTQ", e);
    w->made_up = w->left ? llm_alloc((size_t)(w->n * w->k), sizeof *w->made_up, "GPTQ", e) : NULL;
    w->error = w->made_up ? llm_alloc((size_t)((w->n + PANEL) * w->chunk), sizeof *w->error, "GPTQ", e) : NULL;
    if (w->error) {
        w->lost = w->error + w->n * w->chunk;
        llm_parallel((size_t)w->n, read_rows, w);
        for (w->first = 0; w->first < w->k; w->first += w->chunk) {
            w->width = w->k - w->first < w->chunk ? w->k - w->first : w->chunk;
            for (w->row = 0; w->row < w->n; w->row += PANEL) {
                w->rows = w->n - w->row < PANEL ? w->n - w->row : PANEL;
                round_panel(w);
                llm_parallel((size_t)(w->n - w->row - w->rows), later_row, w);
            }
            llm_parallel((size_t)w->n, later_columns, w);
        }
    }
    int status = w->error ? 0 : -1;
    free(w->left);
    free(w->made_up);
    free(w->error);
    return status;
}

/* ---- orders ---- */

/* Columns by size of their inputs, but those of a block one after another, and of these the ones of a group: the block's scales are chosen when its
 * turn comes, for the weights that make up for the errors so far. */
struct sorting { const float *diagonal; float *block, *group; int size, share; };

static int by_size(const void *a, const void *b, void *arg)
{
    const struct sorting *s = arg;
    const int64_t i = *(const int64_t *)a, j = *(const int64_t *)b;
    const float of_i[] = {s->block[i / s->size], s->group[i / s->share], s->diagonal[i]};
    const float of_j[] = {s->block[j / s->size], s->group[j / s->share], s->diagonal[j]};
    const int64_t unit[] = {s->size, s->share, 1};
    for (int level = 0; level < 3; level++) {
        if (i / unit[level] == j / unit[level]) continue;
        if (of_i[level] != of_j[level]) return of_i[level] > of_j[level] ? -1 : 1;
        return i < j ? -1 : 1;
    }
    return 0;
}

/* The order of k columns or rows in blocks of `size` and groups of `share`; NULL: see `e`. diagonal[k] is filled. */
static int64_t *order_of(const float *products, int64_t k, int size, int share, float *diagonal, struct llm_err *e)
{
    int64_t *order = llm_alloc((size_t)k, sizeof *order, "GPTQ", e);
    struct sorting s = {diagonal, order ? llm_calloc((size_t)(2 * k), sizeof *s.block, "GPTQ", e) : NULL, NULL, size, share};
    if (!s.block) {
        free(order);
        return NULL;
    }
    s.group = s.block + k;
    for (int64_t j = 0; j < k; j++) {
        order[j] = j;
        diagonal[j] = products[j * k + j];
        s.block[j / size] += diagonal[j];
        s.group[j / share] += diagonal[j];
    }
    qsort_r(order, (size_t)k, sizeof *order, by_size, &s);
    free(s.block);
    return order;
}

/* Columns' factor and rows' factor, then the rounding. `diagonal` has room for the larger of rows and columns. */
static int round_all(struct rounding *w, float *diagonal, double *damping, struct llm_err *e)
{
    const struct llm_quant_job *job = w->job;
    const int64_t items = (w->n + ROWS - 1) / ROWS;
    int64_t *order = NULL, *row_order = NULL;
    float *u = NULL, *v = NULL;
    double of_rows = 0;
    int status = -1;
    if (job->gradients && (row_order = order_of(job->gradients, w->n, 1, 1, diagonal, e))) {
        v = llm_inverse_factor(&(struct llm_products){job->gradients, row_order, w->n}, ROWS_DAMPING, &of_rows, e);
    }
    if (!job->gradients || v) order = order_of(job->products, w->k, (int)w->size, w->kind ? w->kind->group : 8, diagonal, e);
    if (order) u = llm_inverse_factor(&(struct llm_products){job->products, order, w->k}, LLM_DAMPING, damping, e);
    w->u = u;
    w->v = v;
    w->order = order;
    w->row_order = row_order;
    if (u && v) {
        status = round_together(w, e);
    } else if (u && (w->failed = llm_calloc((size_t)items + 1, sizeof *w->failed, "GPTQ", e))) {
        llm_parallel((size_t)items, round_rows, w);
        status = 0;
        for (int64_t i = 0; i < items && status == 0; i++) status = w->failed[i] ? llm_no_memory(e, "GPTQ") : 0;
        free(w->failed);
    }
    free(order);
    free(row_order);
    free(u);
    free(v);
    return status;
}

int llm_gptq(const struct llm_quant_job *job, double *damping, struct llm_err *e)
{
    const int size = llm_dtypes[job->to].block_size;
    struct rounding w = {.job = job, .kind = llm_block_kind_of(job->to), .grid = llm_grid_kind_of(job->to), .size = size, .k = job->row,
                         .n = (int64_t)(job->n / (uint64_t)job->row), .chunk = CHUNK / size * size};
    float *diagonal = llm_alloc((size_t)(w.n > w.k ? w.n : w.k), sizeof *diagonal, "GPTQ", e);
    int status = diagonal ? round_all(&w, diagonal, damping, e) : -1;
    free(diagonal);
    return status;
}
