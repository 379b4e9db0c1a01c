#include "quant/factor.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "cpu/pool.h"

/* ---- the factor: H = R·Rᵀ with R upper triangular; then U = R⁻¹ is the upper Cholesky factor of H⁻¹ (H⁻¹ = Uᵀ·U) ---- */

/* Columns of a panel are computed together, from all rows of earlier panels, so that each row is read once for them. */
enum { SOME = 32 /* rows of a work item */, PANEL = LLM_FACTOR_PANEL, TILE = 4 /* rows and columns whose sums are in registers */ };
typedef double pair __attribute__((vector_size(2 * sizeof(double))));

struct factor {
    int64_t k, first, end;         /* columns [first, end) are the panel */
    double *r;                     /* [k, k] R; then U */
    const double *of;              /* [k, k] R, from which U is made */
    double *pack;                  /* what rows are multiplied with: for each TILE columns of the panel [k, TILE], 0 beyond the panel */
};

/* sum[t, j] = Σ a_t[l]·pack[l, j], l in [from, to), in order of l. */
static void multiply_tile(const double *a, const double *b, const double *c, const double *d, const double *pack, int64_t from, int64_t to,
                          pair sum[TILE][2])
{
    pair a0 = {0}, a1 = {0}, b0 = {0}, b1 = {0}, c0 = {0}, c1 = {0}, d0 = {0}, d1 = {0}; /* apart, so that they are in registers */
    for (int64_t l = from; l < to; l++) {
        pair x, y;
        memcpy(&x, pack + l * TILE, sizeof x);
        memcpy(&y, pack + l * TILE + 2, sizeof y);
        a0 += a[l] * x;
        a1 += a[l] * y;
        b0 += b[l] * x;
        b1 += b[l] * y;
        c0 += c[l] * x;
        c1 += c[l] * y;
        d0 += d[l] * x;
        d1 += d[l] * y;
    }
    sum[0][0] = a0, sum[0][1] = a1, sum[1][0] = b0, sum[1][1] = b1;
    sum[2][0] = c0, sum[2][1] = c1, sum[3][0] = d0, sum[3][1] = d1;
}

/* sum[i, j] = Σ a[i, l]·(element l of column j of the panel), l in [from, to), of rows a [rows, lda]. */
static void multiply(const struct factor *f, const double *a, int64_t lda, int64_t rows, int64_t from, int64_t to, double sum[SOME][PANEL])
{
    for (int64_t q = 0; q < PANEL / TILE; q++) {
        for (int64_t i = 0; i < rows; i += TILE) { /* rows beyond the last stand for the last */
            const double *row[TILE];
            pair s[TILE][2];
            for (int64_t t = 0; t < TILE; t++) row[t] = a + (i + t < rows ? i + t : rows - 1) * lda;
            multiply_tile(row[0], row[1], row[2], row[3], f->pack + q * f->k * TILE, from, to, s);
            for (int64_t t = 0; t < TILE && i + t < rows; t++) memcpy(&sum[i + t][q * TILE], s[t], sizeof s[t]);
        }
    }
}

static double *packed(const struct factor *f, int64_t l, int64_t column)
{
    return f->pack + (column / TILE * f->k + l) * TILE + column % TILE;
}

/* Rows of the panel's columns, above it: R_ij = (H_ij - Σ R_im R_jm) / R_jj over m > j. */
static void rows_above(void *arg, size_t item, int thread)
{
    const struct factor *f = arg;
    const int64_t k = f->k, at = (int64_t)item * SOME, rows = f->first - at < SOME ? f->first - at : SOME;
    double sum[SOME][PANEL];
    (void)thread;
    multiply(f, f->r + at * k, k, rows, f->end, k, sum);
    for (int64_t i = 0; i < rows; i++) {
        double *row = f->r + (at + i) * k;
        for (int64_t j = f->end - 1; j >= f->first; j--) {
            double rest = row[j] - sum[i][j - f->first];
            for (int64_t m = j + 1; m < f->end; m++) rest -= row[m] * f->r[j * k + m];
            row[j] = rest / f->r[j * k + j];
        }
    }
}

/* The panel's own rows. false: not positive definite. */
static bool own_rows(const struct factor *f)
{
    const int64_t k = f->k, first = f->first, end = f->end;
    double sum[SOME][PANEL];
    multiply(f, f->r + first * k, k, end - first, end, k, sum);
    for (int64_t j = end - 1; j >= first; j--) {
        const double *at = f->r + j * k;
        for (int64_t i = j; i >= first; i--) {
            double *row = f->r + i * k, rest = row[j] - sum[i - first][j - first];
            const double whole = row[j];
            for (int64_t m = j + 1; m < end; m++) rest -= row[m] * at[m];
            if (i < j) row[j] = rest / at[j];
            else if (rest > whole * 1e-9) row[j] = sqrt(rest);
            else return false;
        }
    }
    return true;
}

