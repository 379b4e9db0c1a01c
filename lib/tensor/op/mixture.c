/* A mixture of gated feed-forward experts. The tokens of each expert are gathered into one matrix; there is no padding, and no token is dropped.
 * Parameter gradients fold the expert's tokens of each block of LLM_FOLD tokens of the batch, in order. */
#include <math.h>
#include <string.h>
#include "cpu/kernels.h"
#include "cpu/pool.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/op/mixture_internal.h"
#include "tensor/ops.h"
#include "tensor/tape.h"

struct mixture_args {
    struct llm_experts o;
    struct llm_places places;
    float *gate, *up;         /* [n, width] */
};

/* The products that follow have the places from `at` on as rows; `p` NULL: all tokens. */
static void say_rows(struct llm_ctx *c, const struct llm_places *p, int64_t at)
{
    c->adapters.slot = p ? p->slot + at : NULL;
    c->adapters.per = p ? p->k : 0;
    c->adapters.row_len = p ? c->row_len : 0;
}

/* Shows the inputs of the down projections, a token's slots side by side, and takes what has become of them. */
static void show_inner(struct llm_ctx *c, const struct mixture_args *a, float *inner, int64_t tokens, int64_t width, bool again)
{
    const struct llm_places *p = &a->places;
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
    const struct llm_places *p = &a->places;
    int64_t width = a->o.gate[0]->weight.n;
    float *rows = llm_op_alloc(c, p->n * x->cols, sizeof *rows), *inner = llm_op_alloc(c, p->n * width, sizeof *inner);
    if (llm_ctx_failed(c)) return;
    llm_places_gather(p, x->data, x->stride, rows, x->cols, x->cols);
    for (int64_t e = 0; e < a->o.n; e++) {
        int64_t at = p->start[e], m = p->start[e + 1] - at;
        if (m == 0) continue;
        say_rows(c, p, at);
        if (!llm_expert_product(c, a->o.gate[e], false, rows + at * x->cols, a->gate + at * width, m, false)) return;
        if (!llm_expert_product(c, a->o.up[e], false, rows + at * x->cols, a->up + at * width, m, false)) return;
        llm_expert_act(a->o.act, a->gate + at * width, a->up + at * width, inner + at * width, m, width);
        /* The rows that gate and up have read are then free. */
        if (!a->o.inner && !llm_expert_product(c, a->o.down[e], false, inner + at * width, rows + at * x->cols, m, false)) return;
    }
    if (a->o.inner) show_inner(c, a, inner, x->rows, width, false);
    for (int64_t e = 0; e < a->o.n && a->o.inner && !llm_ctx_failed(c); e++) {
        int64_t at = p->start[e], m = p->start[e + 1] - at;
        say_rows(c, p, at);
        if (m > 0 && !llm_expert_product(c, a->o.down[e], false, inner + at * width, rows + at * x->cols, m, false)) return;
    }
    say_rows(c, NULL, 0);
    if (llm_ctx_failed(c)) return;
    llm_places_combine(p, rows, x->cols, weights, y->data, y->stride, y->rows, y->cols, false);
}

/* ---- backward ---- */

/* Adds the gradients of expert e's matrix. dy, x: of all places. starts, blocks: as of llm_expert_folds. */
static bool add_gradients(struct llm_ctx *c, const struct llm_places *p, int64_t e, const struct llm_folds *folds, struct llm_param *w,
                          const float *dy, const float *x, const int64_t *starts, int64_t blocks)
{
    const int64_t at = p->start[e];
    return llm_expert_gradients(c, w, 0, folds, p->slot + at, p->k, dy + at * w->weight.n, x + at * w->weight.k, starts, blocks);
}

struct back_work {
    const struct mixture_args *a;
    const struct llm_tensor *weights;
    struct llm_grad weights_grad;
    bool weights_wanted;
    float *d_out, *d_inner, *inner; /* [n, hidden], [n, width] twice */
    int64_t hidden, width;
};

static void weigh_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct back_work *w = arg;
    (void)thread;
    for (int64_t i = from; i < to; i++) {
        int32_t slot = w->a->places.slot[i];
        int64_t t = slot / w->a->places.k, s = slot % w->a->places.k;
        const float dot = llm_expert_weigh(w->d_inner + i * w->width, w->inner + i * w->width, w->width, w->d_out + i * w->hidden, w->hidden,
                                           w->weights->data[t * w->weights->stride + s]);
        if (w->weights_wanted) w->weights_grad.p[t * w->weights_grad.stride + s] += dot; /* each slot has one place */
    }
}

