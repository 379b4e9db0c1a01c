/* Inputs and outputs of blocks whose matrices are cut into slices (tensor/slices.h), and which elements a slice has. */
#include "tensor/slices.h"

#include <math.h>
#include <string.h>
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "dist/group.h"
#include "dist/tree.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/tape.h"
#include "tensor/tape_internal.h"

/* ---- elements ---- */

static int64_t columns_of(const struct llm_param *p)
{
    return p->n_dims > 1 ? llm_param_count(p) / p->shape[0] : 1;
}

/* The matrices of which the whole is the concatenation: matrix m begins at row *first of the whole, and has *rows rows. False: there is none. */
static bool matrix_of(const struct llm_slices *s, int m, int64_t *first, int64_t *rows)
{
    *first = m == 0 ? 0 : *first + s->fused[m - 1];
    *rows = m < LLM_MAX_PARTS ? s->fused[m] : 0;
    if (m == 0 && *rows == 0) *rows = s->whole->shape[0];
    return *rows > 0;
}

int64_t llm_slices_run(const struct llm_slices *s, int j, int64_t at, int64_t *whole)
{
    const int64_t cols = columns_of(s->whole), own = cols / s->n;
    int64_t first = 0, rows;
    if (s->by_columns) {
        *whole = at / own * cols + j * own + at % own;
        return own - at % own;
    }
    for (int m = 0; matrix_of(s, m, &first, &rows); m++) {
        const int64_t from = llm_slices_row(s, j, rows), n = (llm_slices_row(s, j + 1, rows) - from) * cols;
        *whole = (first + from) * cols + at;
        if (at < n) return n - at;
        at -= n;
    }
    return 0;
}

static int64_t within(int64_t n, int64_t most)
{
    return n < 0 ? 0 : n < most ? n : most;
}

int64_t llm_slices_before(const struct llm_slices *s, int j, int64_t n)
{
    const int64_t cols = columns_of(s->whole), own = cols / s->n;
    int64_t first = 0, rows, before = 0;
    if (s->by_columns) return n / cols * own + within(n % cols - j * own, own);
    for (int m = 0; matrix_of(s, m, &first, &rows); m++) {
        const int64_t from = llm_slices_row(s, j, rows);
        before += within(n - (first + from) * cols, (llm_slices_row(s, j + 1, rows) - from) * cols);
    }
    return before;
}

void llm_slices_take(const struct llm_slices *s, int j, const float *whole, float *slice)
{
    const int64_t count = llm_param_count(&s->of[j]);
    for (int64_t at = 0, n, from; at < count; at += n) {
        n = llm_slices_run(s, j, at, &from);
        memcpy(slice + at, whole + from, (size_t)n * sizeof *slice);
    }
}

void llm_slices_put(const struct llm_slices *s, int j, const float *slice, float *whole)
{
    const int64_t count = llm_param_count(&s->of[j]);
    for (int64_t at = 0, n, to; at < count; at += n) {
        n = llm_slices_run(s, j, at, &to);
        memcpy(whole + to, slice + at, (size_t)n * sizeof *slice);
    }
}

/* ---- sums ---- */

/* Terms of a sum, [rows, cols] each, rows `stride` apart. */
struct terms {
    int64_t of, n;                       /* n nodes of the tree of `of` terms */
    struct llm_tree_node node[LLM_MAX_SLICES];
    float *x[LLM_MAX_SLICES];
    int64_t stride, cols;
};

/* Adds in each row what the tree adds; the sums stay where their first terms are. */
static void add_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct terms *t = arg;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        struct { struct llm_tree_node node; float *x; } stack[LLM_MAX_SLICES];
        size_t depth = 0;
        for (int64_t k = 0; k < t->n; k++) {
            stack[depth].node = t->node[k];
            stack[depth++].x = t->x[k] + r * t->stride;
            for (; depth > 1 && llm_tree_joins(stack[depth - 2].node, stack[depth - 1].node, t->of); depth--) {
                llm_k.elementwise.add(stack[depth - 2].x, stack[depth - 2].x, stack[depth - 1].x, (size_t)t->cols);
                stack[depth - 2].node.end = stack[depth - 1].node.end;
            }
        }
    }
}

