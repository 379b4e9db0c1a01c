/* The recurrences of RWKV 5 to 7 (cpu/kernels/wkv.h): each head has a matrix of states. Time is processed in order; segments and heads are processed
 * in parallel. The backward pass recomputes the states from those that were kept every few tokens. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include "cpu/kernels.h"
#include "cpu/pool.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/op/chunks.h"
#include "tensor/ops.h"
#include "tensor/sequence.h"
#include "tensor/tape.h"

enum { R, K, V, W, A, B, INPUTS };

/* Shared by forward and backward pass; on `acts`. */
struct wkv {
    struct llm_chunks cut;
    int64_t heads, size, cols;
    const float *raw;            /* [cols]: the decays before e^(-e^x), if they are the same for all tokens; else NULL */
    float *w;                    /* [cols]: after it */
    const float *u;              /* [cols]; NULL in version 7 */
    float *kept;                 /* [n_chunks, heads, size, size]: the state before each chunk; NULL when not recording */
};
struct wkv_args { struct wkv s; };
struct work {
    const struct wkv *s;
    struct llm_tensor *const *in;
    const struct llm_tensor *y;
    /* backward */
    struct llm_grad g[INPUTS];
    float *d[INPUTS];            /* [tokens, cols]; of W, if decays are the same for all tokens, NULL */
    float *partial;              /* gradients of w and u: [n_parts, 2, cols] */
    float *d_decay, *du;
    size_t decay_stride, u_stride; /* from these gradients by one part of the rows to the next (tensor/sequence.h) */
    struct llm_folds folds;
    struct llm_state_grads states; /* [heads, size, size] of each row */
    atomic_bool no_memory;
};

static const float *at(const struct llm_tensor *x, int64_t row, int64_t column)
{
    return x ? x->data + row * x->stride + column : NULL;
}

static size_t stride_of(const struct llm_tensor *x) { return x ? (size_t)x->stride : 0; }

static struct llm_wkv_run run_of(const struct work *w, const struct llm_chunk *q, int64_t head, float *state)
{
    const struct wkv *s = w->s;
    struct llm_tensor *const *x = w->in;
    int64_t column = head * s->size, t = q->first;
    return (struct llm_wkv_run){
        .tokens = (size_t)q->n, .size = (size_t)s->size, .r = at(x[R], t, column), .k = at(x[K], t, column), .v = at(x[V], t, column),
        .w = x[W] ? at(x[W], t, column) : s->w + column, .a = at(x[A], t, column), .b = at(x[B], t, column), .ldr = stride_of(x[R]),
        .ldk = stride_of(x[K]), .ldv = stride_of(x[V]), .ldw = stride_of(x[W]), .lda = stride_of(x[A]), .ldb = stride_of(x[B]),
        .u = s->u ? s->u + column : NULL, .state = state, .y = w->y->data + t * w->y->stride + column, .ldy = (size_t)w->y->stride};
}

static void forward_piece(void *arg, size_t i, int thread)
{
    struct work *w = arg;
    const struct wkv *s = w->s;
    int64_t number = (int64_t)i / s->heads, head = (int64_t)i % s->heads, all = s->size * s->size;
    const struct llm_segment *g = &s->cut.segments[number];
    float *state = llm_scratch(thread, (size_t)all * sizeof *state);
    if (!state) {
        atomic_store(&w->no_memory, true);
        return;
    }
    if (g->from) memcpy(state, g->from + head * all, (size_t)all * sizeof *state);
    else memset(state, 0, (size_t)all * sizeof *state);
    for (int64_t c = s->cut.first[number]; c < s->cut.first[number + 1]; c++) {
        if (s->kept) memcpy(s->kept + (c * s->heads + head) * all, state, (size_t)all * sizeof *state);
        struct llm_wkv_run r = run_of(w, &s->cut.chunks[c], head, state);
        llm_k.wkv.forward(&r);
    }
    if (g->to) memcpy(g->to + head * all, state, (size_t)all * sizeof *state);
}

static void wkv_backward(struct llm_ctx *c, struct llm_node *n);