bool llm_upper_root(double *h, int64_t k, double *pack)
{
    struct factor f = {.k = k, .r = h, .pack = pack};
    for (f.end = k; f.end > 0; f.end = f.first) {
        f.first = f.end > PANEL ? f.end - PANEL : 0;
        for (int64_t j = 0; j < PANEL; j++) {
            for (int64_t l = f.end; l < k; l++) *packed(&f, l, j) = f.first + j < f.end ? h[(f.first + j) * k + l] : 0;
        }
        if (!own_rows(&f)) return false;
        llm_parallel((size_t)((f.first + SOME - 1) / SOME), rows_above, &f);
    }
    return true;
}

/* Columns of the panel of rows of U, which solve u·R = eᵢ. */
static void inverse_rows(void *arg, size_t item, int thread)
{
    const struct factor *f = arg;
    const int64_t k = f->k, at = (int64_t)item * SOME, rows = f->end - at < SOME ? f->end - at : SOME;
    double sum[SOME][PANEL];
    (void)thread;
    multiply(f, f->r + at * k, k, rows, at < f->first ? at : f->first, f->first, sum);
    for (int64_t i = 0; i < rows; i++) {
        double *u = f->r + (at + i) * k;
        for (int64_t j = at + i > f->first ? at + i : f->first; j < f->end; j++) {
            double rest = (j == at + i ? 1 : 0) - sum[i][j - f->first];
            for (int64_t l = f->first; l < j; l++) rest -= u[l] * f->of[l * k + j];
            u[j] = rest / f->of[j * k + j];
        }
    }
}

/* u [k, k] = R⁻¹ */
static void invert(const double *r, int64_t k, double *u, double *pack)
{
    struct factor f = {.k = k, .r = u, .of = r, .pack = pack};
    memset(u, 0, (size_t)(k * k) * sizeof *u);
    for (f.first = 0; f.first < k; f.first = f.end) {
        f.end = f.first + PANEL < k ? f.first + PANEL : k;
        for (int64_t l = 0; l < f.first; l++) {
            for (int64_t j = 0; j < PANEL; j++) *packed(&f, l, j) = f.first + j < f.end ? r[l * k + f.first + j] : 0;
        }
        llm_parallel((size_t)((f.end + SOME - 1) / SOME), inverse_rows, &f);
    }
}

/* H in double, with the damping on its diagonal: `damping` times the mean of the diagonal. */
static void fill(double *h, const struct llm_products *p, double damping)
{
    const int64_t k = p->k;
    double mean = 0;
    for (int64_t j = 0; j < k; j++) mean += (double)p->of[j * k + j] / (double)k;
    for (int64_t i = 0; i < k; i++) {
        for (int64_t j = 0; j < k; j++) h[i * k + j] = (double)(p->order ? p->of[p->order[i] * k + p->order[j]] : p->of[i * k + j]);
        if (h[i * k + i] <= 0) h[i * k + i] = mean > 0 ? mean : 1;
        h[i * k + i] += damping * (mean > 0 ? mean : 1);
    }
}

float *llm_inverse_factor(const struct llm_products *p, double least, double *damping, struct llm_err *e)
{
    const int64_t k = p->k;
    double *r = llm_alloc((size_t)(k * k), sizeof *r, "GPTQ", e), *u = r ? llm_alloc((size_t)(k * k), sizeof *u, "GPTQ", e) : NULL;
    double *pack = u ? llm_alloc((size_t)k, PANEL * sizeof *pack, "GPTQ", e) : NULL;
    float *out = pack ? llm_alloc((size_t)(k * k), sizeof *out, "GPTQ", e) : NULL;
    bool good = false;
    for (*damping = least; out && !good && *damping < 1e6; *damping *= good ? 1 : 10) {
        fill(r, p, *damping);
        good = llm_upper_root(r, k, pack);
    }
    if (good) {
        invert(r, k, u, pack);
        for (int64_t i = 0; i < k * k; i++) out[i] = (float)u[i];
    } else if (out) {
        llm_fail(e, EX_DATAERR, "GPTQ: expected finite products of inputs, found others");
        free(out);
        out = NULL;
    }
    free(r);
    free(u);
    free(pack);
    return out;
}

void llm_add_rows(float *restrict y, const float *e, const float *u, int64_t ld, int64_t rows, int64_t cols)
{
    int64_t j = 0;
    for (; j + 4 <= rows; j += 4) {
        const float *a = u + j * ld, *b = a + ld, *c = b + ld, *d = c + ld, ea = e[j], eb = e[j + 1], ec = e[j + 2], ed = e[j + 3];
        for (int64_t m = 0; m < cols; m++) y[m] += (ea * a[m] + eb * b[m]) + (ec * c[m] + ed * d[m]);
    }
    for (; j < rows; j++) {
        const float *a = u + j * ld, ea = e[j];
        for (int64_t m = 0; m < cols; m++) y[m] += ea * a[m];
    }
}