/* Adds, and keeps the nodes that are left. */
static void add(struct terms *t, int64_t rows)
{
    if (t->n > 1) llm_for_rows(rows, t->n * t->cols, add_rows, t);
    struct llm_tree_node left[LLM_MAX_SLICES];
    const int64_t n = llm_tree_nodes(t->node[0].first, t->node[t->n - 1].end, t->of, left);
    for (int64_t k = 0, i = 0; k < n; k++, i++) {
        while (t->node[i].first != left[k].first) i++;
        t->node[k] = left[k];
        t->x[k] = t->x[i];
    }
    t->n = n;
}

struct pack { float *to; const float *from; int64_t stride, cols; };

static void pack_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct pack *w = arg;
    (void)thread;
    for (int64_t r = from; r < to; r++) memcpy(w->to + r * w->cols, w->from + r * w->stride, (size_t)w->cols * sizeof(float));
}

/* The sum of the terms of all ranks; t: the nodes of this rank, and then the sum, on `acts` or where a term is. False after a failure. */
static bool add_all(struct llm_ctx *c, const struct llm_slices *s, struct terms *t, int64_t rows)
{
    add(t, rows);
    if (s->end - s->first == s->n) return true;
    if (!c->group) {
        llm_op_fail(c, LLM_EX_FAILURE, "'%s': expected all slices, found some", s->whole->name);
        return false;
    }
    LLM_PROFILE("slices: exchange", 0);
    const int ranks = llm_group_size(c->group), own = s->n / ranks;
    const size_t floats = (size_t)(rows * t->cols);
    struct terms all = {.of = s->n, .stride = t->cols, .cols = t->cols};
    void *parts[LLM_MAX_SLICES];
    size_t bytes[LLM_MAX_SLICES];
    for (int q = 0; q < ranks; q++) all.n += llm_tree_nodes(q * own, (q + 1) * own, s->n, all.node + all.n);
    float *memory = llm_op_alloc(c, all.n, floats * sizeof *memory);
    for (int q = 0, k = 0; memory && q < ranks; q++) {
        const int64_t nodes = llm_tree_nodes(q * own, (q + 1) * own, s->n, NULL);
        parts[q] = memory + (size_t)k * floats;
        bytes[q] = (size_t)nodes * floats * sizeof *memory;
        for (int64_t i = 0; i < nodes; i++, k++) {
            all.x[k] = memory + (size_t)k * floats;
            struct pack w = {all.x[k], t->x[i], t->stride, t->cols};
            if (q * own == s->first) llm_for_rows(rows, t->cols, pack_rows, &w);
        }
    }
    if (!memory || llm_group_gather(c->group, parts, bytes, &c->err) < 0) return false;
    *t = all;
    add(t, rows);
    return true;
}

bool llm_slices_add(struct llm_ctx *c, const struct llm_slices *s, float *const *x, int64_t rows, int64_t cols, int64_t stride, float **sum,
                    int64_t *sum_stride)
{
    struct terms t = {.of = s->n, .n = s->end - s->first, .stride = stride, .cols = cols};
    for (int64_t i = 0; i < t.n; i++) {
        t.node[i] = (struct llm_tree_node){s->first + i, s->first + i + 1};
        t.x[i] = x[i];
    }
    if (!add_all(c, s, &t, rows)) return false;
    *sum = t.x[0];
    *sum_stride = t.stride;
    return true;
}

/* ---- the input of a block ---- */

struct enter_args { struct llm_tensor *x; const struct llm_slices *s; };

static const struct llm_tensor *base_of(const struct llm_tensor *x)
{
    return x->base ? x->base : x;
}

static void enter_recompute(struct llm_ctx *c, struct llm_node *n)
{
    const struct llm_tensor *x = base_of(((const struct enter_args *)n->args)->x);
    x->maker->recompute(c, x->maker);
}

