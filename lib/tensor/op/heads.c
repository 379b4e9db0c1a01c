/* Operations on the columns of each head: slicing, concatenation, and, for decoding, multiplication of each head by its own weight. */
#include <stdatomic.h>
#include <string.h>
#include "cpu/kernels.h"
#include "cpu/pool.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/tape.h"

/* Copies or adds n_heads runs of `width` columns from one matrix to another. Head h begins at from + h · from_head and goes to to + h · to_head. */
struct move {
    const float *from;
    float *to;
    int64_t from_stride, to_stride, from_head, to_head, n_heads, width;
    bool add;
};

static void move_rows(void *arg, int64_t first, int64_t last, int thread)
{
    const struct move *m = arg;
    (void)thread;
    for (int64_t t = first; t < last; t++) {
        for (int64_t h = 0; h < m->n_heads; h++) {
            const float *from = m->from + t * m->from_stride + h * m->from_head;
            float *to = m->to + t * m->to_stride + h * m->to_head;
            if (m->add) llm_k.elementwise.add(to, to, from, (size_t)m->width);
            else memcpy(to, from, (size_t)m->width * sizeof *to);
        }
    }
}

static void run(const struct move *m, int64_t rows) { llm_for_rows(rows, m->n_heads * m->width, move_rows, (void *)m); }

/* ---- slicing ---- */

struct part_args { int64_t n_heads, from, width; };

static void part_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("heads backward", 2 * llm_tensor_bytes(n->out));
    const struct part_args *a = n->args;
    struct llm_tensor *x = n->in[0], *y = n->out;
    struct llm_grad g;
    if (!llm_grad_open_zeroed(c, x, &g)) return;
    run(&(struct move){y->grad, g.p + a->from, y->grad_stride, g.stride, a->width, x->cols / a->n_heads, a->n_heads, a->width, true}, x->rows);
}

struct llm_tensor *llm_heads_part(struct llm_ctx *c, struct llm_tensor *x, int64_t n_heads, int64_t from, int64_t width)
{
    LLM_PROFILE("heads", 2 * x->rows * n_heads * width * (int64_t)sizeof(float));
    if (llm_ctx_failed(c)) return &c->nothing;
    struct part_args a = {n_heads, from, width};
    if (x->cols % n_heads || from + width > x->cols / n_heads) {
        return llm_op_fail(c, LLM_EX_FAILURE, "parts of heads: expected %lld heads of at least %lld, found %lld columns", (long long)n_heads,
                           (long long)(from + width), (long long)x->cols);
    }
    struct llm_node n = {.backward = part_backward, .mark = llm_arena_mark(&c->acts), .in = {x}};
    n.out = llm_tensor_create(c, x->rows, n_heads * width);
    if (llm_ctx_failed(c)) return &c->nothing;
    run(&(struct move){x->data + from, n.out->data, x->stride, n.out->stride, x->cols / n_heads, width, n_heads, width, false}, x->rows);
    return llm_record(c, &n, &a, sizeof a);
}

/* ---- concatenation ---- */

struct join_args { int64_t n_heads; bool shared; };

/* If all heads share the one head of b, its gradient is the sum over heads, in order. */
static void join_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("heads backward", 2 * llm_tensor_bytes(n->out));
    const struct join_args *args = n->args;
    struct llm_tensor *a = n->in[0], *b = n->in[1], *y = n->out;
    int64_t heads = args->n_heads, wide = y->cols / heads, left = a->cols / heads;
    struct llm_grad g;
    if (llm_grad_open(c, a, &g)) run(&(struct move){y->grad, g.p, y->grad_stride, g.stride, wide, left, heads, left, g.add}, a->rows);
    if (args->shared) {
        if (!llm_grad_open_zeroed(c, b, &g)) return;
        run(&(struct move){y->grad + left, g.p, y->grad_stride, g.stride, wide, 0, heads, wide - left, true}, b->rows);
    } else if (llm_grad_open(c, b, &g)) {
        run(&(struct move){y->grad + left, g.p, y->grad_stride, g.stride, wide, wide - left, heads, wide - left, g.add}, b->rows);
    }
}

struct llm_tensor *llm_heads_join(struct llm_ctx *c, struct llm_tensor *a, struct llm_tensor *b, int64_t n_heads, bool shared)
{
    LLM_PROFILE("heads", 2 * (llm_tensor_bytes(a) + llm_tensor_bytes(b)));
    if (llm_ctx_failed(c)) return &c->nothing;
    int64_t left = a->cols / n_heads, right = shared ? b->cols : b->cols / n_heads;
    if (a->rows != b->rows || a->cols % n_heads || (!shared && b->cols % n_heads)) {
        return llm_op_fail(c, LLM_EX_FAILURE, "heads side by side: expected %lld heads in [%lld, %lld] and [%lld, %lld]", (long long)n_heads,
                           (long long)a->rows, (long long)a->cols, (long long)b->rows, (long long)b->cols);
    }
    struct llm_node n = {.backward = join_backward, .mark = llm_arena_mark(&c->acts), .in = {a, b}};
    n.out = llm_tensor_create(c, a->rows, n_heads * (left + right));
    if (llm_ctx_failed(c)) return &c->nothing;
    run(&(struct move){a->data, n.out->data, a->stride, n.out->stride, left, left + right, n_heads, left, false}, a->rows);
    run(&(struct move){b->data, n.out->data + left, b->stride, n.out->stride, shared ? 0 : right, left + right, n_heads, right, false}, a->rows);
    return llm_record(c, &n, &(struct join_args){n_heads, shared}, sizeof(struct join_args));
}

