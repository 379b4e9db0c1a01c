/* y = x / |x| for each row; a row of zeros gives zeros. */
#include <math.h>
#include "cpu/kernels.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/tape.h"

struct work { const struct llm_tensor *x, *y; const float *dy; int64_t dy_stride; struct llm_grad dx; };

static double length(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

static void forward_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        const float *x = w->x->data + r * w->x->stride;
        double size = length(x, w->x->cols);
        for (int64_t i = 0; i < w->x->cols; i++) w->y->data[r * w->y->stride + i] = size > 0 ? (float)((double)x[i] / size) : 0;
    }
}

/* dx = (dy - y (y · dy)) / |x| */
static void backward_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    int64_t n = w->x->cols;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        const float *y = w->y->data + r * w->y->stride, *dy = w->dy + r * w->dy_stride;
        double size = length(w->x->data + r * w->x->stride, n), dot = 0;
        for (int64_t i = 0; i < n; i++) dot += (double)y[i] * (double)dy[i];
        for (int64_t i = 0; i < n && size > 0; i++) w->dx.p[r * w->dx.stride + i] += (float)(((double)dy[i] - (double)y[i] * dot) / size);
    }
}

static void unit_backward(struct llm_ctx *c, struct llm_node *n)
{
    struct work w = {.x = n->in[0], .y = n->out, .dy = n->out->grad, .dy_stride = n->out->grad_stride};
    if (llm_grad_open_zeroed(c, n->in[0], &w.dx)) llm_for_rows(n->out->rows, n->out->cols, backward_rows, &w);
}

struct llm_tensor *llm_unit(struct llm_ctx *c, struct llm_tensor *x)
{
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_node n = {.backward = unit_backward, .mark = llm_arena_mark(&c->acts), .in = {x}};
    n.out = llm_tensor_create(c, x->rows, x->cols);
    if (llm_ctx_failed(c)) return &c->nothing;
    struct work w = {.x = x, .y = n.out};
    llm_for_rows(x->rows, x->cols, forward_rows, &w);
    return llm_record(c, &n, NULL, 0);
}

/* ---- gradient check ---- */

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    (void)p;
    return llm_unit(c, in[0]);
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    int64_t n = g->in[0].cols;
    (void)p;
    for (int64_t r = 0; r < g->in[0].rows; r++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += in[0][r * n + i] * in[0][r * n + i];
        for (int64_t i = 0; i < n; i++) y[r * n + i] = in[0][r * n + i] / sqrt(sum);
    }
}

const struct llm_gradcheck llm_gradcheck_unit[] = {
    {.name = "rows of length 1", .in = {{5, 19}}, .out = {5, 19}, .run = check_run, .formula = check_formula}, {0}};
