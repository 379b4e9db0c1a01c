/* What all slices read and each computes a part of (tensor/slices.h): columns, and the root mean square of a row. */
#include <math.h>
#include <string.h>
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/slices.h"
#include "tensor/ops.h"
#include "tensor/tape.h"

/* ---- columns ---- */

struct place_args { int64_t runs, cols, at; };
struct place { const struct place_args *to; const struct llm_tensor *x; struct llm_tensor *y; struct llm_grad dx; };

static void place_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct place *w = arg;
    const int64_t n = w->x->cols / w->to->runs;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        float *y = w->y->data + r * w->y->stride;
        memset(y, 0, (size_t)w->y->cols * sizeof *y);
        for (int64_t i = 0; i < w->to->runs; i++) {
            memcpy(y + i * w->to->cols + w->to->at, w->x->data + r * w->x->stride + i * n, (size_t)n * sizeof *y);
        }
    }
}

static void place_back_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct place *w = arg;
    const int64_t n = w->x->cols / w->to->runs;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        for (int64_t i = 0; i < w->to->runs; i++) {
            float *dx = w->dx.p + r * w->dx.stride + i * n;
            const float *dy = w->y->grad + r * w->y->grad_stride + i * w->to->cols + w->to->at;
            if (w->dx.add) llm_k.elementwise.add(dx, dx, dy, (size_t)n);
            else memcpy(dx, dy, (size_t)n * sizeof *dx);
        }
    }
}

static void place_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("slices: place backward", 2 * llm_tensor_bytes(n->in[0]));
    struct place w = {.to = n->args, .x = n->in[0], .y = n->out};
    if (llm_grad_open(c, n->in[0], &w.dx)) llm_for_rows(n->out->rows, n->in[0]->cols, place_back_rows, &w);
}

struct llm_tensor *llm_slices_place(struct llm_ctx *c, struct llm_tensor *x, int64_t runs, int64_t cols, int64_t at)
{
    LLM_PROFILE("slices: place", llm_tensor_bytes(x) + 4. * (double)(x->rows * runs * cols));
    if (llm_ctx_failed(c)) return &c->nothing;
    const struct place_args to = {runs, cols, at};
    struct llm_node n = {.backward = place_backward, .mark = llm_arena_mark(&c->acts), .in = {x}};
    n.out = llm_tensor_create(c, x->rows, runs * cols);
    if (llm_ctx_failed(c)) return &c->nothing;
    struct place w = {.to = &to, .x = x, .y = n.out};
    llm_for_rows(x->rows, runs * cols, place_rows, &w);
    return llm_record(c, &n, &to, sizeof to);
}

/* ---- the root mean square ---- */

struct rows { const struct llm_tensor *x, *squares, *y; double n, eps; struct llm_grad dx, d_squares; };

static void squares_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct rows *w = arg;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        w->y->data[r * w->y->stride] = (float)llm_k.optim.sum_squares(w->x->data + r * w->x->stride, (size_t)w->x->cols);
    }
}

static void squares_back_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct rows *w = arg;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        llm_k.elementwise.axpy(w->dx.p + r * w->dx.stride, 2 * w->y->grad[r * w->y->grad_stride], w->x->data + r * w->x->stride, (size_t)w->x->cols);
    }
}

static void squares_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("slices: squares backward", 2 * llm_tensor_bytes(n->in[0]));
    struct rows w = {.x = n->in[0], .y = n->out};
    if (llm_grad_open_zeroed(c, n->in[0], &w.dx)) llm_for_rows(n->in[0]->rows, n->in[0]->cols, squares_back_rows, &w);
}

struct llm_tensor *llm_slices_squares(struct llm_ctx *c, struct llm_tensor *x)
{
    LLM_PROFILE("slices: squares", llm_tensor_bytes(x));
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_node n = {.backward = squares_backward, .mark = llm_arena_mark(&c->acts), .in = {x}};
    n.out = llm_tensor_create(c, x->rows, 1);
    if (llm_ctx_failed(c)) return &c->nothing;
    struct rows w = {.x = x, .y = n.out};
    llm_for_rows(x->rows, x->cols, squares_rows, &w);
    return llm_record(c, &n, NULL, 0);
}

struct rms_args { int64_t n; float eps; };

static double factor_of(const struct rows *w, int64_t r)
{
    return 1 / sqrt((double)w->squares->data[r * w->squares->stride] / w->n + w->eps);
}