/* ---- repetition ---- */

struct repeat_args { int64_t n_heads, times; };

/* The gradients of the copies are added in their order. */
static void repeat_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("heads backward", 2 * llm_tensor_bytes(n->out));
    const struct repeat_args *a = n->args;
    struct llm_tensor *x = n->in[0], *y = n->out;
    const int64_t width = x->cols / a->n_heads;
    struct llm_grad g;
    if (!llm_grad_open(c, x, &g)) return;
    for (int64_t i = 0; i < a->times; i++) {
        run(&(struct move){y->grad + i * width, g.p, y->grad_stride, g.stride, a->times * width, width, a->n_heads, width, g.add || i > 0}, x->rows);
    }
}

struct llm_tensor *llm_heads_repeat(struct llm_ctx *c, struct llm_tensor *x, int64_t n_heads, int64_t times)
{
    LLM_PROFILE("heads", (double)(1 + times) * llm_tensor_bytes(x));
    if (llm_ctx_failed(c)) return &c->nothing;
    const int64_t width = x->cols / n_heads;
    struct llm_node n = {.backward = repeat_backward, .mark = llm_arena_mark(&c->acts), .in = {x}};
    n.out = llm_tensor_create(c, x->rows, x->cols * times);
    if (llm_ctx_failed(c)) return &c->nothing;
    for (int64_t i = 0; i < times; i++) {
        run(&(struct move){x->data, n.out->data + i * width, x->stride, n.out->stride, width, times * width, n_heads, width, false}, x->rows);
    }
    return llm_record(c, &n, &(struct repeat_args){n_heads, times}, sizeof(struct repeat_args));
}

/* ---- a weight for each head ---- */

struct product {
    struct llm_weight *w;
    struct llm_tensor *x, *y;
    enum llm_compute compute;
    atomic_bool failed;
};

static void head_product(void *arg, size_t h, int thread)
{
    struct product *p = arg;
    struct llm_weight *w = &p->w[h];
    struct llm_err e;
    const struct llm_matmul a = {.m = p->x->rows, .x = p->x->data + (int64_t)h * w->k, .ldx = p->x->stride, .y = p->y->data + (int64_t)h * w->n,
                                 .ldy = p->y->stride, .compute = p->compute};
    (void)thread;
    if (llm_matmul(&a, w, &e) < 0) atomic_store(&p->failed, true);
}

struct llm_tensor *llm_heads_linear(struct llm_ctx *c, struct llm_tensor *x, struct llm_weight *w, int64_t n_heads)
{
    LLM_PROFILE("linear of heads", 0);
    if (llm_ctx_failed(c)) return &c->nothing;
    if (x->cols != n_heads * w->k) {
        return llm_op_fail(c, LLM_EX_FAILURE, "weights of heads: expected %lld heads of %lld, found %lld columns", (long long)n_heads,
                           (long long)w->k, (long long)x->cols);
    }
    struct product p = {.w = w, .x = x, .y = llm_tensor_create(c, x->rows, n_heads * w->n), .compute = c->compute};
    if (llm_ctx_failed(c)) return &c->nothing;
    llm_parallel((size_t)n_heads, head_product, &p);
    if (atomic_load(&p.failed)) return llm_op_fail(c, EX_UNAVAILABLE, "out of memory in the products of heads");
    return p.y;
}

/* ---- gradient check: [3 heads of 5 | 2 of each of x's 3 heads of 7] and [.. | a head that all share] ---- */

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    (void)p;
    return llm_heads_join(c, llm_heads_join(c, in[0], llm_heads_part(c, in[1], 3, 4, 2), 3, false), in[2], 3, true);
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    (void)p;
    for (int64_t t = 0; t < g->out.rows; t++) {
        for (int64_t h = 0; h < 3; h++) {
            for (int64_t i = 0; i < 11; i++) {
                y[t * 33 + h * 11 + i] = i < 5 ? in[0][t * 15 + h * 5 + i] : i < 7 ? in[1][t * 21 + h * 7 + i - 1] : in[2][t * 4 + i - 7];
            }
        }
    }
}

/* Twice each of 3 heads of 5, and then each once more: of x, and of columns of it. */
static struct llm_tensor *check_repeat(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    (void)p;
    return llm_heads_join(c, llm_heads_repeat(c, in[0], 3, 2), llm_columns(c, in[0], 0, 15), 3, false);
}

static void formula_repeat(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    (void)p;
    for (int64_t t = 0; t < g->out.rows; t++) {
        for (int64_t i = 0; i < 45; i++) y[t * 45 + i] = in[0][t * 15 + i / 15 * 5 + i % 5];
    }
}

const struct llm_gradcheck llm_gradcheck_heads[] = {
    {.name = "heads, repeated", .in = {{6, 15}}, .out = {6, 45}, .run = check_repeat, .formula = formula_repeat},
    {.name = "heads, parts and together", .in = {{6, 15}, {6, 21}, {6, 4}}, .out = {6, 33}, .run = check_run, .formula = check_formula}, {0}};
