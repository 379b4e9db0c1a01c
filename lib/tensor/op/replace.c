/* y[t] = given[row[t]], or x[t] if row[t] is -1: embeddings from elsewhere in place of some tokens' own. */
#include <string.h>
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/tape.h"

struct replace_args { const int32_t *row; };
struct work { const int32_t *row; int64_t n; const float *dy; int64_t dy_stride; struct llm_grad g; };

/* Rows of x take the gradient of their own, those that were replaced none. */
static void own_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    (void)thread;
    for (int64_t t = 0; t < w->n; t++) {
        float *d = w->g.p + t * w->g.stride + from;
        if (w->row[t] < 0) llm_k.elementwise.add(d, d, w->dy + t * w->dy_stride + from, (size_t)(to - from));
    }
}

/* A row that stands for several tokens takes the sum of their gradients, in their order. */
static void given_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    (void)thread;
    for (int64_t t = 0; t < w->n; t++) {
        if (w->row[t] < 0) continue;
        float *d = w->g.p + w->row[t] * w->g.stride + from;
        llm_k.elementwise.add(d, d, w->dy + t * w->dy_stride + from, (size_t)(to - from));
    }
}

static void replace_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("replace backward", 3 * llm_tensor_bytes(n->out));
    const struct replace_args *a = n->args;
    struct work w = {.row = a->row, .n = n->out->rows, .dy = n->out->grad, .dy_stride = n->out->grad_stride};
    if (llm_grad_open_zeroed(c, n->in[0], &w.g)) llm_for_columns(n->out->cols, own_rows, &w);
    if (llm_grad_open_zeroed(c, n->in[1], &w.g)) llm_for_columns(n->out->cols, given_rows, &w);
}

struct llm_tensor *llm_replace(struct llm_ctx *c, struct llm_tensor *x, struct llm_tensor *given, const int32_t *row)
{
    LLM_PROFILE("replace", 2 * llm_tensor_bytes(x));
    if (llm_ctx_failed(c)) return &c->nothing;
    if (given->cols != x->cols) {
        return llm_op_fail(c, EX_DATAERR, "given embeddings: expected [*, %lld], found [%lld, %lld]", (long long)x->cols, (long long)given->rows,
                           (long long)given->cols);
    }
    struct llm_node n = {.backward = replace_backward, .mark = llm_arena_mark(&c->acts), .in = {x, given}};
    n.out = llm_tensor_create(c, x->rows, x->cols);
    for (int64_t t = 0; t < x->rows && !llm_ctx_failed(c); t++) {
        if (row[t] >= given->rows) {
            return llm_op_fail(c, EX_DATAERR, "given embeddings: expected rows below %lld, found %d", (long long)given->rows, (int)row[t]);
        }
        const float *from = row[t] < 0 ? x->data + t * x->stride : given->data + row[t] * given->stride;
        memcpy(n.out->data + t * n.out->stride, from, (size_t)x->cols * sizeof(float));
    }
    if (llm_ctx_failed(c)) return &c->nothing;
    n.out->spare = true;
    return llm_record(c, &n, &(struct replace_args){row}, sizeof(struct replace_args));
}

/* ---- gradient check: one row stands for two tokens, one for none ---- */

static const int32_t check_rows[6] = {-1, 2, 0, -1, 2, -1};

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    (void)p;
    return llm_replace(c, in[0], in[1], check_rows);
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    int64_t n = g->out.cols;
    (void)p;
    for (int64_t t = 0; t < 6; t++) {
        for (int64_t i = 0; i < n; i++) y[t * n + i] = check_rows[t] < 0 ? in[0][t * n + i] : in[1][check_rows[t] * n + i];
    }
}

const struct llm_gradcheck llm_gradcheck_replace[] = {
    {.name = "replace", .in = {{6, 67}, {3, 67}}, .out = {6, 67}, .run = check_run, .formula = check_formula}, {0}};
