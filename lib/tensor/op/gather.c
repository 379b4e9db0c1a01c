/* y[i] = x[rows[i]], or several rows of x side by side; a row of -1 is zeros. */
#include <string.h>
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/tape.h"

struct gather_args { const int32_t *rows; int64_t abreast; };
struct work { const int32_t *rows; int64_t abreast; const struct llm_tensor *x; struct llm_tensor *y; };
struct back_work { const int32_t *rows; int64_t n, abreast, cols; const float *dy; int64_t dy_stride; struct llm_grad dx; };

static void copy_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    (void)thread;
    for (int64_t i = from * w->abreast; i < to * w->abreast; i++) {
        float *y = w->y->data + i / w->abreast * w->y->stride + i % w->abreast * w->x->cols;
        if (w->rows[i] < 0) memset(y, 0, (size_t)w->x->cols * sizeof *y);
        else memcpy(y, w->x->data + w->rows[i] * w->x->stride, (size_t)w->x->cols * sizeof *y);
    }
}

static void add_columns(void *arg, int64_t from, int64_t to, int thread)
{
    const struct back_work *w = arg;
    (void)thread;
    for (int64_t i = 0; i < w->n * w->abreast; i++) {
        if (w->rows[i] < 0) continue;
        float *dx = w->dx.p + w->rows[i] * w->dx.stride + from;
        const float *dy = w->dy + i / w->abreast * w->dy_stride + i % w->abreast * w->cols + from;
        llm_k.elementwise.add(dx, dx, dy, (size_t)(to - from));
    }
}

static void gather_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("gather backward", 3 * llm_tensor_bytes(n->out));
    const struct gather_args *a = n->args;
    const int64_t cols = n->out->cols / a->abreast;
    struct back_work w = {.rows = a->rows, .n = n->out->rows, .abreast = a->abreast, .cols = cols,
                          .dy = n->out->grad, .dy_stride = n->out->grad_stride};
    if (llm_grad_open_zeroed(c, n->in[0], &w.dx)) llm_for_columns(cols, add_columns, &w);
}

struct llm_tensor *llm_gather_abreast(struct llm_ctx *c, struct llm_tensor *x, const int32_t *rows, int64_t n, int64_t abreast)
{
    LLM_PROFILE("gather", 2 * n * abreast * x->cols * (int64_t)sizeof(float));
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_node node = {.backward = gather_backward, .mark = llm_arena_mark(&c->acts), .in = {x}};
    for (int64_t i = 0; i < n * abreast; i++) {
        if (rows[i] >= x->rows) return llm_op_fail(c, LLM_EX_FAILURE, "gather: expected rows below %lld, found %d", (long long)x->rows, (int)rows[i]);
    }
    node.out = llm_tensor_create(c, n, abreast * x->cols);
    if (llm_ctx_failed(c)) return &c->nothing;
    struct work w = {rows, abreast, x, node.out};
    llm_for_rows(n, abreast * x->cols, copy_rows, &w);
    return llm_record(c, &node, &(struct gather_args){rows, abreast}, sizeof(struct gather_args));
}

struct llm_tensor *llm_gather(struct llm_ctx *c, struct llm_tensor *x, const int32_t *rows, int64_t n)
{
    return llm_gather_abreast(c, x, rows, n, 1);
}

/* ---- gradient check ---- */

static const int32_t check_rows[6] = {4, 0, -1, 4, 2, 6};

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    (void)p;
    return llm_gather(c, in[0], check_rows, 6);
}

/* The same for rows that lie side by side, which is one after another. */
static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    int64_t cols = g->in[0].cols;
    (void)p;
    for (int64_t i = 0; i < 6; i++) {
        for (int64_t k = 0; k < cols; k++) y[i * cols + k] = check_rows[i] < 0 ? 0 : in[0][check_rows[i] * cols + k];
    }
}

static struct llm_tensor *check_run_abreast(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    (void)p;
    return llm_gather_abreast(c, in[0], check_rows, 2, 3);
}

const struct llm_gradcheck llm_gradcheck_gather[] = {
    {.name = "gather", .in = {{7, 67}}, .out = {6, 67}, .run = check_run, .formula = check_formula},
    {.name = "gather abreast", .in = {{7, 67}}, .out = {2, 201}, .run = check_run_abreast, .formula = check_formula}, {0}};