static void rms_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct rows *w = arg;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        llm_k.elementwise.scale(w->y->data + r * w->y->stride, (float)factor_of(w, r), w->x->data + r * w->x->stride, (size_t)w->x->cols);
    }
}

/* dx = f dy; of squares, with f = (squares / n + eps)^-½: -½ f³ / n · (x · dy). */
static void rms_back_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct rows *w = arg;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        const double f = factor_of(w, r);
        const float *x = w->x->data + r * w->x->stride, *dy = w->y->grad + r * w->y->grad_stride;
        double dot = 0;
        for (int64_t i = 0; i < w->x->cols; i++) dot += (double)x[i] * (double)dy[i];
        if (w->d_squares.p) w->d_squares.p[r * w->d_squares.stride] += (float)(-.5 * f * f * f / w->n * dot);
        if (w->dx.p) llm_k.elementwise.axpy(w->dx.p + r * w->dx.stride, (float)f, dy, (size_t)w->x->cols);
    }
}

static void rms_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("slices: norm backward", 3 * llm_tensor_bytes(n->out));
    const struct rms_args *a = n->args;
    struct rows w = {.x = n->in[0], .squares = n->in[1], .y = n->out, .n = (double)a->n, .eps = (double)a->eps};
    if (!llm_grad_open_zeroed(c, n->in[0], &w.dx)) w.dx.p = NULL;
    if (!llm_grad_open_zeroed(c, n->in[1], &w.d_squares)) w.d_squares.p = NULL;
    if (!llm_ctx_failed(c)) llm_for_rows(n->out->rows, n->out->cols, rms_back_rows, &w);
}

struct llm_tensor *llm_slices_over_rms(struct llm_ctx *c, struct llm_tensor *x, struct llm_tensor *squares, int64_t n, float eps)
{
    LLM_PROFILE("slices: norm", 2 * llm_tensor_bytes(x));
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_node node = {.backward = rms_backward, .mark = llm_arena_mark(&c->acts), .in = {x, squares}};
    node.out = llm_tensor_create(c, x->rows, x->cols);
    if (llm_ctx_failed(c)) return &c->nothing;
    struct rows w = {.x = x, .squares = squares, .y = node.out, .n = (double)n, .eps = (double)eps};
    llm_for_rows(x->rows, x->cols, rms_rows, &w);
    return llm_record(c, &node, &(struct rms_args){n, eps}, sizeof(struct rms_args));
}

/* ---- gradient check ---- */

/* Two slices of rows in two groups: [rows, 2 · 2 · 3] of four runs, of which slice j has two. */
static struct llm_tensor *check_place(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    (void)p;
    return llm_add(c, llm_slices_place(c, llm_columns(c, in[0], 1, 6), 2, 6, 0), llm_slices_place(c, in[1], 2, 6, 3));
}

static void formula_place(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    (void)p;
    for (int64_t t = 0; t < g->out.rows; t++) {
        for (int64_t i = 0; i < 12; i++) {
            const int64_t of_run = i % 6, k = i / 6 * 3 + of_run % 3;
            y[t * 12 + i] = of_run < 3 ? in[0][t * g->in[0].cols + 1 + k] : in[1][t * 6 + k];
        }
    }
}

/* The norm of a row of which in[0] has 19 columns and in[1] the other 12: the first slice's part. */
static struct llm_tensor *check_norm(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    (void)p;
    struct llm_tensor *x = llm_columns(c, in[0], 2, 19);
    return llm_slices_over_rms(c, x, llm_add(c, llm_slices_squares(c, x), llm_slices_squares(c, in[1])), 31, 1e-2f);
}

static void formula_norm(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    (void)p;
    for (int64_t t = 0; t < g->out.rows; t++) {
        const double *x = in[0] + t * g->in[0].cols + 2, *other = in[1] + t * 12;
        double sum = 0;
        for (int64_t i = 0; i < 19; i++) sum += x[i] * x[i];
        for (int64_t i = 0; i < 12; i++) sum += other[i] * other[i];
        for (int64_t i = 0; i < 19; i++) y[t * 19 + i] = x[i] / sqrt(sum / 31 + (double)1e-2f);
    }
}

const struct llm_gradcheck llm_gradcheck_slices_common[] = {
    {.name = "columns of slices", .in = {{7, 8}, {7, 6}}, .out = {7, 12}, .run = check_place, .formula = formula_place},
    {.name = "norm of slices", .in = {{7, 23}, {7, 12}}, .out = {7, 19}, .run = check_norm, .formula = formula_norm}, {0}};
