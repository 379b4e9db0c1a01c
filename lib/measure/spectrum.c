/* A matrix with few long rows becomes triangular by reflections (Householder); the rows of the triangle are then rotated in pairs until they are
 * orthogonal (one-sided Jacobi: Demmel and Veselić, 1992), and their lengths are the singular values. All is computed in double, in a fixed order. */
#include "measure/spectrum.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include "base/buf.h"
#include "cpu/pool.h"

enum { MAX_SWEEPS = 60 };

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

/* Reflects rows c and later of x [n, length] so that row c would be 0 after element c; what it has there is not used any more. */
static void reflect(double *x, int64_t n, int64_t length, int64_t c)
{
    int64_t left = length - c;
    double *v = x + c * length + c, norm = sqrt(dot(v, v, left));
    if (norm == 0) return;
    double end = v[0] > 0 ? -norm : norm;
    v[0] -= end;
    double square = dot(v, v, left);
    for (int64_t j = c + 1; j < n; j++) {
        double *y = x + j * length + c, factor = 2 * dot(v, y, left) / square;
        for (int64_t i = 0; i < left; i++) y[i] -= factor * v[i];
    }
    v[0] = end;
}

/* Makes rows p and q of a [n, n] orthogonal; whether they had not been. */
static bool rotate(double *a, int64_t n, int64_t p, int64_t q)
{
    double *x = a + p * n, *y = a + q * n, xx = dot(x, x, n), yy = dot(y, y, n), xy = dot(x, y, n);
    if (fabs(xy) <= DBL_EPSILON * sqrt(xx * yy) || xy == 0) return false;
    double zeta = (yy - xx) / (2 * xy), t = (zeta >= 0 ? 1 : -1) / (fabs(zeta) + sqrt(1 + zeta * zeta)), c = 1 / sqrt(1 + t * t), s = c * t;
    for (int64_t i = 0; i < n; i++) {
        double u = x[i];
        x[i] = c * u - s * y[i];
        y[i] = s * u + c * y[i];
    }
    return true;
}

static int descending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

void llm_singular_values(double *x, int64_t n, int64_t length, double *values, double *work)
{
    for (int64_t c = 0; c < n; c++) reflect(x, n, length, c);
    for (int64_t c = 0; c < n; c++) { /* row r of the triangle: elements r of rows r and later */
        for (int64_t r = 0; r < n; r++) work[r * n + c] = c >= r ? x[c * length + r] : 0;
    }
    bool again = true;
    for (int sweep = 0; sweep < MAX_SWEEPS && again; sweep++) {
        again = false;
        for (int64_t p = 0; p < n; p++) {
            for (int64_t q = p + 1; q < n; q++) again |= rotate(work, n, p, q);
        }
    }
    for (int64_t i = 0; i < n; i++) values[i] = sqrt(dot(work + i * n, work + i * n, n));
    qsort(values, (size_t)n, sizeof *values, descending);
}

/* What the values say: llm_spectrum's ranks. */
static void summarise(struct llm_spectrum *s)
{
    double sum = 0, squares = 0, entropy = 0, part = 0;
    for (int64_t i = 0; i < s->n; i++) {
        sum += s->values[i];
        squares += s->values[i] * s->values[i];
    }
    for (int64_t i = 0; i < s->n && sum > 0; i++) {
        double p = s->values[i] / sum;
        if (p > 0) entropy -= p * log(p);
        if (part < 0.90 * squares) s->rank_90 = i + 1;
        if (part < 0.99 * squares) s->rank_99 = i + 1;
        part += s->values[i] * s->values[i];
    }
    if (!isfinite(sum)) {
        s->effective_rank = s->stable_rank = (double)NAN;
        s->rank_90 = s->rank_99 = -1;
        return;
    }
    s->effective_rank = sum > 0 ? exp(entropy) : 0;
    s->stable_rank = squares > 0 ? squares / (s->values[0] * s->values[0]) : 0;
}

