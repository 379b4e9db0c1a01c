/* RWKV's token shift: d[t] = x[t - 1] - x[t], and mixtures of a token with the one before it, y = x + d ⊙ share. */
#include <string.h>
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/sequence.h"
#include "tensor/tape.h"

enum { LATER = -2 };
struct shift_args { const int64_t *after; };
struct work {
    const struct llm_tensor *x, *d;
    const float *const *before;  /* [tokens]: the row that is subtracted from */
    const int64_t *after;        /* [tokens]: the number of the row that follows in the segment; -1: none; LATER: it is a later rank's */
    const float *later;          /* [rows, cols], where ranks divide rows: the gradient of the first token of each row of the rank after */
    int64_t row_len;
    struct llm_grad g;
};

static void shift_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    (void)thread;
    for (int64_t t = from; t < to; t++) {
        float *d = w->d->data + t * w->d->stride;
        const float *x = w->x->data + t * w->x->stride, *before = w->before[t];
        for (int64_t i = 0; i < w->d->cols; i++) d[i] = before[i] - x[i];
    }
}

static void shift_back_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    (void)thread;
    for (int64_t t = from; t < to; t++) {
        float *dx = w->g.p + t * w->g.stride;
        const float *here = w->d->grad + t * w->d->grad_stride;
        const float *next = w->after[t] >= 0 ? w->d->grad + w->after[t] * w->d->grad_stride : NULL;
        if (w->after[t] == LATER) next = w->later + t / w->row_len * w->d->cols;
        for (int64_t i = 0; i < w->d->cols; i++) dx[i] += (next ? next[i] : 0) - here[i];
    }
}

/* Where ranks divide rows: the gradients of the first tokens of the rank after. False after a failure. */
static bool receive_gradients(struct llm_ctx *c, struct work *w)
{
    const int64_t rows = w->d->rows / w->row_len, all = rows * w->d->cols;
    float *in = llm_op_alloc(c, 2 * all, sizeof *in), *out = in + all;
    if (!in) return false;
    for (int64_t r = 0; r < rows; r++) {
        memcpy(out + r * w->d->cols, w->d->grad + r * w->row_len * w->d->grad_stride, (size_t)w->d->cols * sizeof *out);
    }
    w->later = in;
    return llm_sequence_shift(c, false, out, in, all);
}

static void shift_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("token shift backward", 3 * llm_tensor_bytes(n->out));
    struct work w = {.d = n->out, .after = ((const struct shift_args *)n->args)->after, .row_len = llm_row_len(c, n->out->rows)};
    if (llm_sequence_is_divided(c) && !receive_gradients(c, &w)) return;
    if (llm_grad_open_zeroed(c, n->in[0], &w.g)) llm_for_rows(n->out->rows, n->out->cols, shift_back_rows, &w);
}

struct llm_tensor *llm_token_shift(struct llm_ctx *c, struct llm_tensor *x, const struct llm_segment *segments, int64_t n_segments)
{
    LLM_PROFILE("token shift", 2 * llm_tensor_bytes(x));
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_node n = {.backward = shift_backward, .mark = llm_arena_mark(&c->acts), .in = {x}};
    const float **before = llm_op_alloc(c, x->rows, sizeof *before);
    int64_t *after = llm_op_alloc(c, x->rows, sizeof *after);
    float *zeros = llm_op_alloc(c, x->cols, sizeof *zeros);
    n.out = llm_tensor_create(c, x->rows, x->cols);
    if (llm_ctx_failed(c)) return &c->nothing;
    memset(zeros, 0, (size_t)x->cols * sizeof *zeros);
    struct llm_segment *own = llm_op_alloc(c, n_segments, sizeof *own);
    if (!own) return &c->nothing;
    memcpy(own, segments, (size_t)n_segments * sizeof *own);
    if (llm_sequence_is_divided(c) && !llm_sequence_inputs(c, own, n_segments, x, 1)) return &c->nothing;
    for (int64_t s = 0; s < n_segments; s++) {
        const struct llm_segment *g = &own[s];
        for (int64_t t = g->first; t < g->first + g->n; t++) {
            before[t] = t > g->first ? x->data + (t - 1) * x->stride : g->from ? g->from : zeros;
            after[t] = t + 1 < g->first + g->n ? t + 1 : g->follows > 0 ? LATER : -1;
        }
    }
    llm_for_rows(x->rows, x->cols, shift_rows, &(struct work){.x = x, .d = n.out, .before = before});
    for (int64_t s = 0; s < n_segments; s++) {
        const struct llm_segment *g = &segments[s];
        if (g->to) memcpy(g->to, x->data + (g->first + g->n - 1) * x->stride, (size_t)x->cols * sizeof(float));
    }
    return llm_record(c, &n, &(struct shift_args){.after = after}, sizeof(struct shift_args));
}

/* ---- y = x + d ⊙ share ---- */