static void mixture_backward(struct llm_ctx *c, struct llm_node *node)
{
    LLM_PROFILE("mixture backward", 0);
    const struct mixture_args *a = node->args;
    const struct llm_places *p = &a->places;
    struct llm_tensor *x = node->in[0], *y = node->out;
    struct llm_grad g;
    struct back_work w = {.a = a, .weights = node->in[1], .hidden = x->cols, .width = a->o.gate[0]->weight.n};
    float *rows = llm_op_alloc(c, p->n * w.hidden, sizeof *rows);
    int64_t *starts = llm_op_alloc(c, p->n + 1, sizeof *starts);
    const struct llm_folds folds = llm_folds_of(c, x->rows);
    w.d_out = llm_op_alloc(c, p->n * w.hidden, sizeof *rows);
    w.d_inner = llm_op_alloc(c, p->n * w.width, sizeof *rows);
    w.inner = llm_op_alloc(c, p->n * w.width, sizeof *rows);
    if (llm_ctx_failed(c)) return;
    w.weights_wanted = llm_grad_open_zeroed(c, node->in[1], &w.weights_grad);
    llm_places_gather(p, x->data, x->stride, rows, w.hidden, w.hidden);
    llm_places_gather(p, y->grad, y->grad_stride, w.d_out, w.hidden, w.hidden);
    llm_expert_act(a->o.act, a->gate, a->up, w.inner, p->n, w.width);
    if (a->o.inner) show_inner(c, a, w.inner, x->rows, w.width, true);
    if (llm_ctx_failed(c)) return;
    for (int64_t e = 0; e < a->o.n; e++) {
        int64_t at = p->start[e], m = p->start[e + 1] - at;
        say_rows(c, p, at);
        if (m > 0 && !llm_expert_product(c, a->o.down[e], true, w.d_out + at * w.hidden, w.d_inner + at * w.width, m, false)) return;
    }
    llm_for_rows(p->n, w.width, weigh_rows, &w);
    for (int64_t e = 0; e < a->o.n; e++) {
        int64_t at = p->start[e], blocks = llm_expert_folds(p->slot, p->k, at, p->start[e + 1], x->rows, folds.row_len, starts);
        say_rows(c, p, at);
        if (!add_gradients(c, p, e, &folds, a->o.down[e], w.d_out, w.inner, starts, blocks)) return;
    }
    llm_expert_act_back(a->o.act, a->gate, a->up, w.d_inner, w.inner, p->n, w.width);
    for (int64_t e = 0; e < a->o.n; e++) {
        int64_t at = p->start[e], m = p->start[e + 1] - at, blocks = llm_expert_folds(p->slot, p->k, at, at + m, x->rows, folds.row_len, starts);
        struct llm_param *gate = a->o.gate[e], *up = a->o.up[e];
        const float *d_gate = w.d_inner + at * w.width, *d_up = w.inner + at * w.width;
        float *dx = w.d_out + at * w.hidden;
        if (m == 0) continue;
        say_rows(c, p, at);
        if (!add_gradients(c, p, e, &folds, gate, w.d_inner, rows, starts, blocks)) return;
        if (!add_gradients(c, p, e, &folds, up, w.inner, rows, starts, blocks)) return;
        if (!llm_expert_product(c, gate, true, d_gate, dx, m, false) || !llm_expert_product(c, up, true, d_up, dx, m, true)) return;
    }
    say_rows(c, NULL, 0);
    if (!llm_grad_open(c, x, &g)) return;
    llm_places_combine(p, w.d_out, w.hidden, NULL, g.p, g.stride, x->rows, w.hidden, g.add);
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
                            .param = {llm_experts_trained(o->gate, o->n), llm_experts_trained(o->up, o->n), llm_experts_trained(o->down, o->n)}};
    if (llm_mixture_is_divided(c, o)) return llm_mixture_divided(c, &node, experts, o);
    struct mixture_args a = {.o = *o, .places = {.k = weights->cols}};
    node.out = llm_tensor_create(c, x->rows, x->cols);
    bool wanted = llm_tape_wants(c, &node);
    size_t scratch = llm_arena_mark(&c->acts);
    if (!llm_places_find(c, &a.places, experts, x->rows, o->n)) return &c->nothing;
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
