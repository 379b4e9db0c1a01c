/* y = x·wᵀ + b */
#include <math.h>
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/sequence.h"
#include "tensor/tape.h"

struct linear_args { enum llm_compute compute; };

/* x as panels; NULL: it has floats alone. */
static const void *panels_of(const struct llm_tensor *x)
{
    return x->panels ? x->data : x->packed;
}

/* to += Σ |b|²·a·aᵀ over the rows a of x and b of y. */
static bool add_weighted(struct llm_ctx *c, float *to, const float *a, int64_t lda, int64_t cols, const float *b, int64_t ldb, int64_t others,
                         int64_t rows)
{
    float *scaled = llm_op_alloc(c, rows * cols, sizeof *scaled);
    for (int64_t t = 0; scaled && t < rows; t++) {
        llm_k.elementwise.scale(scaled + t * cols, (float)sqrt(llm_k.optim.sum_squares(b + t * ldb, (size_t)others)), a + t * lda, (size_t)cols);
    }
    return scaled && llm_matmul_dw(to, scaled, cols, scaled, cols, rows, llm_row_len(c, rows), cols, cols, LLM_COMPUTE_F32, &c->err) == 0;
}

static bool add_kronecker(struct llm_ctx *c, const struct llm_kronecker *f, const struct llm_tensor *x, const struct llm_tensor *y)
{
    return add_weighted(c, f->in, x->data, x->stride, x->cols, y->grad, y->grad_stride, y->cols, x->rows)
        && add_weighted(c, f->out, y->grad, y->grad_stride, y->cols, x->data, x->stride, x->cols, x->rows);
}

static void linear_backward(struct llm_ctx *c, struct llm_node *n)
{
    struct llm_tensor *x = n->in[0], *y = n->out;
    struct llm_param *w = n->param[0];
    enum llm_compute compute = ((const struct linear_args *)n->args)->compute;
    int64_t ldy = y->grad_stride;
    const struct llm_folds folds = llm_folds_of(c, x->rows);
    struct llm_grad g;
    const void *panels = panels_of(x);
    const float *dy = llm_adapter_dy(c, w, y->grad, &ldy, x->rows);
    if (!dy) return;
    {
        LLM_PROFILE("linear dw", 0);
        if (w->grad && !llm_weight_grad(c, w, w->grad, dy, ldy, x->data, x->stride, panels, x->rows, &folds, compute)) return;
        if (w->kronecker && !add_kronecker(c, w->kronecker, x, y)) return;
    }
    llm_bias_grad(n->param[1], y->grad, y->grad_stride, x->rows, &folds, y->cols);
    LLM_PROFILE("linear dx", 0);
    struct llm_adapter_low low = {.of = NULL};
    if (!llm_adapter_dw(c, w, x->data, x->stride, y->grad, y->grad_stride, x->rows, &folds, &low)) return;
    if (!llm_grad_open(c, x, &g)) return;
    struct llm_matmul dx = {.m = x->rows, .x = dy, .ldx = ldy, .y = g.p, .ldy = g.stride, .accumulate = g.add, .compute = compute,
                            .release = true};
    if (llm_matmul_dx(&dx, &w->weight, &c->err) < 0) llm_in(&c->err, "'%s'", w->name);
    else llm_adapter_dx(c, w, dy, ldy, g.p, g.stride, x->rows, &low);
}

/* Adapters and Kronecker factors read floats. */
static bool takes_panels(const struct llm_ctx *c, const struct llm_param *w)
{
    return llm_weight_takes_panels(&w->weight, c->compute) && !w->adapter && !w->kronecker;
}

void llm_panels_for(struct llm_ctx *c, int n, struct llm_param *const *w)
{
    c->to_panels = !c->watch && n > 0 && llm_sequence_parts(c) == 1; /* parts are runs of floats */
    for (int i = 0; i < n && c->to_panels; i++) c->to_panels = takes_panels(c, w[i]);
}

static bool fits(struct llm_ctx *c, const struct llm_tensor *x, const struct llm_param *w)
{
    if (x->cols == w->weight.k && (!x->panels || takes_panels(c, w))) return true;
    llm_op_fail(c, LLM_EX_FAILURE, "'%s': expected inputs [*, %lld], found [%lld, %lld]", w->name, (long long)w->weight.k, (long long)x->rows,
                (long long)x->cols);
    return false;
}

