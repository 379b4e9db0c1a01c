/* A mixture of gated feed-forward experts. The tokens of each expert are gathered into one matrix; there is no padding, and no token is dropped.
 * Parameter gradients fold the expert's tokens of each block of LLM_FOLD tokens of the batch, in order. */
#include <math.h>
#include <string.h>
#include "cpu/kernels.h"
#include "cpu/pool.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/tape.h"

/* A slot (token, s) is a token's s-th chosen expert. Slots whose expert has capacity get a place: places are ordered by expert, then by token. */
struct places {
    int64_t n, k;             /* places; slots per token */
    int64_t *start;           /* [experts + 1]: the first place of each expert */
    int32_t *slot;            /* [n]: the slot of a place, token·k + s */
    int32_t *at;              /* [tokens·k]: the place of a slot; -1: none */
};

struct mixture_args {
    struct llm_experts o;
    struct places places;
    float *gate, *up;         /* [n, width] */
};

static void find_places(struct places *p, const int32_t *experts, int64_t tokens, int64_t n_experts)
{
    memset(p->start, 0, (size_t)(n_experts + 1) * sizeof *p->start);
    for (int64_t i = 0; i < tokens * p->k; i++) {
        if (experts[i] >= 0) p->start[experts[i] + 1]++;
    }
    for (int64_t e = 0; e < n_experts; e++) p->start[e + 1] += p->start[e];
    for (int64_t i = 0; i < tokens * p->k; i++) {
        p->at[i] = experts[i] < 0 ? -1 : (int32_t)p->start[experts[i]]++;
        if (p->at[i] >= 0) p->slot[p->at[i]] = (int32_t)i;
    }
    p->n = p->start[n_experts];
    for (int64_t e = n_experts; e > 0; e--) p->start[e] = p->start[e - 1]; /* the loop above moved each start to the end of its expert */
    p->start[0] = 0;
}

struct rows_work {
    const struct places *p;
    const float *from;
    int64_t from_stride;
    float *to;
    int64_t to_stride, cols;
    const struct llm_tensor *weights; /* NULL: 1 */
    bool add;
};

/* to[place] = from[token] */
static void gather_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct rows_work *w = arg;
    (void)thread;
    for (int64_t i = from; i < to; i++) {
        memcpy(w->to + i * w->to_stride, w->from + w->p->slot[i] / w->p->k * w->from_stride, (size_t)w->cols * sizeof(float));
    }
}

/* to[token] = Σ over its slots: weight · from[place] */
static void combine_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct rows_work *w = arg;
    (void)thread;
    for (int64_t t = from; t < to; t++) {
        float *y = w->to + t * w->to_stride;
        if (!w->add) memset(y, 0, (size_t)w->cols * sizeof *y);
        for (int64_t s = 0; s < w->p->k; s++) {
            int32_t at = w->p->at[t * w->p->k + s];
            float weight = w->weights ? w->weights->data[t * w->weights->stride + s] : 1;
            if (at >= 0) llm_k.elementwise.axpy(y, weight, w->from + at * w->from_stride, (size_t)w->cols);
        }
    }
}

struct act_work { enum llm_act act; const float *gate, *up; float *out; int64_t cols; };

static void act_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct act_work *w = arg;
    size_t at = (size_t)(from * w->cols), n = (size_t)((to - from) * w->cols);
    (void)thread;
    llm_k.elementwise.gated[w->act](w->out + at, w->gate + at, w->up + at, n);
}

/* The products that follow have the places from `at` on as rows; `p` NULL: all tokens. */
static void say_rows(struct llm_ctx *c, const struct places *p, int64_t at)
{
    c->adapters.slot = p ? p->slot + at : NULL;
    c->adapters.per = p ? p->k : 0;
    c->adapters.row_len = p ? c->row_len : 0;
}

/* y[m, n] (+)= x·wᵀ, or with `back` x·w. */
static bool product(struct llm_ctx *c, struct llm_param *p, bool back, const float *x, float *y, int64_t m, bool add)
{
    int64_t in = back ? p->weight.n : p->weight.k, out = back ? p->weight.k : p->weight.n;
    size_t mark = llm_arena_mark(&c->acts);
    if (back && !(x = llm_adapter_dy(c, p, x, &in, m))) return false;
    const struct llm_matmul a = {.m = m, .x = x, .ldx = in, .y = y, .ldy = out, .accumulate = add, .compute = c->compute};
    if ((back ? llm_matmul_dx(&a, &p->weight, &c->err) : llm_matmul(&a, &p->weight, &c->err)) < 0) {
        llm_in(&c->err, "'%s'", p->name);
        return false;
    }
    if (!(back ? llm_adapter_dx(c, p, x, in, y, out, m, NULL) : llm_adapter_add(c, p, NULL, x, in, y, out, m))) return false;
    llm_arena_pop(&c->acts, mark);
    return true;
}

