#include "tensor/approximate.h"

#include <math.h>
#include <string.h>
#include "cpu/dtype.h"
#include "cpu/matmul.h"
#include "cpu/pool.h"

/* ---- the largest of each row ---- */

int64_t llm_top_kept(double share, int64_t cols)
{
    const int64_t kept = (int64_t)ceil(share * (double)cols);
    return kept < 1 ? 1 : kept > cols ? cols : kept;
}

bool llm_top_fits(int64_t cols) { return cols <= 65536; }

size_t llm_top_bytes(int64_t rows, int64_t kept) { return (size_t)(rows * kept) * 2 * sizeof(uint16_t); }

static uint32_t size_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffff;
}

/* The k-th largest of v[n], which is reordered (Hoare's selection). */
static uint32_t select_largest(uint32_t *v, int64_t n, int64_t k)
{
    int64_t low = 0, high = n - 1;
    while (low < high) {
        const uint32_t pivot = v[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (v[i] > pivot) i++;
            while (v[j] < pivot) j--;
            if (i > j) break;
            const uint32_t swapped = v[i];
            v[i++] = v[j];
            v[j--] = swapped;
        }
        if (k - 1 <= j) high = j;
        else if (k - 1 >= i) low = i;
        else break;
    }
    return v[k - 1];
}

bool llm_top_encode(const float *x, int64_t rows, int64_t cols, int64_t kept, void *out, int thread)
{
    uint32_t *sizes = llm_scratch(thread, (size_t)cols * (sizeof *sizes + sizeof(float)));
    if (!sizes) return false;
    float *values = (float *)(sizes + cols);
    for (int64_t r = 0; r < rows; r++, x += cols) {
        uint16_t *columns = (uint16_t *)out + 2 * r * kept, *stored = columns + kept;
        int64_t n = 0, equal = kept;
        for (int64_t i = 0; i < cols; i++) sizes[i] = size_of(x[i]);
        const uint32_t least = select_largest(sizes, cols, kept);
        for (int64_t i = 0; i < cols; i++) equal -= size_of(x[i]) > least;
        for (int64_t i = 0; i < cols && n < kept; i++) {
            const uint32_t size = size_of(x[i]);
            if (size < least || (size == least && equal-- <= 0)) continue;
            columns[n] = (uint16_t)i;
            values[n++] = x[i];
        }
        llm_dtypes[LLM_BF16].encode(values, stored, (size_t)kept);
    }
    return true;
}

void llm_top_decode(const void *in, int64_t rows, int64_t cols, int64_t kept, float *x)
{
    for (int64_t r = 0; r < rows; r++, x += cols) {
        const uint16_t *columns = (const uint16_t *)in + 2 * r * kept, *stored = columns + kept;
        memset(x, 0, (size_t)cols * sizeof *x);
        for (int64_t i = 0; i < kept; i++) llm_dtypes[LLM_BF16].decode(stored + i, x + columns[i], 1);
    }
}

/* ---- low rank ---- */

struct factors { int64_t rows, part_rows, cols, rank; float *at; };

static int64_t floats_of_part(const struct factors *f) { return (f->part_rows + f->cols) * f->rank; }
static int64_t parts_of(const struct factors *f) { return f->rows / f->part_rows; }
/* [part_rows, rank] and [rank, cols] of a part */
static float *c_of(const struct factors *f, int64_t part) { return f->at + part * floats_of_part(f); }
static float *q_of(const struct factors *f, int64_t part) { return c_of(f, part) + f->part_rows * f->rank; }

size_t llm_rank_bytes(int64_t rows, int64_t part_rows, int64_t cols, int64_t rank)
{
    const struct factors f = {rows, part_rows, cols, rank, NULL};
    return (size_t)(parts_of(&f) * floats_of_part(&f)) * sizeof(float);
}

