/* y[r] = the mean of the first lengths[r] rows of run r, summed in order in double. */
#include <string.h>
#include "cpu/kernels.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/tape.h"

struct mean_args { const int32_t *lengths; };
struct work { const int32_t *lengths; const struct llm_tensor *x; struct llm_tensor *y; int64_t run; };
struct back_work { const int32_t *lengths; int64_t run; const float *dy; int64_t dy_stride, cols; struct llm_grad dx; };

static void sum_columns(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    (void)thread;
    for (int64_t r = 0; r < w->y->rows; r++) {
        for (int64_t k = from; k < to; k++) {
            double sum = 0;
            for (int64_t i = 0; i < w->lengths[r]; i++) sum += (double)w->x->data[(r * w->run + i) * w->x->stride + k];
            w->y->data[r * w->y->stride + k] = (float)(sum / (double)w->lengths[r]);
        }
    }
}

static void spread_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct back_work *w = arg;
    (void)thread;
    for (int64_t t = from; t < to; t++) {
        int64_t r = t / w->run;
        float *dx = w->dx.p + t * w->dx.stride;
        if (t % w->run < w->lengths[r]) llm_k.elementwise.axpy(dx, 1 / (float)w->lengths[r], w->dy + r * w->dy_stride, (size_t)w->cols);
    }
}

static void mean_backward(struct llm_ctx *c, struct llm_node *n)
{
    const struct mean_args *a = n->args;
    struct back_work w = {.lengths = a->lengths, .run = n->in[0]->rows / n->out->rows, .dy = n->out->grad, .dy_stride = n->out->grad_stride,
                          .cols = n->out->cols};
    if (llm_grad_open_zeroed(c, n->in[0], &w.dx)) llm_for_rows(n->in[0]->rows, n->out->cols, spread_rows, &w);
}

struct llm_tensor *llm_row_mean(struct llm_ctx *c, struct llm_tensor *x, const int32_t *lengths, int64_t n)
{
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_node node = {.backward = mean_backward, .mark = llm_arena_mark(&c->acts), .in = {x}};
    bool fits = n > 0 && x->rows % n == 0;
    for (int64_t r = 0; r < n && fits; r++) fits = lengths[r] >= 1 && lengths[r] <= x->rows / n;
    if (!fits) return llm_op_fail(c, LLM_EX_FAILURE, "mean: expected runs of rows of one length, and a row of each at least");
    node.out = llm_tensor_create(c, n, x->cols);
    if (llm_ctx_failed(c)) return &c->nothing;
    struct work w = {lengths, x, node.out, x->rows / n};
    llm_for_columns(x->cols, sum_columns, &w);
    return llm_record(c, &node, &(struct mean_args){lengths}, sizeof(struct mean_args));
}

/* ---- gradient check ---- */

static const int32_t check_lengths[3] = {4, 1, 3};

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    (void)p;
    return llm_row_mean(c, in[0], check_lengths, 3);
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    int64_t cols = g->in[0].cols;
    (void)p;
    for (int64_t r = 0; r < 3; r++) {
        for (int64_t k = 0; k < cols; k++) {
            y[r * cols + k] = 0;
            for (int64_t i = 0; i < check_lengths[r]; i++) y[r * cols + k] += in[0][(r * 4 + i) * cols + k] / check_lengths[r];
        }
    }
}

const struct llm_gradcheck llm_gradcheck_mean[] = {
    {.name = "mean of rows", .in = {{12, 67}}, .out = {3, 67}, .run = check_run, .formula = check_formula}, {0}};