/* Shows the inputs of the down projections, a token's slots side by side, and takes what has become of them. */
static void show_inner(struct llm_ctx *c, const struct mixture_args *a, float *inner, int64_t tokens, int64_t width, bool again)
{
    const struct places *p = &a->places;
    size_t mark = llm_arena_mark(&c->acts);
    float *x = llm_op_alloc(c, tokens * p->k * width, sizeof *x);
    if (!x) return;
    memset(x, 0, (size_t)(tokens * p->k * width) * sizeof *x);
    for (int64_t i = 0; i < p->n; i++) memcpy(x + p->slot[i] * width, inner + i * width, (size_t)width * sizeof *x);
    a->o.inner->look(a->o.inner, c, 0, x, tokens, p->k * width, p->k * width, again);
    for (int64_t i = 0; i < p->n; i++) memcpy(inner + i * width, x + p->slot[i] * width, (size_t)width * sizeof *x);
    llm_arena_pop(&c->acts, mark);
}

static void forward(struct llm_ctx *c, const struct mixture_args *a, const struct llm_tensor *x, const struct llm_tensor *weights,
                    struct llm_tensor *y)
{
    const struct places *p = &a->places;
    int64_t width = a->o.gate[0]->weight.n;
    float *rows = llm_op_alloc(c, p->n * x->cols, sizeof *rows), *inner = llm_op_alloc(c, p->n * width, sizeof *inner);
    if (llm_ctx_failed(c)) return;
    struct rows_work gather = {.p = p, .from = x->data, .from_stride = x->stride, .to = rows, .to_stride = x->cols, .cols = x->cols};
    llm_for_rows(p->n, x->cols, gather_rows, &gather);
    for (int64_t e = 0; e < a->o.n; e++) {
        int64_t at = p->start[e], m = p->start[e + 1] - at;
        if (m == 0) continue;
        say_rows(c, p, at);
        struct act_work act = {a->o.act, a->gate + at * width, a->up + at * width, inner + at * width, width};
        if (!product(c, a->o.gate[e], false, rows + at * x->cols, a->gate + at * width, m, false)) return;
        if (!product(c, a->o.up[e], false, rows + at * x->cols, a->up + at * width, m, false)) return;
        llm_for_rows(m, width, act_rows, &act);
        /* The rows that gate and up have read are then free. */
        if (!a->o.inner && !product(c, a->o.down[e], false, act.out, rows + at * x->cols, m, false)) return;
    }
    if (a->o.inner) show_inner(c, a, inner, x->rows, width, false);
    for (int64_t e = 0; e < a->o.n && a->o.inner && !llm_ctx_failed(c); e++) {
        int64_t at = p->start[e], m = p->start[e + 1] - at;
        say_rows(c, p, at);
        if (m > 0 && !product(c, a->o.down[e], false, inner + at * width, rows + at * x->cols, m, false)) return;
    }
    say_rows(c, NULL, 0);
    if (llm_ctx_failed(c)) return;
    struct rows_work combine = {.p = p, .from = rows, .from_stride = x->cols, .to = y->data, .to_stride = y->stride, .cols = y->cols,
                                .weights = weights};
    llm_for_rows(y->rows, y->cols * p->k, combine_rows, &combine);
}

/* ---- backward ---- */

struct back_work {
    const struct mixture_args *a;
    const struct llm_tensor *weights;
    struct llm_grad weights_grad;
    bool weights_wanted;
    float *d_out, *d_inner, *inner; /* [n, hidden], [n, width] twice */
    int64_t hidden, width;
};