static bool begin(struct llm_ctx *c, struct wkv *s, const struct llm_node *n, const struct llm_wkv *o)
{
    const struct llm_param *decay = n->param[0], *first = n->param[1];
    if (!llm_chunks_cut(c, &s->cut, o->segments, o->n_segments, n->out->rows, LLM_WKV_CHUNK)) return false;
    if (first) s->u = llm_op_vector(c, first, s->cols);
    if (decay) s->raw = llm_op_vector(c, decay, s->cols);
    if (decay) s->w = llm_op_alloc(c, s->cols, sizeof *s->w);
    if (llm_tape_wants(c, n)) s->kept = llm_op_alloc(c, s->cut.n_chunks * s->cols * s->size, sizeof *s->kept);
    if (llm_ctx_failed(c)) return false;
    if (decay) llm_k.wkv.decay[LLM_WKV_EXP](s->w, s->raw, (size_t)s->cols);
    return true;
}

#define FLOPS_A_STATE(o) ((o)->a ? 9.0 : 5.0)

struct llm_tensor *llm_wkv(struct llm_ctx *c, const struct llm_wkv *o)
{
    LLM_PROFILE("RWKV recurrence", 6 * llm_tensor_bytes(o->k));
    LLM_PROFILE_WORK(LLM_PROFILE_F32, FLOPS_A_STATE(o) * (double)(o->k->rows * o->k->cols * (o->k->cols / o->heads)), 0);
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_node n = {.backward = wkv_backward, .mark = llm_arena_mark(&c->acts), .in = {o->r, o->k, o->v, o->w, o->a, o->b},
                         .param = {o->decay, o->first}};
    struct wkv s = {.heads = o->heads, .cols = o->k->cols, .size = o->k->cols / o->heads};
    n.out = llm_tensor_create(c, o->k->rows, s.cols);
    if (llm_ctx_failed(c) || !begin(c, &s, &n, o)) return &c->nothing;
    struct work w = {.s = &s, .in = n.in, .y = n.out};
    const size_t scratch = llm_arena_mark(&c->acts);
    struct llm_sequence_states states;
    if (!llm_sequence_receive_states(c, &states, s.cut.segments, s.cut.n_segments, n.out->rows, s.cols * s.size)) return &c->nothing;
    llm_parallel((size_t)(o->n_segments * s.heads), forward_piece, &w);
    if (atomic_load(&w.no_memory)) return llm_op_fail(c, EX_UNAVAILABLE, "out of memory in a recurrence");
    if (!llm_sequence_send_states(c, &states)) return &c->nothing;
    llm_arena_pop(&c->acts, scratch);
    return llm_record(c, &n, &(struct wkv_args){s}, sizeof(struct wkv_args));
}

static void backward_piece(void *arg, size_t i, int thread)
{
    struct work *w = arg;
    const struct wkv *s = w->s;
    int64_t segment = (int64_t)i / s->heads, head = (int64_t)i % s->heads, n = s->size, column = head * n;
    size_t rest = LLM_WKV_SCRATCH((size_t)n), all = (size_t)(n * n);
    float *g = llm_scratch(thread, (rest + all + 2 * (size_t)n) * sizeof *g), *sums = g + all;
    if (!g) {
        atomic_store(&w->no_memory, true);
        return;
    }
    memset(g, 0, (all + 2 * (size_t)n) * sizeof *g);
    const float *after = llm_state_grad_after(&w->states, &s->cut.segments[segment]);
    float *before = llm_state_grad_before(&w->states, &s->cut.segments[segment]);
    if (after) memcpy(g, after + head * n * n, all * sizeof *g);
    for (int64_t c = s->cut.first[segment + 1] - 1; c >= s->cut.first[segment]; c--) {
        const struct llm_chunk *q = &s->cut.chunks[c];
        float *d[INPUTS];
        for (int j = 0; j < INPUTS; j++) d[j] = w->d[j] ? w->d[j] + q->first * s->cols + column : NULL;
        struct llm_wkv_back b = {.run = run_of(w, q, head, s->kept + (c * s->heads + head) * (int64_t)all),
                                 .dy = w->y->grad + q->first * w->y->grad_stride + column, .ld_dy = (size_t)w->y->grad_stride, .g = g, .dr = d[R],
                                 .dk = d[K], .dv = d[V], .dw = d[W] ? d[W] : sums, .da = d[A], .db = d[B], .ld = (size_t)s->cols,
                                 .du = sums + n, .scratch = sums + 2 * n};
        llm_k.wkv.backward(&b);
        if (c > s->cut.first[segment] && s->cut.chunks[c - 1].part == q->part) continue;
        for (int j = 0; j < 2; j++) memcpy(w->partial + (q->part * 2 + j) * s->cols + column, sums + j * n, (size_t)n * sizeof *sums);
        memset(sums, 0, 2 * (size_t)n * sizeof *sums);
    }
    if (before) memcpy(before + head * n * n, g, all * sizeof *g);
}

