/* RWKV 4's recurrence (cpu/kernels/wkv.h): means of values whose weights decay with time. Time is processed in order; segments and blocks of channels
 * are processed in parallel. The backward pass recomputes the states from those that were kept every few tokens. */
#include <math.h>
#include <string.h>
#include "cpu/kernels.h"
#include "cpu/pool.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/op/chunks.h"
#include "tensor/ops.h"
#include "tensor/sequence.h"
#include "tensor/tape.h"

enum { BLOCK = 64, STATES = 3, GRADS = 2 }; /* channels per work item; of the states the maximum takes no gradient */

/* Shared by forward and backward pass; on `acts`. */
struct wkv {
    struct llm_chunks cut;
    int64_t cols, n_blocks;
    float *w;                    /* [cols]: -e^decay */
    const float *u;
    float *kept;                 /* [n_chunks, STATES, cols]: the state before each chunk; NULL when not recording */
};
struct wkv4_args { struct wkv s; };
struct work {
    const struct wkv *s;
    const struct llm_tensor *k, *v, *y;
    /* backward */
    struct llm_grad gk, gv;
    float *dk, *dv;              /* [tokens, cols] */
    float *partial;              /* gradients of w and u: [n_parts, 2, cols] */
    float *d_decay, *du;
    size_t decay_stride, u_stride; /* from these gradients by one part of the rows to the next (tensor/sequence.h) */
    struct llm_folds folds;
    struct llm_state_grads states; /* [GRADS, cols] of each row */
};

static int64_t width_of(const struct wkv *s, int64_t at)
{
    return s->cols - at < BLOCK ? s->cols - at : BLOCK;
}

static struct llm_wkv4_run run_of(const struct work *w, const struct llm_chunk *q, int64_t at, float *state, int64_t ld_state)
{
    const struct wkv *s = w->s;
    return (struct llm_wkv4_run){
        .tokens = (size_t)q->n, .channels = (size_t)width_of(s, at), .w = s->w + at, .u = s->u + at, .k = w->k->data + q->first * w->k->stride + at,
        .ldk = (size_t)w->k->stride, .v = w->v->data + q->first * w->v->stride + at, .ldv = (size_t)w->v->stride, .state = state,
        .ld_state = (size_t)ld_state, .y = w->y->data + q->first * w->y->stride + at, .ldy = (size_t)w->y->stride};
}

static void forward_piece(void *arg, size_t i, int thread)
{
    const struct work *w = arg;
    const struct wkv *s = w->s;
    int64_t number = (int64_t)i / s->n_blocks, at = (int64_t)i % s->n_blocks * BLOCK;
    const struct llm_segment *g = &s->cut.segments[number];
    size_t bytes = (size_t)width_of(s, at) * sizeof(float);
    float state[STATES * BLOCK] = {0};
    (void)thread;
    for (int j = 0; j < STATES && g->from; j++) memcpy(state + j * BLOCK, g->from + j * s->cols + at, bytes);
    for (int64_t c = s->cut.first[number]; c < s->cut.first[number + 1]; c++) {
        for (int j = 0; j < STATES && s->kept; j++) memcpy(s->kept + (c * STATES + j) * s->cols + at, state + j * BLOCK, bytes);
        struct llm_wkv4_run r = run_of(w, &s->cut.chunks[c], at, state, BLOCK);
        llm_k.wkv.forward4(&r);
    }
    for (int j = 0; j < STATES && g->to; j++) memcpy(g->to + j * s->cols + at, state + j * BLOCK, bytes);
}

static void wkv4_backward(struct llm_ctx *c, struct llm_node *n);