struct llm_tensor *llm_linear(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *w, struct llm_param *b)
{
    LLM_PROFILE("linear", 0);
    if (llm_ctx_failed(c) || !fits(c, x, w)) return &c->nothing;
    struct llm_node n = {.backward = linear_backward, .mark = llm_arena_mark(&c->acts), .in = {x}, .param = {w, b, llm_adapter_trained(w)},
                         .reads_panels = true, .tolerant = true};
    n.out = llm_tensor_create(c, x->rows, w->weight.n);
    size_t scratch = llm_arena_mark(&c->acts);
    const float *bias = b ? llm_op_vector(c, b, w->weight.n) : NULL;
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_matmul a = {.m = x->rows, .x = x->data, .ldx = x->stride, .panels = takes_panels(c, w) ? panels_of(x) : NULL,
                           .y = n.out->data, .ldy = n.out->stride,
                           .bias = bias, .compute = c->compute, .inference = !c->tape, .release = c->tape != NULL};
    if (llm_matmul(&a, &w->weight, &c->err) < 0) {
        llm_in(&c->err, "'%s'", w->name);
        return &c->nothing;
    }
    if (!llm_adapter_add(c, w, bias, x->data, x->stride, n.out->data, n.out->stride, x->rows)) return &c->nothing;
    llm_arena_pop(&c->acts, scratch);
    n.out->spare = true;
    return llm_record(c, &n, &(struct linear_args){c->compute}, sizeof(struct linear_args));
}

void llm_linears(struct llm_ctx *c, struct llm_tensor *x, int n, struct llm_param *const *w, struct llm_param *const *b, struct llm_tensor **y)
{
    struct llm_matmul a[LLM_MATMUL_MAX];
    struct llm_weight *weights[LLM_MATMUL_MAX];
    bool fit = !llm_ctx_failed(c);
    for (int i = 0; i < n; i++) {
        if (c->tape) y[i] = llm_linear(c, x, w[i], b[i]);
        else if (fit && (fit = fits(c, x, w[i]))) y[i] = llm_tensor_create(c, x->rows, w[i]->weight.n);
    }
    if (c->tape) return;
    LLM_PROFILE("linear", 0);
    size_t scratch = llm_arena_mark(&c->acts);
    for (int i = 0; i < n && !llm_ctx_failed(c); i++) {
        weights[i] = &w[i]->weight;
        a[i] = (struct llm_matmul){.m = x->rows, .x = x->data, .ldx = x->stride, .panels = takes_panels(c, w[i]) ? panels_of(x) : NULL,
                                   .y = y[i]->data, .ldy = y[i]->stride, .compute = c->compute, .inference = true,
                                   .bias = b[i] ? llm_op_vector(c, b[i], w[i]->weight.n) : NULL};
    }
    if (!llm_ctx_failed(c) && llm_matmul_several(a, weights, n, &c->err) < 0) llm_in(&c->err, "'%s'", w[0]->name);
    for (int i = 0; i < n && !llm_ctx_failed(c); i++) llm_adapter_add(c, w[i], a[i].bias, x->data, x->stride, y[i]->data, y[i]->stride, x->rows);
    if (!llm_ctx_failed(c)) llm_arena_pop(&c->acts, scratch);
    for (int i = 0; i < n && !llm_ctx_failed(c); i++) y[i]->spare = true;
    for (int i = 0; i < n && llm_ctx_failed(c); i++) y[i] = &c->nothing;
}

/* ---- gradient check ---- */

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    return llm_linear(c, in[0], p[0], p[1]);
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    int64_t k = g->param[0].cols, n = g->param[0].rows;
    for (int64_t t = 0; t < g->in[0].rows; t++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = p[1] ? p[1][j] : 0;
            for (int64_t i = 0; i < k; i++) sum += in[0][t * k + i] * p[0][j * k + i];
            y[t * n + j] = sum;
        }
    }
}

/* x used twice: its gradient is added to. */
static struct llm_tensor *check_twice(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    return llm_add(c, llm_linear(c, llm_columns(c, in[0], 3, 17), p[0], NULL), llm_linear(c, llm_columns(c, in[0], 5, 17), p[1], NULL));
}

static void formula_twice(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    for (int64_t t = 0; t < g->in[0].rows; t++) {
        for (int64_t j = 0; j < 13; j++) {
            double sum = 0;
            for (int64_t i = 0; i < 17; i++) sum += in[0][t * 29 + 3 + i] * p[0][j * 17 + i] + in[0][t * 29 + 5 + i] * p[1][j * 17 + i];
            y[t * 13 + j] = sum;
        }
    }
}

const struct llm_gradcheck llm_gradcheck_linear[] = {
    {.name = "linear", .in = {{11, 29}}, .param = {{13, 29}, {1, 13}}, .out = {11, 13}, .run = check_run, .formula = check_formula},
    {.name = "linear without bias", .in = {{11, 29}}, .param = {{13, 29}}, .out = {11, 13}, .run = check_run, .formula = check_formula},
    {.name = "linear of views", .in = {{6, 29}}, .param = {{13, 17}, {13, 17}}, .out = {6, 13}, .run = check_twice, .formula = formula_twice}, {0}};