struct mix_args { const float *share; bool keeps; };
struct mix_work {
    const struct llm_tensor *x, *d, *y;
    const float *share;
    struct llm_grad g;           /* of d */
    float *d_share, sign;
    size_t stride;               /* from the share's gradient by one part of the rows to the next (tensor/sequence.h) */
    struct llm_folds folds;
};

static void mix_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct mix_work *w = arg;
    (void)thread;
    for (int64_t t = from; t < to; t++) {
        llm_k.wkv.mix(w->y->data + t * w->y->stride, w->x->data + t * w->x->stride, w->d->data + t * w->d->stride, w->share, (size_t)w->y->cols);
    }
}

static void mix_back_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct mix_work *w = arg;
    (void)thread;
    for (int64_t t = from; t < to; t++) {
        float *d = w->g.p + t * w->g.stride;
        llm_k.wkv.mix(d, d, w->y->grad + t * w->y->grad_stride, w->share, (size_t)w->y->cols);
    }
}

/* Sums dy ⊙ d over tokens for columns [from, to), in the canonical order. */
static void mix_back_columns(void *arg, int64_t from, int64_t to, int thread)
{
    const struct mix_work *w = arg;
    float sum[64];
    (void)thread;
    for (int64_t t = 0, end; t < w->y->rows; t = end) {
        end = llm_fold_end(w->y->rows, w->folds.row_len, t);
        memset(sum, 0, (size_t)(to - from) * sizeof *sum);
        for (int64_t i = t; i < end; i++) {
            llm_k.wkv.mix_back(sum, w->y->grad + i * w->y->grad_stride + from, w->d->data + i * w->d->stride + from, (size_t)(to - from));
        }
        llm_k.elementwise.axpy(w->d_share + (size_t)llm_folds_part(&w->folds, t) * w->stride + from, w->sign, sum, (size_t)(to - from));
    }
}

static void mix_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("token mix backward", 4 * llm_tensor_bytes(n->out));
    const struct mix_args *a = n->args;
    struct mix_work w = {.d = n->in[1], .y = n->out, .share = a->share, .d_share = n->param[0]->grad, .sign = a->keeps ? -1 : 1,
                         .stride = llm_grad_stride(n->param[0]), .folds = llm_folds_of(c, n->out->rows)};
    if (llm_grad_open_zeroed(c, n->in[1], &w.g)) llm_for_rows(w.y->rows, w.y->cols, mix_back_rows, &w);
    if (w.d_share) llm_for_columns(w.y->cols, mix_back_columns, &w);
    llm_grad_pass(c, n->in[0], n->out);
}

struct llm_tensor *llm_token_mix(struct llm_ctx *c, struct llm_tensor *x, struct llm_tensor *d, struct llm_param *share, bool keeps)
{
    LLM_PROFILE("token mix", 3 * llm_tensor_bytes(x));
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_node n = {.backward = mix_backward, .mark = llm_arena_mark(&c->acts), .in = {x, d}, .param = {share}};
    n.out = llm_tensor_create(c, x->rows, x->cols);
    float *shares = llm_op_alloc(c, x->cols, sizeof *shares);
    const float *given = llm_op_vector(c, share, x->cols);
    if (llm_ctx_failed(c)) return &c->nothing;
    for (int64_t i = 0; i < x->cols; i++) shares[i] = keeps ? 1 - given[i] : given[i];
    struct mix_work w = {.x = x, .d = d, .y = n.out, .share = shares};
    llm_for_rows(x->rows, x->cols, mix_rows, &w);
    return llm_record(c, &n, &(struct mix_args){shares, keeps}, sizeof(struct mix_args));
}

/* ---- gradient check ---- */

enum { CHANNELS = 19 };
static const float check_state[CHANNELS] = {.5f, -1, 2, [7] = .75f, [18] = -1.5f};
static const struct llm_segment check_segments[] = {{.first = 0, .n = 2}, {.first = 2, .n = 5, .from = check_state}, {.first = 7, .n = 7}};

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    struct llm_tensor *x = llm_columns(c, in[0], 3, CHANNELS), *d = llm_token_shift(c, x, check_segments, 3);
    return llm_add(c, llm_token_mix(c, x, d, p[0], true), llm_token_mix(c, x, d, p[1], false));
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    for (int s = 0; s < 3; s++) {
        const struct llm_segment *q = &check_segments[s];
        for (int64_t t = q->first; t < q->first + q->n; t++) {
            for (int i = 0; i < CHANNELS; i++) {
                const double *x = in[0] + t * g->in[0].cols + 3 + i;
                double before = t > q->first ? x[-g->in[0].cols] : q->from ? (double)q->from[i] : 0;
                y[t * CHANNELS + i] = x[0] * p[0][i] + before * (1 - p[0][i]) + x[0] + (before - x[0]) * p[1][i];
            }
        }
    }
}

const struct llm_gradcheck llm_gradcheck_token_shift[] = {
    {.name = "token shift", .in = {{14, 24}}, .param = {{1, CHANNELS}, {1, CHANNELS}}, .out = {14, CHANNELS}, .n_rows = 2, .run = check_run,
     .formula = check_formula},
    {0}};
