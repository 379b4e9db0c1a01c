/* y = a + b. In the backward pass a and b share y's gradient without a copy. */
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/tape.h"

struct work { struct llm_tensor *y; const struct llm_tensor *a, *b; };

static void rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        llm_k.elementwise.add(w->y->data + r * w->y->stride, w->a->data + r * w->a->stride, w->b->data + r * w->b->stride, (size_t)w->y->cols);
    }
}

static void add_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("add backward", 0);
    llm_grad_pass(c, n->in[0], n->out);
    llm_grad_pass(c, n->in[1], n->out);
}

static struct llm_tensor *add(struct llm_ctx *c, struct llm_tensor *a, struct llm_tensor *b, bool over)
{
    LLM_PROFILE("add", 3 * llm_tensor_bytes(a));
    if (llm_ctx_failed(c)) return &c->nothing;
    if (a->rows != b->rows || a->cols != b->cols) {
        return llm_op_fail(c, LLM_EX_FAILURE, "add: expected [%lld, %lld], found [%lld, %lld]", (long long)a->rows, (long long)a->cols,
                           (long long)b->rows, (long long)b->cols);
    }
    struct llm_node n = {.backward = add_backward, .mark = llm_arena_mark(&c->acts), .in = {a, b}};
    over = over && b->spare && !b->base && !b->shared;
    n.out = over ? llm_op_alloc(c, 1, sizeof *n.out) : llm_tensor_create(c, a->rows, a->cols);
    if (llm_ctx_failed(c)) return &c->nothing;
    if (over) *n.out = (struct llm_tensor){.rows = b->rows, .cols = b->cols, .stride = b->stride, .data = b->data};
    n.out->spare = true;
    struct work w = {n.out, a, b};
    llm_for_rows(a->rows, a->cols, rows, &w);
    return llm_record(c, &n, NULL, 0);
}

struct llm_tensor *llm_add(struct llm_ctx *c, struct llm_tensor *a, struct llm_tensor *b)
{
    return add(c, a, b, false);
}

struct llm_tensor *llm_add_over(struct llm_ctx *c, struct llm_tensor *a, struct llm_tensor *b)
{
    return add(c, a, b, true);
}

/* ---- gradient check: also the same tensor twice, and a view ---- */

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    (void)p;
    struct llm_tensor *sum = llm_add(c, in[0], llm_columns(c, in[1], 2, 17));
    return llm_add(c, llm_add(c, sum, sum), in[0]);
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    (void)p;
    int64_t n = g->in[0].cols, wide = g->in[1].cols;
    for (int64_t t = 0; t < g->in[0].rows; t++) {
        for (int64_t i = 0; i < n; i++) y[t * n + i] = 3 * in[0][t * n + i] + 2 * in[1][t * wide + 2 + i];
    }
}

const struct llm_gradcheck llm_gradcheck_add[] = {
    {.name = "add", .in = {{7, 17}, {7, 21}}, .out = {7, 17}, .run = check_run, .formula = check_formula}, {0}};