/* d_inner and d_out hold gradients without the router's weight. Adds d_inner · inner to the weight's gradient, then multiplies both by the weight. */
static void weigh_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct back_work *w = arg;
    (void)thread;
    for (int64_t i = from; i < to; i++) {
        int32_t slot = w->a->places.slot[i];
        int64_t t = slot / w->a->places.k, s = slot % w->a->places.k;
        const float *inner = w->inner + i * w->width;
        float *d = w->d_inner + i * w->width, weight = w->weights->data[t * w->weights->stride + s];
        double dot = 0;
        for (int64_t j = 0; j < w->width; j++) dot += (double)d[j] * (double)inner[j];
        if (w->weights_wanted) w->weights_grad.p[t * w->weights_grad.stride + s] += (float)dot; /* each slot has one place */
        llm_k.elementwise.scale(d, weight, d, (size_t)w->width);
        llm_k.elementwise.scale(w->d_out + i * w->hidden, weight, w->d_out + i * w->hidden, (size_t)w->hidden);
    }
}

static void act_back_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct back_work *w = arg;
    size_t at = (size_t)(from * w->width), n = (size_t)((to - from) * w->width);
    (void)thread;
    /* Replaces d_inner by the gradient of gate, and inner by the gradient of up. */
    llm_k.elementwise.gated_back[w->a->o.act](w->d_inner + at, w->inner + at, w->a->gate + at, w->a->up + at, w->d_inner + at, false, false, n);
}

/* Splits an expert's places [from, to) at the ends of the blocks of LLM_FOLD tokens of the batch. starts: [blocks + 1]. Returns the number of
 * blocks. */
static int64_t fold_blocks(const struct places *p, int64_t from, int64_t to, int64_t tokens, int64_t row_len, int64_t *starts)
{
    int64_t n = 0, end = -1;
    for (int64_t i = from; i < to; i++) {
        int64_t t = p->slot[i] / p->k;
        if (t < end) continue;
        end = llm_fold_end(tokens, row_len, t / row_len * row_len + t % row_len / LLM_FOLD * LLM_FOLD);
        starts[n++] = i - from;
    }
    starts[n] = to - from;
    return n;
}

/* Of a matrix and its adapter. */
static bool gradient(struct llm_ctx *c, struct llm_param *p, const float *dy, const float *x, const int64_t *starts, int64_t blocks)
{
    int64_t n = p->weight.n, k = p->weight.k;
    const struct llm_folds folds = {.starts = starts, .n_blocks = blocks};
    if (p->grad && llm_matmul_dw_blocks(p->grad, dy, n, x, k, starts, blocks, n, k, c->compute, &c->err) < 0) return false;
    return llm_adapter_dw(c, p, x, k, dy, n, starts[blocks], &folds, NULL);
}

static void mixture_backward(struct llm_ctx *c, struct llm_node *node)
{
    LLM_PROFILE("mixture backward", 0);
    const struct mixture_args *a = node->args;
    const struct places *p = &a->places;
    struct llm_tensor *x = node->in[0], *y = node->out;
    struct llm_grad g;
    struct back_work w = {.a = a, .weights = node->in[1], .hidden = x->cols, .width = a->o.gate[0]->weight.n};
    float *rows = llm_op_alloc(c, p->n * w.hidden, sizeof *rows);
    int64_t *starts = llm_op_alloc(c, p->n + 1, sizeof *starts), row_len = llm_row_len(c, x->rows);
    w.d_out = llm_op_alloc(c, p->n * w.hidden, sizeof *rows);
    w.d_inner = llm_op_alloc(c, p->n * w.width, sizeof *rows);
    w.inner = llm_op_alloc(c, p->n * w.width, sizeof *rows);
    if (llm_ctx_failed(c)) return;
    w.weights_wanted = llm_grad_open_zeroed(c, node->in[1], &w.weights_grad);
    struct rows_work gather_x = {.p = p, .from = x->data, .from_stride = x->stride, .to = rows, .to_stride = w.hidden, .cols = w.hidden};
    struct rows_work gather_dy = {.p = p, .from = y->grad, .from_stride = y->grad_stride, .to = w.d_out, .to_stride = w.hidden, .cols = w.hidden};
    llm_for_rows(p->n, w.hidden, gather_rows, &gather_x);
    llm_for_rows(p->n, w.hidden, gather_rows, &gather_dy);
    struct act_work act = {a->o.act, a->gate, a->up, w.inner, w.width};
    llm_for_rows(p->n, w.width, act_rows, &act);
    if (a->o.inner) show_inner(c, a, w.inner, x->rows, w.width, true);
    if (llm_ctx_failed(c)) return;
    for (int64_t e = 0; e < a->o.n; e++) {
        int64_t at = p->start[e], m = p->start[e + 1] - at;
        say_rows(c, p, at);
        if (m > 0 && !product(c, a->o.down[e], true, w.d_out + at * w.hidden, w.d_inner + at * w.width, m, false)) return;
    }
    llm_for_rows(p->n, w.width, weigh_rows, &w);
    for (int64_t e = 0; e < a->o.n; e++) {
        int64_t at = p->start[e], blocks = fold_blocks(p, at, p->start[e + 1], x->rows, row_len, starts);
        say_rows(c, p, at);
        if (blocks && !gradient(c, a->o.down[e], w.d_out + at * w.hidden, w.inner + at * w.width, starts, blocks)) return;
    }
    llm_for_rows(p->n, w.width, act_back_rows, &w);
    for (int64_t e = 0; e < a->o.n; e++) {
        int64_t at = p->start[e], m = p->start[e + 1] - at, blocks = fold_blocks(p, at, p->start[e + 1], x->rows, row_len, starts);
        const float *d_gate = w.d_inner + at * w.width, *d_up = w.inner + at * w.width;
        float *dx = w.d_out + at * w.hidden;
        if (m == 0) continue;
        say_rows(c, p, at);
        if (!gradient(c, a->o.gate[e], d_gate, rows + at * w.hidden, starts, blocks)) return;
        if (!gradient(c, a->o.up[e], d_up, rows + at * w.hidden, starts, blocks)) return;
        if (!product(c, a->o.gate[e], true, d_gate, dx, m, false) || !product(c, a->o.up[e], true, d_up, dx, m, true)) return;
    }
    say_rows(c, NULL, 0);
    if (!llm_grad_open(c, x, &g)) return;
    struct rows_work combine = {.p = p, .from = w.d_out, .from_stride = w.hidden, .to = g.p, .to_stride = g.stride, .cols = w.hidden, .add = g.add};
    llm_for_rows(x->rows, w.hidden * p->k, combine_rows, &combine);
}