static void add_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    (void)thread;
    for (int64_t t = from; t < to; t++) {
        for (int j = 0; j < INPUTS; j++) {
            float *g = w->g[j].p ? w->g[j].p + t * w->g[j].stride : NULL;
            if (g) llm_k.elementwise.add(g, g, w->d[j] + t * w->s->cols, (size_t)w->s->cols);
        }
    }
}

/* Adds the parts in order, which is the canonical order. */
static void add_params(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    const struct wkv *s = w->s;
    (void)thread;
    for (int64_t part = 0; part < s->cut.n_parts; part++) {
        const size_t of_row = (size_t)llm_folds_part(&w->folds, s->cut.part_first[part]);
        const float *p = w->partial + part * 2 * s->cols;
        float *d_decay = w->d_decay ? w->d_decay + of_row * w->decay_stride + from : NULL, *du = w->du ? w->du + of_row * w->u_stride + from : NULL;
        if (d_decay) llm_k.wkv.decay_back[LLM_WKV_EXP](d_decay, p + from, s->raw + from, (size_t)(to - from));
        if (du) llm_k.elementwise.add(du, du, p + s->cols + from, (size_t)(to - from));
    }
}

static void wkv_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("RWKV recurrence backward", 12 * llm_tensor_bytes(n->out));
    const struct wkv *s = &((const struct wkv_args *)n->args)->s;
    struct work w = {.s = s, .in = n->in, .y = n->out, .d_decay = n->param[0] ? n->param[0]->grad : NULL,
                     .du = n->param[1] ? n->param[1]->grad : NULL, .decay_stride = n->param[0] ? llm_grad_stride(n->param[0]) : 0,
                     .u_stride = n->param[1] ? llm_grad_stride(n->param[1]) : 0, .folds = llm_folds_of(c, n->out->rows)};
    for (int j = 0; j < INPUTS; j++) {
        if (!n->in[j]) continue;
        if (!llm_grad_open_zeroed(c, n->in[j], &w.g[j])) w.g[j].p = NULL;
        w.d[j] = llm_op_alloc(c, n->out->rows * s->cols, sizeof **w.d);
    }
    w.partial = llm_op_alloc(c, s->cut.n_parts * 2 * s->cols, sizeof *w.partial);
    if (llm_ctx_failed(c) || !llm_sequence_receive_gradients(c, &w.states, n->out->rows, s->cols * s->size)) return;
    llm_parallel((size_t)(s->cut.n_segments * s->heads), backward_piece, &w);
    if (atomic_load(&w.no_memory)) {
        llm_op_fail(c, EX_UNAVAILABLE, "out of memory in a recurrence");
        return;
    }
    if (!llm_sequence_send_gradients(c, &w.states)) return;
    llm_for_rows(n->out->rows, s->cols, add_rows, &w);
    llm_for_columns(s->cols, add_params, &w);
}

/* ---- decays ---- */

struct decay_args { enum llm_wkv_decay kind; };
struct decay_work { const struct llm_tensor *x, *y; enum llm_wkv_decay kind; struct llm_grad g; };

static void decay_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct decay_work *w = arg;
    (void)thread;
    for (int64_t t = from; t < to; t++) llm_k.wkv.decay[w->kind](w->y->data + t * w->y->stride, at(w->x, t, 0), (size_t)w->x->cols);
}

static void decay_back_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct decay_work *w = arg;
    (void)thread;
    for (int64_t t = from; t < to; t++) {
        llm_k.wkv.decay_back[w->kind](w->g.p + t * w->g.stride, w->y->grad + t * w->y->grad_stride, at(w->x, t, 0), (size_t)w->x->cols);
    }
}

static void decay_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("RWKV decay backward", 4 * llm_tensor_bytes(n->out));
    struct decay_work w = {.x = n->in[0], .y = n->out, .kind = ((const struct decay_args *)n->args)->kind};
    if (llm_grad_open_zeroed(c, n->in[0], &w.g)) llm_for_rows(w.y->rows, w.y->cols, decay_back_rows, &w);
}

