/* The distance of vectors from given ones, of each row by itself: mean squared error, or 1 - cosine. Sums run in order, in double. */
#include <math.h>
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/tape.h"

struct work { const struct llm_tensor *x; const struct llm_match *o; float *dx; };

/* The loss of a row; its gradient by x, times grad_scale, is added to dx (NULL: not wanted). A vector of length 0 has no direction: cosine 0. */
static double match_row(const struct llm_match *o, const float *x, const float *t, int64_t n, float *dx, double *cosine)
{
    double xx = 0, xt = 0, tt = 0, error = 0;
    for (int64_t k = 0; k < n; k++) {
        xx += (double)x[k] * (double)x[k];
        xt += (double)x[k] * (double)t[k];
        tt += (double)t[k] * (double)t[k];
        error += ((double)x[k] - (double)t[k]) * ((double)x[k] - (double)t[k]);
    }
    double lengths = sqrt(xx) * sqrt(tt);
    *cosine = lengths > 0 ? xt / lengths : 0;
    for (int64_t k = 0; k < n && dx; k++) {
        double g = !o->cosine ? 2 * ((double)x[k] - (double)t[k]) / (double)n
            : lengths > 0 ? *cosine * (double)x[k] / xx - (double)t[k] / lengths : 0;
        dx[k] += (float)(o->grad_scale * g);
    }
    return o->cosine ? 1 - *cosine : error / (double)n;
}

static void match_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    const struct llm_match *o = w->o;
    int64_t n = w->x->cols;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        double loss = 0, cosine = 0;
        float *dx = w->dx ? w->dx + r * n : NULL;
        if (o->counts[r] >= 0) loss = match_row(o, w->x->data + r * w->x->stride, o->target->data + r * o->target->stride, n, dx, &cosine);
        o->loss[r] = (float)loss;
        o->cosines[r] = (float)cosine;
    }
}

void llm_match(struct llm_ctx *c, struct llm_tensor *x, const struct llm_match *o)
{
    struct work w = {.x = x, .o = o};
    if (llm_ctx_failed(c)) return;
    if (x->rows != o->target->rows || x->cols != o->target->cols) {
        llm_op_fail(c, LLM_EX_FAILURE, "expected vectors of the targets' shape");
        return;
    }
    w.dx = llm_tensor_grad(c, x);
    if (!llm_ctx_failed(c)) llm_for_rows(x->rows, x->cols, match_rows, &w);
}

/* ---- gradient check ---- */

enum { ROWS = 5, COLS = 13 };
static const int32_t check_counts[ROWS] = {0, -1, 3, 0, 0};

static float check_target(int i)
{
    return (float)sin(1 + 3.7 * i);
}

static struct llm_tensor *check(struct llm_ctx *c, struct llm_tensor *x, bool cosine)
{
    static float loss[ROWS], cosines[ROWS];
    struct llm_tensor *target = llm_tensor_create(c, ROWS, COLS);
    for (int i = 0; i < ROWS * COLS && !llm_ctx_failed(c); i++) target->data[i] = check_target(i);
    const struct llm_match o = {.cosine = cosine, .grad_scale = 1, .target = target, .counts = check_counts, .loss = loss, .cosines = cosines};
    llm_match(c, x, &o);
    return NULL;
}

static struct llm_tensor *check_mse(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    (void)p;
    return check(c, in[0], false);
}

static struct llm_tensor *check_cosine(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    (void)p;
    return check(c, in[0], true);
}

static double formula(const double *x, bool cosine)
{
    double sum = 0;
    for (int r = 0; r < ROWS; r++) {
        double xx = 0, xt = 0, tt = 0, error = 0;
        for (int k = 0; k < COLS; k++) {
            double t = (double)check_target(r * COLS + k), v = x[r * COLS + k];
            xx += v * v, xt += v * t, tt += t * t, error += (v - t) * (v - t);
        }
        if (check_counts[r] >= 0) sum += cosine ? 1 - xt / sqrt(xx * tt) : error / COLS;
    }
    return sum;
}

static void formula_mse(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    (void)g, (void)p;
    *y = formula(in[0], false);
}

static void formula_cosine(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    (void)g, (void)p;
    *y = formula(in[0], true);
}

const struct llm_gradcheck llm_gradcheck_match[] = {
    {.name = "match, squared error", .in = {{ROWS, COLS}}, .out = {1, 1}, .run = check_mse, .formula = formula_mse},
    {.name = "match, cosine", .in = {{ROWS, COLS}}, .out = {1, 1}, .run = check_cosine, .formula = formula_cosine}, {0}};