/* One of the experts' matrices, or of their adapters', that takes a gradient, for the node. NULL: all are frozen. */
static struct llm_param *trained(struct llm_param *const *params, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (params[i]->grad) return params[i];
        if (llm_adapter_trained(params[i])) return llm_adapter_trained(params[i]);
    }
    return NULL;
}

struct llm_tensor *llm_mixture(struct llm_ctx *c, struct llm_tensor *x, struct llm_tensor *weights, const int32_t *experts,
                               const struct llm_experts *o)
{
    LLM_PROFILE("mixture", 0);
    if (llm_ctx_failed(c)) return &c->nothing;
    if (x->rows != weights->rows || x->cols != o->gate[0]->weight.k || x->rows > INT32_MAX / weights->cols) {
        return llm_op_fail(c, LLM_EX_FAILURE, "'%s': expected inputs [%lld, %lld], found [%lld, %lld]", o->gate[0]->name, (long long)weights->rows,
                           (long long)o->gate[0]->weight.k, (long long)x->rows, (long long)x->cols);
    }
    struct llm_node node = {.backward = mixture_backward, .mark = llm_arena_mark(&c->acts), .in = {x, weights},
                            .param = {trained(o->gate, o->n), trained(o->up, o->n), trained(o->down, o->n)}};
    int64_t slots = x->rows * weights->cols;
    struct mixture_args a = {.o = *o, .places = {.k = weights->cols}};
    node.out = llm_tensor_create(c, x->rows, x->cols);
    bool wanted = llm_tape_wants(c, &node);
    size_t scratch = llm_arena_mark(&c->acts);
    a.places.start = llm_op_alloc(c, o->n + 1, sizeof *a.places.start);
    a.places.slot = llm_op_alloc(c, slots, sizeof *a.places.slot);
    a.places.at = llm_op_alloc(c, slots, sizeof *a.places.at);
    if (llm_ctx_failed(c)) return &c->nothing;
    find_places(&a.places, experts, x->rows, o->n);
    a.gate = llm_op_alloc(c, a.places.n * o->gate[0]->weight.n, sizeof *a.gate);
    a.up = llm_op_alloc(c, a.places.n * o->gate[0]->weight.n, sizeof *a.up);
    size_t kept = llm_arena_mark(&c->acts);
    if (!llm_ctx_failed(c)) forward(c, &a, x, weights, node.out);
    if (llm_ctx_failed(c)) return &c->nothing;
    llm_arena_pop(&c->acts, wanted ? kept : scratch);
    node.out->spare = true;
    return llm_record(c, &node, &a, sizeof a);
}

/* ---- gradient check: three experts of 5, one of which gets nothing of some tokens ---- */

