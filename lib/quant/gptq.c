#include "quant/gptq.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "cpu/pool.h"
#include "quant/block.h"
#include "quant/weights.h"

/* ---- the factor: H = R·Rᵀ with R upper triangular; then U = R⁻¹ is the upper Cholesky factor of H⁻¹ (H⁻¹ = Uᵀ·U) ---- */

enum { SOME = 32 /* rows of a work item */ };

struct factor {
    int64_t k, column;
    double *r;                     /* [k, k] R; then U */
    const double *of;              /* [k, k] R, from which U is made */
};

/* Rows of the column at hand: R_ij = (H_ij - Σ R_im R_jm) / R_jj over m > j. */
static void column_rows(void *arg, size_t item, int thread)
{
    const struct factor *f = arg;
    const int64_t k = f->k, j = f->column;
    const double *at = f->r + j * k;
    (void)thread;
    for (int64_t i = (int64_t)item * SOME; i < (int64_t)(item + 1) * SOME && i < j; i++) {
        double *row = f->r + i * k, sum = 0;
        for (int64_t m = j + 1; m < k; m++) sum += row[m] * at[m];
        row[j] = (row[j] - sum) / at[j];
    }
}

/* R in place of the upper half of H; false if H is not positive definite. */
static bool factorise(struct factor *f)
{
    for (int64_t j = f->k - 1; j >= 0; j--) {
        double *row = f->r + j * f->k, sum = row[j], whole = row[j];
        for (int64_t m = j + 1; m < f->k; m++) sum -= row[m] * row[m];
        if (!(sum > whole * 1e-9)) return false;
        row[j] = sqrt(sum);
        f->column = j;
        llm_parallel((size_t)((j + SOME - 1) / SOME), column_rows, f);
    }
    return true;
}

/* Row i of U solves u·R = eᵢ. */
static void inverse_row(void *arg, size_t item, int thread)
{
    const struct factor *f = arg;
    const int64_t k = f->k, i = (int64_t)item;
    double *u = f->r + i * k;
    (void)thread;
    memset(u, 0, (size_t)k * sizeof *u);
    u[i] = 1;
    for (int64_t m = i; m < k; m++) {
        const double *row = f->of + m * k, v = u[m] / row[m];
        u[m] = v;
        for (int64_t j = m + 1; j < k; j++) u[j] -= v * row[j];
    }
}

/* H, its rows and columns in the order of `order`, with the damping on its diagonal. */
static void fill(double *h, const struct llm_quant_job *job, const int64_t *order, double damping)
{
    const int64_t k = job->row;
    double mean = 0;
    for (int64_t j = 0; j < k; j++) mean += (double)job->products[j * k + j] / (double)k;
    for (int64_t i = 0; i < k; i++) {
        for (int64_t j = 0; j < k; j++) h[i * k + j] = (double)job->products[order[i] * k + order[j]];
        if (h[i * k + i] <= 0) h[i * k + i] = mean > 0 ? mean : 1;
        h[i * k + i] += damping * (mean > 0 ? mean : 1);
    }
}

/* U as floats; NULL: see `e`. */
static float *factor_of(const struct llm_quant_job *job, const int64_t *order, double *damping, struct llm_err *e)
{
    const int64_t k = job->row;
    double *r = llm_alloc((size_t)(k * k), sizeof *r, "GPTQ", e), *u = r ? llm_alloc((size_t)(k * k), sizeof *u, "GPTQ", e) : NULL;
    float *out = u ? llm_alloc((size_t)(k * k), sizeof *out, "GPTQ", e) : NULL;
    bool good = false;
    for (*damping = 0.01; out && !good && *damping < 1e6; *damping *= good ? 1 : 10) {
        fill(r, job, order, *damping);
        good = factorise(&(struct factor){.k = k, .r = r});
    }
    if (good) {
        llm_parallel((size_t)k, inverse_row, &(struct factor){.k = k, .r = u, .of = r});
        for (int64_t i = 0; i < k * k; i++) out[i] = (float)u[i];
    } else if (out) {
        llm_fail(e, EX_DATAERR, "GPTQ: expected finite products of inputs, found others");
        free(out);
        out = NULL;
    }
    free(r);
    free(u);
    return out;
}

/* ---- the rows ---- */

enum { ROWS = 8 /* of a work item: they share each row of U while it is in the cache */ };

struct rows {
    const struct llm_quant_job *job;
    const struct llm_block_kind *kind;
    const float *u, *importance;
    const int64_t *order;
    int64_t n;
    bool *failed;                  /* [items] no memory */
};

