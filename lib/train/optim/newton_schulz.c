/* The orthogonalisation inside Muon (train/optim.h). */
#include <math.h>
#include "cpu/optim.h"
#include "cpu/pool.h"
#include "train/optim.h"

enum { STEPS = 5, TILE = 32 };
static const double A = 3.4445, B = -4.7750, C = 2.0315, LEAST_NORM = 1e-7;

/* to[j, i] = factor·from[i, j] */
struct turn {
    float *to;
    const float *from;
    int64_t rows, cols; /* of `from` */
    float factor;
};

static void turn_band(void *arg, size_t band, int thread)
{
    const struct turn *t = arg;
    int64_t first = (int64_t)band * TILE, last = first + TILE < t->rows ? first + TILE : t->rows;
    (void)thread;
    for (int64_t j = 0; j < t->cols; j++) {
        for (int64_t i = first; i < last; i++) t->to[j * t->rows + i] = t->factor * t->from[i * t->cols + j];
    }
}

static void turn(float *to, const float *from, int64_t rows, int64_t cols, double factor)
{
    struct turn t = {to, from, rows, cols, (float)factor};
    llm_parallel((size_t)((rows + TILE - 1) / TILE), turn_band, &t);
}

/* One step on x [m, k], m ≤ k; `gram` and `update` [m, m], `moved` [m, k] are scratch. */
static int step(float *x, float *moved, float *gram, float *update, int64_t m, int64_t k, enum llm_compute compute, struct llm_err *e)
{
    struct llm_weight rows = {.data = x, .dtype = LLM_F32, .n = m, .k = k}, square = {.data = gram, .dtype = LLM_F32, .n = m, .k = m};
    struct llm_matmul a = {.m = m, .x = x, .ldx = k, .y = gram, .ldy = m, .compute = compute, .symmetric = true};
    int got = llm_matmul(&a, &rows, e);
    a = (struct llm_matmul){.m = m, .x = gram, .ldx = m, .y = update, .ldy = m, .compute = compute, .symmetric = true};
    if (got == 0) got = llm_matmul(&a, &square, e); /* A is symmetric: A·Aᵀ = A² */
    llm_combine(update, gram, C, B, (size_t)(m * m));
    a = (struct llm_matmul){.m = m, .x = update, .ldx = m, .y = moved, .ldy = k, .compute = compute};
    if (got == 0) got = llm_matmul_dx(&a, &rows, e);
    llm_combine(x, moved, A, 1, (size_t)(m * k));
    llm_weight_release(&rows);
    llm_weight_release(&square);
    return got;
}

int llm_newton_schulz(float *g, int64_t rows, int64_t cols, enum llm_compute compute, float *work, struct llm_err *e)
{
    bool tall = rows > cols;
    int64_t m = tall ? cols : rows, k = tall ? rows : cols, n = rows * cols;
    float *x = work, *moved = x + n, *gram = moved + n, *update = gram + m * m;
    double norm = sqrt(llm_sum_squares(g, (size_t)n)), factor = 1 / (norm > LEAST_NORM ? norm : LEAST_NORM);
    if (tall) {
        turn(x, g, rows, cols, factor);
    } else {
        x = g;
        llm_combine(x, x, factor, 0, (size_t)n);
    }
    for (int i = 0; i < STEPS; i++) {
        if (step(x, moved, gram, update, m, k, compute, e) < 0) return -1;
    }
    if (tall) turn(g, x, cols, rows, 1);
    return 0;
}
