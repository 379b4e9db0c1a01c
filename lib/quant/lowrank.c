#include "quant/lowrank.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "cpu/pages.h"
#include "cpu/pool.h"
#include "quant/double.h"
#include "quant/eigen.h"
#include "quant/factor.h"
#include "quant/types.h"

enum { ROWS = 8 /* of a work item */, READ = 2 << 20 /* bytes of the matrix that are read before their pages are released */ };

struct factoring {
    const struct llm_lowrank_job *job;
    int64_t n, k, side;            /* side: the smaller of n and k */
    int64_t first;                 /* the first row of a run of weigh_rows */
    double *delta, *weighted;      /* [n, k] Δ; Δ·R, the same array if all inputs count the same */
    double *root;                  /* [k, k] R, upper triangular; NULL without products */
    double *gram, *values;         /* [side, side] of `weighted`, then eigenvectors; [side] squared singular values */
    double *sums;                  /* [rank, k] rows of a */
    float *a, *b;                  /* [rank, k], [n, rank] */
    int64_t rank;
};

bool llm_lowrank_wants(const struct llm_param *p)
{
    return p->n_dims == 2 && llm_quant_is_inner(p) && llm_lora_can_adapt(p->spec);
}

static int64_t last_of(size_t item, int64_t n)
{
    const int64_t end = (int64_t)(item + 1) * ROWS;
    return end < n ? end : n;
}

static void for_rows(int64_t n, void (*piece)(void *arg, size_t item, int thread), struct factoring *f)
{
    llm_parallel((size_t)((n + ROWS - 1) / ROWS), piece, f);
}

/* Rows of Δ and of Δ·R. */
static void weigh_rows(void *arg, size_t item, int thread)
{
    enum { RUN = 256 }; /* elements that are decoded at a time: whole blocks of every type */
    const struct factoring *f = arg;
    const struct llm_lowrank_job *j = f->job;
    const int64_t k = f->k, end = last_of(item, f->n - f->first) + f->first;
    (void)thread;
    for (int64_t i = f->first + (int64_t)item * ROWS; i < end; i++) {
        double *delta = f->delta + i * k, *out = f->weighted + i * k;
        for (int64_t c = 0; c < k; c += RUN) {
            float x[RUN], y[RUN];
            const size_t n = (size_t)(k - c < RUN ? k - c : RUN);
            llm_dtypes[j->of_type].decode((const char *)j->of + llm_dtype_bytes(j->of_type, (uint64_t)(i * k + c)), x, n);
            llm_dtypes[j->stored_type].decode((const char *)j->stored + llm_dtype_bytes(j->stored_type, (uint64_t)(i * k + c)), y, n);
            for (size_t m = 0; m < n; m++) delta[c + (int64_t)m] = (double)x[m] - (double)y[m];
        }
        if (out == delta) continue;
        for (int64_t c = 0; c < k; c++) out[c] = f->root ? 0 : delta[c] * sqrt((double)j->importance[c]);
        for (int64_t r = 0; r < k && f->root; r++) llm_double_add(out + r, delta[r], f->root + r * (k + 1), k - r);
    }
}

static void weigh(struct factoring *f)
{
    const struct llm_lowrank_job *j = f->job;
    const size_t row = llm_dtype_bytes(j->of_type, (uint64_t)f->k);
    const int64_t run = ((int64_t)(READ / (row + 1)) / ROWS + 1) * ROWS;
    for (f->first = 0; f->first < f->n; f->first += run) {
        const int64_t rows = f->n - f->first < run ? f->n - f->first : run;
        for_rows(rows, weigh_rows, f);
        if (j->mapped) llm_weight_release_pages(j->mapped, (size_t)f->first * row, (size_t)rows * row);
    }
    free(f->root);
    f->root = NULL;
}

/* Products of the rows of Δ·R, or of its columns if these are fewer; the half on and below the diagonal. */
static void gram_rows(void *arg, size_t item, int thread)
{
    const struct factoring *f = arg;
    const int64_t k = f->k, end = last_of(item, f->side);
    (void)thread;
    for (int64_t i = (int64_t)item * ROWS; i < end; i++) {
        double *row = f->gram + i * f->side;
        for (int64_t j = 0; j <= i && f->n <= k; j++) row[j] = llm_double_dot(f->weighted + i * k, f->weighted + j * k, k);
        if (f->n <= k) continue;
        memset(row, 0, (size_t)(i + 1) * sizeof *row);
        for (int64_t t = 0; t < f->n; t++) llm_double_add(row, f->weighted[t * k + i], f->weighted + t * k, i + 1);
    }
}

/* R with R·Rᵀ = H, whose diagonal gets `more` of its mean added. */
static bool find_root(double *r, const float *h, int64_t k, double more, double *pack)
{
    double mean = 0;
    for (int64_t j = 0; j < k; j++) mean += (double)h[j * k + j] / (double)k;
    if (!(mean > 0)) mean = 1;
    for (int64_t i = 0; i < k * k; i++) r[i] = (double)h[i];
    for (int64_t j = 0; j < k; j++) r[j * k + j] += more * mean;
    return llm_upper_root(r, k, pack);
}

/* ---- factors from eigenvectors ---- */