enum { HIDDEN = 7, WIDTH = 5, EXPERTS = 3 };
static const int32_t check_experts[11 * 2] = {0, 1, 0, 2, 1, 2, 0, 1, ~0, 2, 1, 2, 0, 2, 0, 1, 1, ~2, 0, 2, 0, 1};

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    static struct llm_param *of[9]; /* the backward reads it */
    memcpy(of, p, sizeof of);
    const struct llm_experts o = {.n = EXPERTS, .gate = of, .up = of + 3, .down = of + 6, .act = LLM_ACT_SILU};
    return llm_mixture(c, in[0], in[1], check_experts, &o);
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    for (int64_t t = 0; t < g->out.rows; t++) {
        const double *x = in[0] + t * HIDDEN;
        for (int i = 0; i < HIDDEN; i++) y[t * HIDDEN + i] = 0;
        for (int s = 0; s < 2; s++) {
            int32_t e = check_experts[t * 2 + s];
            for (int j = 0; e >= 0 && j < WIDTH; j++) {
                double gate = 0, up = 0;
                for (int i = 0; i < HIDDEN; i++) {
                    gate += x[i] * p[e][j * HIDDEN + i];
                    up += x[i] * p[3 + e][j * HIDDEN + i];
                }
                double inner = gate / (1 + exp(-gate)) * up;
                for (int i = 0; i < HIDDEN; i++) y[t * HIDDEN + i] += in[1][t * 2 + s] * inner * p[6 + e][i * WIDTH + j];
            }
        }
    }
}

/* The first expert alone, with adapters of rank 2 at its three matrices: p[3 + 2i] and p[4 + 2i]. */
enum { RANK = 2 };
static const int32_t alone[11] = {0, 0, 0, ~0, 0, 0, 0, 0, 0, 0, 0};

static struct llm_tensor *check_adapted(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    static struct llm_param *of[3];
    static struct llm_adapter adapters[3];
    for (int i = 0; i < 3; i++) {
        of[i] = p[i];
        adapters[i] = (struct llm_adapter){.a = p[3 + 2 * i], .b = p[4 + 2 * i], .scale = .5f};
        of[i]->adapter = &adapters[i];
    }
    const struct llm_experts o = {.n = 1, .gate = of, .up = of + 1, .down = of + 2, .act = LLM_ACT_SILU};
    return llm_mixture(c, in[0], in[1], alone, &o);
}

/* Element (row, column) of matrix i [rows, cols] with its adapter. */
static double adapted(const double *const *p, int i, int row, int column, int cols)
{
    double w = p[i][row * cols + column];
    for (int r = 0; r < RANK; r++) w += .5 * p[4 + 2 * i][row * RANK + r] * p[3 + 2 * i][r * cols + column];
    return w;
}

static void formula_adapted(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    for (int64_t t = 0; t < g->out.rows; t++) {
        const double *x = in[0] + t * HIDDEN;
        for (int i = 0; i < HIDDEN; i++) y[t * HIDDEN + i] = 0;
        for (int j = 0; alone[t] >= 0 && j < WIDTH; j++) {
            double gate = 0, up = 0;
            for (int i = 0; i < HIDDEN; i++) {
                gate += x[i] * adapted(p, 0, j, i, HIDDEN);
                up += x[i] * adapted(p, 1, j, i, HIDDEN);
            }
            double inner = gate / (1 + exp(-gate)) * up;
            for (int i = 0; i < HIDDEN; i++) y[t * HIDDEN + i] += in[1][t] * inner * adapted(p, 2, i, j, WIDTH);
        }
    }
}

#define IN {WIDTH, HIDDEN}
#define OUT {HIDDEN, WIDTH}
#define IN_LOW {RANK, HIDDEN}, {WIDTH, RANK}
const struct llm_gradcheck llm_gradcheck_mixture[] = {
    {.name = "an expert with adapters", .in = {{11, HIDDEN}, {11, 1}}, .param = {IN, IN, OUT, IN_LOW, IN_LOW, {RANK, WIDTH}, {HIDDEN, RANK}},
     .out = {11, HIDDEN}, .run = check_adapted, .formula = formula_adapted},
    {.name = "mixture of experts", .in = {{11, HIDDEN}, {11, 2}}, .param = {IN, IN, IN, IN, IN, IN, OUT, OUT, OUT}, .out = {11, HIDDEN},
     .run = check_run, .formula = check_formula}, {0}};