/* C = X · Qᵀ */
static int project(const struct factors *f, const float *x, struct llm_err *e)
{
    int status = 0;
    for (int64_t p = 0; p < parts_of(f) && status == 0; p++) {
        struct llm_weight q = {.data = q_of(f, p), .dtype = LLM_F32, .n = f->rank, .k = f->cols};
        const struct llm_matmul a = {.m = f->part_rows, .x = x + p * f->part_rows * f->cols, .ldx = f->cols, .y = c_of(f, p), .ldy = f->rank,
                                     .compute = LLM_COMPUTE_F32};
        status = llm_matmul(&a, &q, e);
        llm_weight_release(&q);
    }
    return status;
}

/* Q = Cᵀ · X */
static int project_back(const struct factors *f, const float *x, struct llm_err *e)
{
    int status = 0;
    for (int64_t p = 0; p < parts_of(f) && status == 0; p++) {
        float *q = q_of(f, p);
        memset(q, 0, (size_t)(f->rank * f->cols) * sizeof *q);
        status = llm_matmul_dw(q, c_of(f, p), f->rank, x + p * f->part_rows * f->cols, f->cols, f->part_rows, f->part_rows, f->rank, f->cols,
                               LLM_COMPUTE_F32, e);
    }
    return status;
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sums[8] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int j = 0; j < 8; j++) sums[j] += (double)(a[i + j] * b[i + j]);
    }
    for (; i < n; i++) sum += (double)(a[i] * b[i]);
    for (int j = 0; j < 8; j++) sum += sums[j];
    return sum;
}

/* Makes the rows of a part's Q orthonormal (Gram-Schmidt, twice); rows that depend on those before them become 0. */
static void orthonormalise(void *arg, size_t part, int thread)
{
    const struct factors *f = arg;
    const int64_t n = f->cols;
    float *q = q_of(f, (int64_t)part);
    (void)thread;
    for (int64_t k = 0; k < f->rank; k++) {
        float *row = q + k * n;
        const double first = dot(row, row, n);
        for (int pass = 0; pass < 2; pass++) {
            for (int64_t j = 0; j < k; j++) {
                const float share = (float)dot(row, q + j * n, n);
                for (int64_t i = 0; i < n; i++) row[i] -= share * q[j * n + i];
            }
        }
        const double square = dot(row, row, n);
        const float scale = square > 1e-10 * first && square > 0 ? (float)(1 / sqrt(square)) : 0;
        for (int64_t i = 0; i < n; i++) row[i] *= scale;
    }
}

int llm_rank_encode(const float *x, int64_t rows, int64_t part_rows, int64_t cols, int64_t rank, void *out, struct llm_err *e)
{
    struct factors f = {rows, part_rows, cols, rank, out};
    for (int64_t p = 0; p < parts_of(&f); p++) {
        for (int64_t i = 0; i < rank * cols; i++) { /* signs of a multiplicative hash */
            uint64_t h = (uint64_t)(i + 1) * 0x9e3779b97f4a7c15;
            h = (h ^ (h >> 31)) * 0xbf58476d1ce4e5b9;
            q_of(&f, p)[i] = h >> 63 ? 1.0f : -1.0f;
        }
    }
    for (int round = 0; round < 2; round++) {
        if (project(&f, x, e) < 0 || project_back(&f, x, e) < 0) return -1;
        llm_parallel((size_t)parts_of(&f), orthonormalise, &f);
    }
    return project(&f, x, e);
}

int llm_rank_decode(const void *in, int64_t rows, int64_t part_rows, int64_t cols, int64_t rank, float *x, struct llm_err *e)
{
    const struct factors f = {rows, part_rows, cols, rank, (float *)(uintptr_t)in};
    int status = 0;
    for (int64_t p = 0; p < parts_of(&f) && status == 0; p++) {
        struct llm_weight q = {.data = q_of(&f, p), .dtype = LLM_F32, .n = rank, .k = cols};
        const struct llm_matmul a = {.m = part_rows, .x = c_of(&f, p), .ldx = rank, .y = x + p * part_rows * cols, .ldy = cols,
                                     .compute = LLM_COMPUTE_F32};
        status = llm_matmul_dx(&a, &q, e);
        llm_weight_release(&q);
    }
    return status;
}