struct llm_tensor *llm_wkv_decay(struct llm_ctx *c, struct llm_tensor *x, enum llm_wkv_decay kind)
{
    LLM_PROFILE("RWKV decay", 2 * llm_tensor_bytes(x));
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_node n = {.backward = decay_backward, .mark = llm_arena_mark(&c->acts), .in = {x}};
    n.out = llm_tensor_create(c, x->rows, x->cols);
    if (llm_ctx_failed(c)) return &c->nothing;
    llm_for_rows(x->rows, x->cols, decay_rows, &(struct decay_work){.x = x, .y = n.out, .kind = kind});
    return llm_record(c, &n, &(struct decay_args){kind}, sizeof(struct decay_args));
}

/* ---- gradient check ---- */

enum { TOKENS = 76, SIZE = 3, CHANNELS = 2 * SIZE };
static const float check_state[CHANNELS * SIZE] = {.5f, -1, 2, .25f, [7] = .75f, [12] = -1.5f, [17] = 1};
static const struct llm_segment check_segments[] = {{.first = 0, .n = 36}, {.first = 36, .n = 2}, {.first = 38, .n = 38, .from = check_state}};

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    struct llm_wkv o = {.r = in[0], .k = llm_columns(c, in[1], 0, CHANNELS), .v = llm_columns(c, in[1], CHANNELS, CHANNELS), .heads = 2,
                        .segments = check_segments, .n_segments = 3};
    if (in[2] && in[2]->cols == CHANNELS) o.w = llm_wkv_decay(c, in[2], LLM_WKV_EXP);
    if (in[2] && in[2]->cols == 3 * CHANNELS) {
        o.w = llm_wkv_decay(c, llm_columns(c, in[2], 0, CHANNELS), LLM_WKV_SIGMOID);
        o.a = llm_columns(c, in[2], CHANNELS, CHANNELS);
        o.b = llm_columns(c, in[2], 2 * CHANNELS, CHANNELS);
        return llm_wkv(c, &o);
    }
    o.first = p[0];
    o.decay = p[1];
    return llm_wkv(c, &o);
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    const int64_t more = g->in[2].cols;
    const bool seventh = more == 3 * CHANNELS;
    for (int s = 0; s < 3; s++) {
        const struct llm_segment *q = &check_segments[s];
        for (int head = 0; head < 2; head++) {
            double S[SIZE][SIZE];
            for (int i = 0; i < SIZE * SIZE; i++) S[i / SIZE][i % SIZE] = q->from ? (double)q->from[head * SIZE * SIZE + i] : 0;
            for (int64_t t = q->first; t < q->first + q->n; t++) {
                const double *r = in[0] + t * CHANNELS + head * SIZE, *k = in[1] + t * 2 * CHANNELS + head * SIZE, *v = k + CHANNELS;
                const double *x = more ? in[2] + t * more + head * SIZE : p[1] + head * SIZE;
                for (int j = 0; j < SIZE; j++) {
                    double sum = 0, seen = 0;
                    for (int i = 0; seventh && i < SIZE; i++) seen += x[CHANNELS + i] * S[i][j];
                    for (int i = 0; i < SIZE; i++) {
                        double w = seventh ? exp(-exp(-.5) / (1 + exp(-x[i]))) : exp(-exp(x[i])), in_now = k[i] * v[j];
                        if (!seventh) sum += r[i] * (S[i][j] + p[0][head * SIZE + i] * in_now);
                        S[i][j] = w * S[i][j] + in_now + (seventh ? x[2 * CHANNELS + i] * seen : 0);
                        if (seventh) sum += r[i] * S[i][j];
                    }
                    y[t * CHANNELS + head * SIZE + j] = sum;
                }
            }
        }
    }
}

const struct llm_gradcheck llm_gradcheck_wkv[] = {
    {.name = "RWKV 5", .in = {{TOKENS, CHANNELS}, {TOKENS, 2 * CHANNELS}}, .param = {{1, CHANNELS}, {1, CHANNELS}}, .out = {TOKENS, CHANNELS},
     .n_rows = 2, .run = check_run, .formula = check_formula},
    {.name = "RWKV 6", .in = {{TOKENS, CHANNELS}, {TOKENS, 2 * CHANNELS}, {TOKENS, CHANNELS}}, .param = {{1, CHANNELS}}, .out = {TOKENS, CHANNELS},
     .n_rows = 2, .run = check_run, .formula = check_formula},
    {.name = "RWKV 7", .in = {{TOKENS, CHANNELS}, {TOKENS, 2 * CHANNELS}, {TOKENS, 3 * CHANNELS}}, .out = {TOKENS, CHANNELS}, .n_rows = 2,
     .spread = .5, .run = check_run, .formula = check_formula},
    {0}};