struct job {
    const struct llm_kv_file *f;
    struct llm_spectrum *rows;
    bool centred, no_memory; /* no_memory: any thread sets it, none resets it */
};

static void subtract_mean(double *x, int64_t rows, int64_t length, int64_t step, int64_t stride)
{
    for (int64_t c = 0; c < length; c++) {
        double sum = 0;
        for (int64_t r = 0; r < rows; r++) sum += x[c * step + r * stride];
        for (int64_t r = 0; r < rows; r++) x[c * step + r * stride] -= sum / (double)rows;
    }
}

static void head_piece(void *arg, size_t i, int thread)
{
    struct job *job = arg;
    const struct llm_kv_file *f = job->f;
    struct llm_spectrum *s = &job->rows[i];
    int64_t d = s->what == 'v' ? f->layers[s->layer].shape.d_v : f->layers[s->layer].shape.d_k, t = f->rows;
    size_t x_bytes = (size_t)(t * d) * sizeof(double), work_bytes = (size_t)(s->n * s->n) * sizeof(double);
    double *x = llm_scratch(thread, x_bytes + work_bytes + (size_t)d * sizeof(float)), *work = x + t * d;
    float *row = (float *)(work + s->n * s->n);
    if (!x) {
        job->no_memory = true;
        return;
    }
    bool by_channel = d <= t; /* the shorter side counts the rows of x */
    int64_t step = by_channel ? t : 1, stride = by_channel ? 1 : d; /* from a channel to the next, from a token to the next */
    for (int64_t k = 0; k < t; k++) {
        llm_kv_file_decode(f, s->what, s->layer, k, s->kv_head, row);
        for (int64_t c = 0; c < d; c++) x[c * step + k * stride] = (double)row[c];
    }
    if (job->centred) subtract_mean(x, t, d, step, stride);
    llm_singular_values(x, by_channel ? d : t, by_channel ? t : d, s->values, work);
    summarise(s);
}

int llm_spectra_of(struct llm_spectra *s, const struct llm_kv_file *f, bool centred, struct llm_err *e)
{
    struct job job = {.f = f, .centred = centred};
    int64_t room = 0;
    *s = (struct llm_spectra){0};
    for (int64_t l = 0; l < f->n_layers; l++) room += f->layers[l].k ? 2 * f->layers[l].shape.n_kv_heads : 0;
    if (room == 0 || f->n == 0) {
        return llm_fail(e, EX_DATAERR, "expected keys of %s, found none", room == 0 ? "attention (the model keeps a state)" : "some tokens");
    }
    s->rows = llm_calloc((size_t)room, sizeof *s->rows, "spectra", e);
    if (!s->rows) return -1;
    for (int64_t l = 0; l < f->n_layers; l++) {
        const struct llm_state_shape *shape = &f->layers[l].shape;
        for (int64_t h = 0; f->layers[l].k && h < shape->n_kv_heads; h++) {
            for (int v = 0; v < 1 + (f->layers[l].v != NULL); v++) {
                int64_t d = v ? shape->d_v : shape->d_k, n = d < f->rows ? d : f->rows;
                s->rows[s->n_rows++] = (struct llm_spectrum){.layer = l, .kv_head = h, .what = "kv"[v], .n = n};
                s->widest = n > s->widest ? n : s->widest;
            }
        }
    }
    s->values = llm_calloc((size_t)s->n_rows, (size_t)s->widest * sizeof *s->values, "spectra", e);
    if (!s->values) return -1;
    for (int64_t i = 0; i < s->n_rows; i++) s->rows[i].values = s->values + i * s->widest;
    job.rows = s->rows;
    llm_parallel((size_t)s->n_rows, head_piece, &job);
    return job.no_memory ? llm_no_memory(e, "keys of a head") : 0;
}

void llm_spectra_release(struct llm_spectra *s)
{
    free(s->rows);
    free(s->values);
    *s = (struct llm_spectra){0};
}