/* Columns of b, the left singular vectors u, and rows of a, uᵀ·Δ; then both get the same length. */
static void factor_rows(void *arg, size_t item, int thread)
{
    const struct factoring *f = arg;
    const int64_t n = f->n, k = f->k, u = (int64_t)item;
    const double *vector = f->gram + u * f->side, scale = 1 / sqrt(f->values[u]);
    double *sum = f->sums + u * k;
    (void)thread;
    memset(sum, 0, (size_t)k * sizeof *sum);
    for (int64_t i = 0; i < n; i++) {
        const double v = n <= k ? vector[i] : scale * llm_double_dot(f->weighted + i * k, vector, k);
        f->b[i * f->rank + u] = (float)v;
        llm_double_add(sum, v, f->delta + i * k, k);
    }
    const double length = sqrt(sqrt(llm_double_dot(sum, sum, k)));
    for (int64_t c = 0; c < k; c++) f->a[u * k + c] = length > 0 ? (float)(sum[c] / length) : 0;
    for (int64_t i = 0; i < n; i++) f->b[i * f->rank + u] = (float)((double)f->b[i * f->rank + u] * length);
}

/* The rank; *energy: the share of the squares that it has. */
static int64_t choose_rank(const struct llm_lowrank *l, const double *values, int64_t side, double *energy)
{
    double all = 0, part = 0;
    int64_t rank = 0;
    for (int64_t i = 0; i < side; i++) all += values[i] > 0 ? values[i] : 0;
    const double least = values[0] * (double)side * DBL_EPSILON; /* smaller ones are rounding of the products */
    while (rank < side && values[rank] > least && (l->rank > 0 ? rank < l->rank : part < l->energy * all)) part += values[rank++];
    *energy = all > 0 ? part / all : 1;
    return rank > 0 ? rank : 1;
}

static int decompose(const struct llm_lowrank *l, struct factoring *f, double *energy, struct llm_err *e)
{
    const size_t elements = (size_t)(f->n * f->k), side = (size_t)f->side;
    bool known = true;
    f->delta = llm_alloc(elements, sizeof *f->delta, "low rank", e);
    f->weighted = f->delta;
    if (f->delta && (f->job->products || f->job->importance)) f->weighted = llm_alloc(elements, sizeof *f->weighted, "low rank", e);
    f->gram = f->weighted ? llm_alloc(side * side, sizeof *f->gram, "low rank", e) : NULL;
    f->values = f->gram ? llm_alloc(side, sizeof *f->values, "low rank", e) : NULL;
    if (!f->values) return -1;
    if (f->job->products) {
        f->root = llm_alloc((size_t)(f->k * f->k), sizeof *f->root, "low rank", e);
        double *pack = f->root ? llm_alloc((size_t)f->k, LLM_FACTOR_PANEL * sizeof *pack, "low rank", e) : NULL;
        if (!pack) return -1;
        known = false;
        for (double more = 1e-9; !known && more < 1e3; more *= 100) known = find_root(f->root, f->job->products, f->k, more, pack);
        free(pack);
    }
    if (!known) return llm_fail(e, EX_DATAERR, "low rank: expected finite products of inputs, found others");
    weigh(f);
    for_rows(f->side, gram_rows, f);
    for (int64_t i = 0; i < f->side; i++) {
        for (int64_t j = 0; j < i; j++) f->gram[j * f->side + i] = f->gram[i * f->side + j];
    }
    if (llm_eigen(f->gram, f->side, f->values, e) < 0) return -1;
    f->rank = choose_rank(l, f->values, f->side, energy);
    f->a = llm_alloc((size_t)(f->rank * f->k), sizeof *f->a, "low rank", e);
    f->b = f->a ? llm_alloc((size_t)(f->n * f->rank), sizeof *f->b, "low rank", e) : NULL;
    f->sums = f->b ? llm_alloc((size_t)(f->rank * f->k), sizeof *f->sums, "low rank", e) : NULL;
    if (!f->sums) return -1;
    if (f->values[0] > 0) {
        llm_parallel((size_t)f->rank, factor_rows, f);
    } else { /* nothing is lost */
        memset(f->a, 0, (size_t)(f->rank * f->k) * sizeof *f->a);
        memset(f->b, 0, (size_t)(f->n * f->rank) * sizeof *f->b);
    }
    return 0;
}

int llm_lowrank_add(struct llm_lowrank *l, const struct llm_lowrank_job *j, int64_t *rank, double *energy, struct llm_err *e)
{
    struct factoring f = {.job = j, .n = j->n, .k = j->k, .side = j->n < j->k ? j->n : j->k};
    int status = decompose(l, &f, energy, e);
    if (status == 0) status = llm_grow((void **)&l->v, &l->room, l->n + 1, sizeof *l->v, e);
    if (f.weighted != f.delta) free(f.weighted);
    free(f.delta);
    free(f.root);
    free(f.gram);
    free(f.values);
    free(f.sums);
    if (status < 0) {
        free(f.a);
        free(f.b);
        return -1;
    }
    l->v[l->n++] = (struct llm_lora_factors){.param = j->param, .rank = f.rank, .a = f.a, .b = f.b};
    *rank = f.rank;
    return 0;
}

void llm_lowrank_release(struct llm_lowrank *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->v[i].a);
        free(l->v[i].b);
    }
    free(l->v);
    *l = (struct llm_lowrank){0};
}