struct llm_tensor *llm_wkv4(struct llm_ctx *c, struct llm_tensor *k, struct llm_tensor *v, struct llm_param *decay, struct llm_param *first,
                            const struct llm_segment *segments, int64_t n_segments)
{
    LLM_PROFILE("RWKV 4 recurrence", 3 * llm_tensor_bytes(k));
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_node n = {.backward = wkv4_backward, .mark = llm_arena_mark(&c->acts), .in = {k, v}, .param = {decay, first}};
    struct wkv s = {.cols = k->cols, .n_blocks = (k->cols + BLOCK - 1) / BLOCK};
    n.out = llm_tensor_create(c, k->rows, k->cols);
    s.w = llm_op_alloc(c, k->cols, sizeof *s.w);
    s.u = llm_op_vector(c, first, k->cols);
    if (llm_ctx_failed(c) || !llm_chunks_cut(c, &s.cut, segments, n_segments, k->rows, LLM_WKV_CHUNK)) return &c->nothing;
    if (llm_tape_wants(c, &n)) s.kept = llm_op_alloc(c, s.cut.n_chunks * STATES * s.cols, sizeof *s.kept);
    const float *decays = llm_op_vector(c, decay, k->cols);
    if (llm_ctx_failed(c)) return &c->nothing;
    llm_k.scan.decay(s.w, decays, (size_t)k->cols);
    const size_t scratch = llm_arena_mark(&c->acts);
    struct llm_sequence_states states;
    if (!llm_sequence_receive_states(c, &states, s.cut.segments, n_segments, k->rows, STATES * s.cols)) return &c->nothing;
    llm_parallel((size_t)(n_segments * s.n_blocks), forward_piece, &(struct work){.s = &s, .k = k, .v = v, .y = n.out});
    if (!llm_sequence_send_states(c, &states)) return &c->nothing;
    llm_arena_pop(&c->acts, scratch);
    return llm_record(c, &n, &(struct wkv4_args){s}, sizeof(struct wkv4_args));
}

static void backward_piece(void *arg, size_t i, int thread)
{
    const struct work *w = arg;
    const struct wkv *s = w->s;
    int64_t segment = (int64_t)i / s->n_blocks, at = (int64_t)i % s->n_blocks * BLOCK, width = width_of(s, at);
    float g[GRADS * BLOCK] = {0}, sums[2 * BLOCK] = {0};
    const float *after = llm_state_grad_after(&w->states, &s->cut.segments[segment]);
    float *before = llm_state_grad_before(&w->states, &s->cut.segments[segment]);
    (void)thread;
    for (int j = 0; j < GRADS && after; j++) memcpy(g + j * width, after + j * s->cols + at, (size_t)width * sizeof *g);
    for (int64_t c = s->cut.first[segment + 1] - 1; c >= s->cut.first[segment]; c--) {
        const struct llm_chunk *q = &s->cut.chunks[c];
        struct llm_wkv4_back b = {.run = run_of(w, q, at, s->kept + c * STATES * s->cols + at, s->cols),
                                  .dy = w->y->grad + q->first * w->y->grad_stride + at, .ld_dy = (size_t)w->y->grad_stride, .g = g,
                                  .dk = w->dk + q->first * s->cols + at, .dv = w->dv + q->first * s->cols + at, .ld_dk = (size_t)s->cols,
                                  .ld_dv = (size_t)s->cols, .dw = sums, .du = sums + BLOCK};
        llm_k.wkv.backward4(&b);
        if (c > s->cut.first[segment] && s->cut.chunks[c - 1].part == q->part) continue;
        for (int j = 0; j < 2; j++) memcpy(w->partial + (q->part * 2 + j) * s->cols + at, sums + j * BLOCK, (size_t)width * sizeof *sums);
        memset(sums, 0, sizeof sums);
    }
    for (int j = 0; j < GRADS && before; j++) memcpy(before + j * s->cols + at, g + j * width, (size_t)width * sizeof *g);
}

static void add_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    size_t cols = (size_t)w->s->cols;
    (void)thread;
    for (int64_t t = from; t < to; t++) {
        float *gk = w->gk.p ? w->gk.p + t * w->gk.stride : NULL, *gv = w->gv.p ? w->gv.p + t * w->gv.stride : NULL;
        if (gk) llm_k.elementwise.add(gk, gk, w->dk + t * w->s->cols, cols);
        if (gv) llm_k.elementwise.add(gv, gv, w->dv + t * w->s->cols, cols);
    }
}