static void enter_backward(struct llm_ctx *c, struct llm_node *n)
{
    const struct enter_args *a = n->args;
    float *x[LLM_MAX_SLICES], *sum;
    int64_t stride;
    struct llm_grad g;
    LLM_PROFILE("slices: gradients", 0);
    for (int i = 0; i < a->s->end - a->s->first; i++) x[i] = n->out->grad + i * a->x->cols;
    if (!llm_slices_add(c, a->s, x, a->x->rows, a->x->cols, n->out->grad_stride, &sum, &stride)) return;
    if (llm_grad_open(c, a->x, &g)) llm_grad_give(&g, sum, stride, a->x->rows, a->x->cols);
}

/* The inputs are views of one tensor, so that one block holds their gradients side by side. Its own data are those of x, which the views share. */
void llm_slices_enter(struct llm_ctx *c, struct llm_tensor *x, const struct llm_slices *s, struct llm_tensor **y)
{
    const int n = s->end - s->first;
    for (int i = 0; i < n; i++) y[i] = x;
    if (llm_ctx_failed(c) || !c->tape || !x->needs_grad) return;
    const struct llm_tensor *base = base_of(x);
    struct llm_node node = {.backward = enter_backward, .recompute = enter_recompute, .mark = llm_arena_mark(&c->acts)};
    struct llm_tensor *all = llm_op_alloc(c, n + 1, sizeof *all);
    if (!all) return;
    all[0] = (struct llm_tensor){.rows = x->rows, .cols = n * x->cols, .data = x->data, .stride = x->stride, .needs_grad = true, .panels = x->panels,
                                 .packed = x->packed, .shared = base->shared, .owner_id = base->owner_id};
    for (int i = 0; i < n; i++) {
        y[i] = &all[i + 1];
        *y[i] = all[0];
        y[i]->cols = x->cols;
        y[i]->base = &all[0];
        y[i]->column = i * x->cols;
    }
    node.out = &all[0];
    llm_tape_push(c, &node, &(struct enter_args){x, s}, sizeof(struct enter_args));
}

/* ---- the output of a block ---- */

struct sum_args { struct llm_tensor *y[LLM_MAX_SLICES]; int n; };

static void sum_backward(struct llm_ctx *c, struct llm_node *n)
{
    const struct sum_args *a = n->args;
    const struct llm_folds folds = llm_folds_of(c, n->out->rows);
    llm_bias_grad(n->param[0], n->out->grad, n->out->grad_stride, n->out->rows, &folds, n->out->cols);
    for (int i = 0; i < a->n; i++) llm_grad_pass(c, a->y[i], n->out);
}

struct finish { const float *sum, *bias; int64_t stride; struct llm_tensor *out; };

static void finish_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct finish *w = arg;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        float *out = w->out->data + r * w->out->stride;
        const float *in = w->sum + r * w->stride;
        if (w->bias) llm_k.elementwise.add(out, in, w->bias, (size_t)w->out->cols);
        else if (out != in) memcpy(out, in, (size_t)w->out->cols * sizeof *out);
    }
}

struct llm_tensor *llm_slices_sum(struct llm_ctx *c, struct llm_tensor *const *y, const struct llm_slices *s, struct llm_param *bias)
{
    LLM_PROFILE("slices: sum", 0);
    struct sum_args a = {.n = s->end - s->first};
    struct finish w = {.bias = NULL};
    float *x[LLM_MAX_SLICES], *sum;
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_node node = {.backward = sum_backward, .mark = llm_arena_mark(&c->acts), .param = {bias}};
    bool wanted = llm_tape_wants(c, &node);
    for (int i = 0; i < a.n; i++) {
        a.y[i] = y[i];
        wanted |= c->tape && y[i]->needs_grad;
        x[i] = y[i]->data;
    }
    node.out = llm_op_alloc(c, 1, sizeof *node.out);
    if (llm_ctx_failed(c)) return &c->nothing;
    *node.out = (struct llm_tensor){.rows = y[0]->rows, .cols = y[0]->cols, .stride = y[0]->stride, .data = y[0]->data, .spare = true};
    const size_t scratch = llm_arena_mark(&c->acts);
    if (bias) w.bias = llm_op_vector(c, bias, node.out->cols);
    if (llm_ctx_failed(c) || !llm_slices_add(c, s, x, node.out->rows, node.out->cols, node.out->stride, &sum, &w.stride)) return &c->nothing;
    w.sum = sum;
    w.out = node.out;
    if (w.bias || sum != node.out->data) llm_for_rows(node.out->rows, node.out->cols, finish_rows, &w);
    llm_arena_pop(&c->acts, scratch);
    return wanted ? llm_tape_push(c, &node, &a, sizeof a) : node.out;
}