/* Scales and codes of the block of row x that begins at element `first`. */
static void choose(const struct rows *w, const float *x, int64_t first, struct llm_block *b)
{
    float weights[LLM_BLOCK_MAX];
    llm_block_weights(w->job->to, x, (size_t)w->job->row, (size_t)first, w->importance + first, weights);
    llm_block_choose(w->kind, x + first, weights, LLM_BLOCK_SEARCH, b);
}

/* Rounds element `at` of a row with its block's scales; returns the error. */
static float round_element(const struct llm_block_kind *kind, struct llm_block *blocks, int64_t at, float x)
{
    struct llm_block *b = &blocks[at / kind->size];
    const int j = (int)(at % kind->size), g = j / kind->group;
    const float d = b->d * (float)b->scale[g], low = b->least * (float)b->low[g];
    const int q = llm_block_code(kind, d != 0 ? (x + low) / d : 0);
    b->q[j] = (uint8_t)q;
    return x - llm_block_value(kind, b, g, q);
}

/* Scales are chosen for the weights as they are in the file; then columns follow in the order of the largest inputs. */
static void quantise_rows(const struct rows *w, float *x, float *y, struct llm_block *blocks, int64_t rows)
{
    const int64_t k = w->job->row, per_row = k / w->kind->size;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t b = 0; b < per_row; b++) choose(w, x + r * k, b * w->kind->size, &blocks[r * per_row + b]);
        for (int64_t j = 0; j < k; j++) y[r * k + j] = x[r * k + w->order[j]];
    }
    for (int64_t j = 0; j < k; j++) {
        const float *u = w->u + j * k;
        for (int64_t r = 0; r < rows; r++) {
            float *row = y + r * k, error = round_element(w->kind, blocks + r * per_row, w->order[j], row[j]) / u[j];
            for (int64_t m = j + 1; m < k; m++) row[m] -= error * u[m];
        }
    }
}

static void quantise_item(void *arg, size_t item, int thread)
{
    const struct rows *w = arg;
    const struct llm_dtype_row *from = &llm_dtypes[w->job->from], *to = &llm_dtypes[w->job->to];
    const int64_t k = w->job->row, first = (int64_t)item * ROWS, rows = w->n - first < ROWS ? w->n - first : ROWS, per_row = k / w->kind->size;
    float *x = malloc((size_t)(2 * ROWS * k) * sizeof *x);
    struct llm_block *blocks = malloc((size_t)(ROWS * per_row) * sizeof *blocks);
    (void)thread;
    w->failed[item] = !x || !blocks;
    if (x && blocks) {
        from->decode((const char *)w->job->in + llm_dtype_bytes(w->job->from, (uint64_t)(first * k)), x, (size_t)(rows * k));
        quantise_rows(w, x, x + ROWS * k, blocks, rows);
        char *out = (char *)w->job->out + llm_dtype_bytes(w->job->to, (uint64_t)(first * k));
        for (int64_t b = 0; b < rows * per_row; b++) w->kind->pack(&blocks[b], out + b * to->block_bytes);
    }
    free(x);
    free(blocks);
}

static int by_size(const void *a, const void *b, void *arg)
{
    const float *diagonal = arg;
    const int64_t i = *(const int64_t *)a, j = *(const int64_t *)b;
    if (diagonal[i] != diagonal[j]) return diagonal[i] > diagonal[j] ? -1 : 1;
    return i < j ? -1 : i > j;
}

int llm_gptq(const struct llm_quant_job *job, double *damping, struct llm_err *e)
{
    const int64_t k = job->row, n = (int64_t)(job->n / (uint64_t)k), items = (n + ROWS - 1) / ROWS;
    struct rows w = {.job = job, .kind = llm_block_kind_of(job->to), .n = n};
    int64_t *order = llm_alloc((size_t)k, sizeof *order, "GPTQ", e);
    float *diagonal = order ? llm_alloc((size_t)k, sizeof *diagonal, "GPTQ", e) : NULL, *u = NULL;
    w.failed = diagonal ? llm_calloc((size_t)items + 1, sizeof *w.failed, "GPTQ", e) : NULL;
    for (int64_t j = 0; w.failed && j < k; j++) {
        order[j] = j;
        diagonal[j] = job->products[j * k + j];
    }
    if (w.failed) {
        qsort_r(order, (size_t)k, sizeof *order, by_size, diagonal);
        u = factor_of(job, order, damping, e);
    }
    int status = u ? 0 : -1;
    if (u) {
        w.u = u;
        w.order = order;
        w.importance = job->importance ? job->importance : diagonal;
        llm_parallel((size_t)items, quantise_item, &w);
        for (int64_t i = 0; i < items && status == 0; i++) status = w.failed[i] ? llm_no_memory(e, "GPTQ") : 0;
    }
    free(order);
    free(diagonal);
    free(w.failed);
    free(u);
    return status;
}
