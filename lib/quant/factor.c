#include "quant/factor.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "cpu/pool.h"

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

bool llm_upper_root(double *h, int64_t k)
{
    struct factor f = {.k = k, .r = h};
    for (int64_t j = k - 1; j >= 0; j--) {
        double *row = h + j * k, sum = row[j], whole = row[j];
        for (int64_t m = j + 1; m < k; m++) sum -= row[m] * row[m];
        if (!(sum > whole * 1e-9)) return false;
        row[j] = sqrt(sum);
        f.column = j;
        llm_parallel((size_t)((j + SOME - 1) / SOME), column_rows, &f);
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

float *llm_inverse_factor(const struct llm_products *p, double *damping, struct llm_err *e)
{
    const int64_t k = p->k;
    double *r = llm_alloc((size_t)(k * k), sizeof *r, "GPTQ", e), *u = r ? llm_alloc((size_t)(k * k), sizeof *u, "GPTQ", e) : NULL;
    float *out = u ? llm_alloc((size_t)(k * k), sizeof *out, "GPTQ", e) : NULL;
    bool good = false;
    for (*damping = 0.01; out && !good && *damping < 1e6; *damping *= good ? 1 : 10) {
        fill(r, p, *damping);
        good = llm_upper_root(r, k);
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
