/* Reflections make the matrix tridiagonal (Householder), then QR steps with Wilkinson's shift make it diagonal (Golub and Van Loan, "Matrix
 * Computations", algorithms 8.3.1 to 8.3.3). Vectors are kept as rows, so that each rotation reads two rows. */
#include "quant/eigen.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "cpu/pool.h"
#include "quant/double.h"

enum {
    ROWS = 16,           /* rows of a work item */
    BLOCK = 256,         /* rows of the product of reflections that are made together */
    COLUMNS = 64,        /* columns of a work item that rotates rows */
    STEPS = 60           /* QR steps for each eigenvalue; about two are needed */
};

struct rotation { int64_t row; double c, s; };

struct eigen {
    int64_t n, at;               /* at: the column that is reflected */
    double *a, *d, *next;        /* [n, n], later the vectors; [n] the diagonal; [n] what stands beside it */
    double *v, *p, *beta;        /* [n] a reflection's vector; [n] a·v, then what is subtracted; [n] the factors of all reflections */
    double *block;               /* [BLOCK, n] rows of the product of reflections from row `first` on */
    int64_t first, rows;
    struct rotation *rotations;  /* [n_rotations] of one QR step */
    int64_t n_rotations;
};

static size_t items(int64_t n, int64_t of) { return (size_t)((n + of - 1) / of); }

static void product_rows(void *arg, size_t item, int thread)
{
    const struct eigen *w = arg;
    const int64_t first = w->at + 1, begin = first + (int64_t)item * ROWS, end = begin + ROWS < w->n ? begin + ROWS : w->n;
    (void)thread;
    for (int64_t i = begin; i < end; i++) w->p[i] = w->beta[w->at] * llm_double_dot(w->a + i * w->n + first, w->v + first, w->n - first);
}

static void update_rows(void *arg, size_t item, int thread)
{
    const struct eigen *w = arg;
    const int64_t first = w->at + 1, begin = first + (int64_t)item * ROWS, end = begin + ROWS < w->n ? begin + ROWS : w->n;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        double *row = w->a + i * w->n;
        llm_double_add(row + first, -w->v[i], w->p + first, w->n - first);
        llm_double_add(row + first, -w->p[i], w->v + first, w->n - first);
    }
}

/* Makes column `at` 0 below what stands beside the diagonal. The reflection's vector takes the place of these elements in row `at`. */
static void reflect(struct eigen *w, int64_t at)
{
    const int64_t first = at + 1, n = w->n, left = n - first;
    double *row = w->a + at * n, square = llm_double_dot(row + first, row + first, left), beside = row[first];
    w->at = at;
    w->beta[at] = 0;
    w->next[at] = beside;
    if (square - beside * beside <= 0) return;
    w->next[at] = beside > 0 ? -sqrt(square) : sqrt(square);
    memcpy(w->v + first, row + first, (size_t)left * sizeof *row);
    w->v[first] -= w->next[at];
    w->beta[at] = 2 / llm_double_dot(w->v + first, w->v + first, left);
    llm_parallel(items(left, ROWS), product_rows, w);
    const double half = w->beta[at] / 2 * llm_double_dot(w->p + first, w->v + first, left);
    for (int64_t i = first; i < n; i++) w->p[i] -= half * w->v[i];
    llm_parallel(items(left, ROWS), update_rows, w);
    memcpy(row + first, w->v + first, (size_t)left * sizeof *row);
}

/* Rows of the product of all reflections, each from its row of the identity, which reflections from its own number on do not change. */
static void vector_rows(void *arg, size_t item, int thread)
{
    const struct eigen *w = arg;
    const int64_t n = w->n, begin = (int64_t)item * ROWS, end = begin + ROWS < w->rows ? begin + ROWS : w->rows;
    (void)thread;
    memset(w->block + begin * n, 0, (size_t)((end - begin) * n) * sizeof *w->block);
    for (int64_t i = begin; i < end; i++) w->block[i * n + w->first + i] = 1;
    for (int64_t c = w->first + end - 2 < n - 3 ? w->first + end - 2 : n - 3; c >= 0; c--) {
        const double *v = w->a + c * n;
        for (int64_t i = begin > c + 1 - w->first ? begin : c + 1 - w->first; i < end; i++) {
            double *row = w->block + i * n;
            const double sum = w->beta[c] * llm_double_dot(row + c + 1, v + c + 1, n - c - 1);
            llm_double_add(row + c + 1, -sum, v + c + 1, n - c - 1);
        }
    }
}

/* Puts the product of all reflections in the place of their vectors: from the last row on, as a row needs the vectors in rows before it alone. */
static void multiply_reflections(struct eigen *w)
{
    for (int64_t end = w->n; end > 0; end = w->first) {
        w->first = end > BLOCK ? end - BLOCK : 0;
        w->rows = end - w->first;
        llm_parallel(items(w->rows, ROWS), vector_rows, w);
        memcpy(w->a + w->first * w->n, w->block, (size_t)(w->rows * w->n) * sizeof *w->a);
    }
}