/* Adds the parts in order, which is the canonical order. The gradient of the decay is that of w times w. */
static void add_params(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    const struct wkv *s = w->s;
    (void)thread;
    for (int64_t part = 0; part < s->cut.n_parts; part++) {
        const size_t of_row = (size_t)llm_folds_part(&w->folds, s->cut.part_first[part]);
        const float *p = w->partial + part * 2 * s->cols;
        float *d_decay = w->d_decay ? w->d_decay + of_row * w->decay_stride : NULL, *du = w->du ? w->du + of_row * w->u_stride : NULL;
        for (int64_t i = from; i < to; i++) {
            if (d_decay) d_decay[i] += p[i] * s->w[i];
            if (du) du[i] += p[s->cols + i];
        }
    }
}

static void wkv4_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("RWKV 4 recurrence backward", 6 * llm_tensor_bytes(n->out));
    const struct wkv *s = &((const struct wkv4_args *)n->args)->s;
    struct work w = {.s = s, .k = n->in[0], .v = n->in[1], .y = n->out, .d_decay = n->param[0]->grad, .du = n->param[1]->grad,
                     .decay_stride = llm_grad_stride(n->param[0]), .u_stride = llm_grad_stride(n->param[1]),
                     .folds = llm_folds_of(c, n->out->rows)};
    if (!llm_grad_open_zeroed(c, n->in[0], &w.gk)) w.gk.p = NULL;
    if (!llm_grad_open_zeroed(c, n->in[1], &w.gv)) w.gv.p = NULL;
    w.dk = llm_op_alloc(c, n->out->rows * s->cols, sizeof *w.dk);
    w.dv = llm_op_alloc(c, n->out->rows * s->cols, sizeof *w.dv);
    w.partial = llm_op_alloc(c, s->cut.n_parts * 2 * s->cols, sizeof *w.partial);
    if (llm_ctx_failed(c) || !llm_sequence_receive_gradients(c, &w.states, n->out->rows, GRADS * s->cols)) return;
    llm_parallel((size_t)(s->cut.n_segments * s->n_blocks), backward_piece, &w);
    if (!llm_sequence_send_gradients(c, &w.states)) return;
    llm_for_rows(n->out->rows, s->cols, add_rows, &w);
    llm_for_columns(s->cols, add_params, &w);
}

/* ---- gradient check ---- */

enum { TOKENS = 76, CHANNELS = 7 };
/* Of a text before: as after one token of key 1, and as before any. */
static const float check_state[STATES * CHANNELS] = {.5f, -1, 2, .25f, [7] = 1, 1, 1, 2, [14] = 1, 1, 1, -1};
static const struct llm_segment check_segments[] = {{.first = 0, .n = 36}, {.first = 36, .n = 2}, {.first = 38, .n = 38, .from = check_state}};

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    return llm_wkv4(c, in[0], llm_columns(c, in[1], 2, CHANNELS), p[0], p[1], check_segments, 3);
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    for (int s = 0; s < 3; s++) {
        const struct llm_segment *q = &check_segments[s];
        for (int i = 0; i < CHANNELS; i++) {
            double top = q->from ? (double)q->from[i] * exp((double)q->from[14 + i]) : 0;
            double bottom = q->from ? (double)q->from[7 + i] * exp((double)q->from[14 + i]) : 0;
            for (int64_t t = q->first; t < q->first + q->n; t++) {
                double k = in[0][t * CHANNELS + i], v = in[1][t * g->in[1].cols + 2 + i], here = exp(k + p[1][i]), keep = exp(-exp(p[0][i]));
                y[t * CHANNELS + i] = (top + here * v) / (bottom + here);
                top = keep * top + exp(k) * v;
                bottom = keep * bottom + exp(k);
            }
        }
    }
}

const struct llm_gradcheck llm_gradcheck_wkv4[] = {
    {.name = "RWKV 4", .in = {{TOKENS, CHANNELS}, {TOKENS, CHANNELS + 3}}, .param = {{1, CHANNELS}, {1, CHANNELS}}, .out = {TOKENS, CHANNELS},
     .n_rows = 2, .run = check_run, .formula = check_formula},
    {0}};