/* ---- gradient check ---- */

/* Two matrices, [hidden, in] and [out, hidden], in two slices: Σ (x·aᵀ)·bᵀ + bias, and x once more, whose gradient is added to. */
static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    static struct llm_slices s;
    struct llm_tensor *x[2], *y[2];
    s = (struct llm_slices){.by_columns = true, .n = 2, .end = 2, .whole = p[2]};
    llm_slices_enter(c, in[0], &s, x);
    for (int j = 0; j < 2; j++) {
        struct llm_tensor *inner = llm_linear(c, x[j], p[j], NULL);
        y[j] = llm_linear(c, inner, p[2 + j], NULL);
    }
    return llm_add(c, llm_slices_sum(c, y, &s, p[4]), in[0]);
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    const int64_t hidden = g->param[0].rows, cols = g->in[0].cols, out = g->out.cols;
    for (int64_t t = 0; t < g->in[0].rows; t++) {
        for (int64_t i = 0; i < out; i++) {
            y[t * out + i] = in[0][t * cols + i] + p[4][i];
            for (int64_t k = 0; k < 2 * hidden; k++) {
                double inner = 0;
                for (int64_t m = 0; m < cols; m++) inner += in[0][t * cols + m] * p[k / hidden][k % hidden * cols + m];
                y[t * out + i] += inner * p[2 + k / hidden][i * hidden + k % hidden];
            }
        }
    }
}

/* As Mamba, in two halves: Σ x·aᵀ by columns of x, of which both slices then read two runs of columns, u ⊙ v each of its own. */
static struct llm_tensor *check_halves(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    static struct llm_slices s;
    struct llm_tensor *y[2];
    const int64_t rank = p[2]->shape[1];
    s = (struct llm_slices){.by_columns = true, .n = 2, .end = 2, .whole = p[2]};
    for (int j = 0; j < 2; j++) y[j] = llm_linear(c, in[j], p[j], NULL);
    llm_slices_enter(c, llm_slices_sum(c, y, &s, NULL), &s, y);
    for (int j = 0; j < 2; j++) {
        struct llm_tensor *u = llm_linear(c, llm_columns(c, y[j], 0, rank), p[2 + j], NULL);
        y[j] = llm_gated(c, llm_columns(c, y[j], rank, u->cols), u, LLM_ACT_SILU);
    }
    return llm_slices_sum(c, y, &s, NULL);
}

static void formula_halves(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    const int64_t seen = g->param[0].rows, cols = g->in[0].cols, rank = g->param[2].cols, out = g->out.cols;
    for (int64_t t = 0; t < g->in[0].rows; t++) {
        double sum[64] = {0};
        for (int64_t i = 0; i < seen; i++) {
            for (int64_t k = 0; k < 2 * cols; k++) sum[i] += in[k / cols][t * cols + k % cols] * p[k / cols][i * cols + k % cols];
        }
        for (int64_t i = 0; i < out; i++) {
            y[t * out + i] = 0;
            for (int64_t k = 0; k < 2 * rank; k++) {
                const double gate = sum[rank + i] / (1 + exp(-sum[rank + i]));
                y[t * out + i] += gate * sum[k % rank] * p[2 + k / rank][i * rank + k % rank];
            }
        }
    }
}

const struct llm_gradcheck llm_gradcheck_slices[] = {
    {.name = "slices", .in = {{11, 29}}, .param = {{5, 29}, {5, 29}, {29, 5}, {29, 5}, {1, 29}}, .out = {11, 29}, .run = check_run,
     .formula = check_formula},
    {.name = "slices in two halves", .in = {{11, 13}, {11, 13}}, .param = {{21, 13}, {21, 13}, {17, 4}, {17, 4}}, .out = {11, 17},
     .run = check_halves, .formula = formula_halves},
    {0}};