static void rotate_columns(void *arg, size_t item, int thread)
{
    const struct eigen *w = arg;
    const int64_t begin = (int64_t)item * COLUMNS, width = w->n - begin < COLUMNS ? w->n - begin : COLUMNS;
    (void)thread;
    for (int64_t i = 0; i < w->n_rotations; i++) {
        const double c = w->rotations[i].c, s = w->rotations[i].s;
        double *restrict x = w->a + w->rotations[i].row * w->n + begin, *restrict y = x + w->n;
        for (int64_t j = 0; j < width; j++) {
            const double u = x[j], v = y[j];
            x[j] = c * u + s * v;
            y[j] = c * v - s * u;
        }
    }
}

/* One step on the rows low to high, between which nothing is 0 beside the diagonal. */
static void qr_step(struct eigen *w, int64_t low, int64_t high)
{
    double *d = w->d, *next = w->next;
    const double half = (d[high - 1] - d[high]) / 2, beside = next[high - 1], root = hypot(half, beside);
    const double shift = d[high] - beside * beside / (half + (half >= 0 ? root : -root));
    double x = d[low] - shift, z = next[low];
    w->n_rotations = 0;
    for (int64_t k = low; k < high; k++) {
        const double r = hypot(x, z), c = r > 0 ? x / r : 1, s = r > 0 ? z / r : 0, a = d[k], b = d[k + 1], ab = next[k];
        if (k > low) next[k - 1] = r;
        d[k] = c * c * a + 2 * c * s * ab + s * s * b;
        d[k + 1] = s * s * a - 2 * c * s * ab + c * c * b;
        next[k] = c * s * (b - a) + (c * c - s * s) * ab;
        w->rotations[w->n_rotations++] = (struct rotation){k, c, s};
        if (k + 1 == high) break;
        x = next[k];
        z = s * next[k + 1];
        next[k + 1] *= c;
    }
    llm_parallel(items(w->n, COLUMNS), rotate_columns, w);
}

static bool diagonalise(struct eigen *w)
{
    int64_t high = w->n - 1, steps = STEPS * w->n;
    while (high > 0) {
        int64_t low = high;
        while (low > 0 && fabs(w->next[low - 1]) > DBL_EPSILON * (fabs(w->d[low - 1]) + fabs(w->d[low]))) low--;
        if (low == high) high--;
        else if (steps-- == 0) return false;
        else qr_step(w, low, high);
    }
    return true;
}

struct value { double v; int64_t row; };

static int descending(const void *a, const void *b)
{
    const struct value *x = a, *y = b;
    return (x->v < y->v) - (x->v > y->v) + (x->v == y->v) * ((x->row > y->row) - (x->row < y->row));
}

static int sort(struct eigen *w, double *values, struct llm_err *e)
{
    struct value *v = llm_alloc((size_t)w->n, sizeof *v, "eigenvalues", e);
    if (!v) return -1;
    for (int64_t i = 0; i < w->n; i++) v[i] = (struct value){w->d[i], i};
    qsort(v, (size_t)w->n, sizeof *v, descending);
    const size_t bytes = (size_t)w->n * sizeof *w->a;
    for (int64_t i = 0; i < w->n; i++) values[i] = v[i].v;
    for (int64_t i = 0; i < w->n; i++) { /* each cycle of rows; those that are in their place are marked by their number */
        int64_t to = i, from;
        if (v[i].row == i) continue;
        memcpy(w->p, w->a + i * w->n, bytes);
        for (; (from = v[to].row) != i; to = from) {
            memcpy(w->a + to * w->n, w->a + from * w->n, bytes);
            v[to].row = to;
        }
        memcpy(w->a + to * w->n, w->p, bytes);
        v[to].row = to;
    }
    free(v);
    return 0;
}

int llm_eigen(double *a, int64_t n, double *values, struct llm_err *e)
{
    const int64_t rows = n < BLOCK ? n : BLOCK;
    double *room = llm_calloc((size_t)(n * (rows + 5)), sizeof *room, "eigenvectors", e);
    struct eigen w = {.n = n, .a = a, .block = room};
    int status = -1;
    w.rotations = room ? llm_alloc((size_t)n, sizeof *w.rotations, "eigenvectors", e) : NULL;
    if (w.rotations) {
        double **parts[] = {&w.d, &w.next, &w.v, &w.p, &w.beta};
        for (int64_t i = 0; i < 5; i++) *parts[i] = room + (rows + i) * n;
        for (int64_t c = 0; c < n - 2; c++) reflect(&w, c);
        if (n > 1) w.next[n - 2] = a[(n - 2) * n + n - 1];
        for (int64_t i = 0; i < n; i++) w.d[i] = a[i * n + i];
        multiply_reflections(&w);
        bool finite = true;
        for (int64_t i = 0; i < n; i++) finite &= isfinite(w.d[i]) && isfinite(w.next[i]);
        if (finite && diagonalise(&w)) status = sort(&w, values, e);
        else status = llm_fail(e, EX_DATAERR, "eigenvectors: expected finite products, found others");
    }
    free(w.rotations);
    free(room);
    return status;
}
