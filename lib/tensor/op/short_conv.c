/* Mamba's causal depthwise convolution over the last k tokens: y[t] = silu(b + Σ_j w[j]·x[t - k + 1 + j]), or the sum without silu. */
#include <math.h>
#include <string.h>
#include "cpu/kernels.h"
#include "cpu/pool.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/sequence.h"
#include "tensor/tape.h"

/* Shared by forward and backward pass; on `acts`. */
struct conv {
    int64_t k, cols, n_segments;
    bool silu;
    struct llm_segment *segments;
    int32_t *segment_of;         /* [tokens] */
    const float *w, *bias;       /* transposed weights [k, cols]; [cols] or NULL */
    float *zeros;                /* [cols] */
};
struct conv_args { struct conv v; };
struct work {
    const struct conv *v;
    const struct llm_tensor *x, *y;
    struct llm_grad g;           /* of x; p NULL: x takes none */
    float *parts;                /* gradients of weights and bias, for each block of the canonical order: [n_parts, k + 1, cols] */
    int64_t n_parts;
    struct llm_folds folds;
    float *dw, *d_bias;          /* NULL: frozen */
    size_t w_stride, bias_stride; /* from the gradient by one part of the rows to the next (tensor/sequence.h) */
    float *long_x, *long_dy;     /* where ranks divide rows: x and dy with the k - 1 tokens that follow each row; else NULL */
    int64_t own;                 /* tokens of a row */
};
enum { BLOCK = 64 }; /* channels per work item */

/* Sets taps[k] to the inputs that token t sees, oldest first, from column `at` on. */
static void taps_of(const struct work *w, int64_t t, int64_t at, const float **taps)
{
    const struct conv *v = w->v;
    const struct llm_segment *s = &v->segments[v->segment_of[t]];
    for (int64_t j = 0; j < v->k; j++) {
        int64_t from = t - v->k + 1 + j;
        if (from >= s->first) taps[j] = w->x->data + from * w->x->stride + at;
        else taps[j] = (s->from ? s->from + (t - s->first + j) * v->cols : v->zeros) + at;
    }
}

static void forward_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    const struct conv *v = w->v;
    const float *taps[LLM_CONV_TAPS];
    (void)thread;
    for (int64_t t = from; t < to; t++) {
        taps_of(w, t, 0, taps);
        llm_k.scan.conv(w->y->data + t * w->y->stride, taps, v->w, (size_t)v->cols, v->bias, (size_t)v->k, (size_t)v->cols,
                        v->silu);
    }
}

/* Writes the last k - 1 inputs of each segment to llm_segment.to, which may be `from`: rows are only moved to lower addresses. */
static void keep_inputs(const struct work *w)
{
    const struct conv *v = w->v;
    for (int64_t i = 0; i < v->n_segments; i++) {
        const struct llm_segment *s = &v->segments[i];
        for (int64_t j = 0; s->to && j < v->k - 1; j++) {
            int64_t at = s->n + j - (v->k - 1);
            const float *row = at >= 0 ? w->x->data + (s->first + at) * w->x->stride : s->from ? s->from + (s->n + j) * v->cols : v->zeros;
            memmove(s->to + j * v->cols, row, (size_t)v->cols * sizeof *row);
        }
    }
}

static bool begin(struct llm_ctx *c, struct conv *v, const struct llm_param *w, const struct llm_segment *segments, int64_t tokens, bool recording)
{
    float *transposed = llm_op_alloc(c, v->k * v->cols, sizeof *transposed);
    v->segments = llm_op_alloc(c, v->n_segments, sizeof *v->segments);
    v->segment_of = llm_op_alloc(c, tokens, sizeof *v->segment_of);
    v->zeros = llm_op_alloc(c, v->cols, sizeof *v->zeros);
    if (llm_ctx_failed(c)) return false;
    memset(v->zeros, 0, (size_t)v->cols * sizeof *v->zeros);
    memcpy(v->segments, segments, (size_t)v->n_segments * sizeof *segments);
    for (int64_t i = 0; i < v->n_segments; i++) {
        struct llm_segment *s = &v->segments[i];
        for (int64_t t = s->first; t < s->first + s->n; t++) v->segment_of[t] = (int32_t)i;
        if (!recording || !s->from) continue;
        float *copy = llm_op_alloc(c, (v->k - 1) * v->cols, sizeof *copy); /* the caller may overwrite the states before the backward pass */
        if (!copy) return false;
        memcpy(copy, s->from, (size_t)((v->k - 1) * v->cols) * sizeof *copy);
        s->from = copy;
    }
    size_t mark = llm_arena_mark(&c->acts);
    float *rows = llm_op_alloc(c, v->k * v->cols, sizeof *rows);
    if (!rows) return false;
    llm_weight_decode(&w->weight, 0, v->k * v->cols, rows);
    for (int64_t i = 0; i < v->cols; i++) {
        for (int64_t j = 0; j < v->k; j++) transposed[j * v->cols + i] = rows[i * v->k + j];
    }
    llm_arena_pop(&c->acts, mark);
    v->w = transposed;
    return true;
}

static void conv_backward(struct llm_ctx *c, struct llm_node *n);

struct llm_tensor *llm_short_conv(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *w, struct llm_param *b, bool silu,
                                  const struct llm_segment *segments, int64_t n_segments)
{
    LLM_PROFILE("short convolution", 2 * llm_tensor_bytes(x));
    LLM_PROFILE_WORK(LLM_PROFILE_F32, 2 * (double)(x->rows * x->cols * w->weight.k), 0);
    if (llm_ctx_failed(c)) return &c->nothing;
    if (x->cols != w->weight.n || w->weight.k < 1 || w->weight.k > LLM_CONV_TAPS || llm_dtypes[w->weight.dtype].is_quantised) {
        return llm_op_fail(c, LLM_EX_FAILURE, "'%s': expected [%lld channels, 1 to %d taps] in floating point, found [%lld, %lld]", w->name,
                           (long long)x->cols, LLM_CONV_TAPS, (long long)w->weight.n, (long long)w->weight.k);
    }
    struct llm_node n = {.backward = conv_backward, .mark = llm_arena_mark(&c->acts), .in = {x}, .param = {w, b}};
    struct conv v = {.k = w->weight.k, .cols = x->cols, .n_segments = n_segments, .silu = silu};
    n.out = llm_tensor_create(c, x->rows, x->cols);
    v.bias = b ? llm_op_vector(c, b, x->cols) : NULL;
    if (llm_ctx_failed(c) || !begin(c, &v, w, segments, x->rows, llm_tape_wants(c, &n))) return &c->nothing;
    if (llm_sequence_is_divided(c) && v.k > 1 && !llm_sequence_inputs(c, v.segments, n_segments, x, v.k - 1)) return &c->nothing;
    struct work work = {.v = &v, .x = x, .y = n.out};
    llm_for_rows(x->rows, x->cols, forward_rows, &work);
    keep_inputs(&work);
    return llm_record(c, &n, &(struct conv_args){v}, sizeof(struct conv_args));
}

/* Rows of x [rows, cols] with the k - 1 that follow each row of the batch, which are in `next`. */
static void lengthen(const struct work *w, const float *x, int64_t stride, const float *next, float *to)
{
    const int64_t cols = w->v->cols, more = w->v->k - 1;
    for (int64_t row = 0; row < w->x->rows / w->own; row++) {
        for (int64_t t = 0; t < w->own; t++, to += cols) memcpy(to, x + (row * w->own + t) * stride, (size_t)cols * sizeof *to);
        memcpy(to, next + row * more * cols, (size_t)(more * cols) * sizeof *to);
        to += more * cols;
    }
}

/* Where ranks divide rows: the first k - 1 inputs of the rank after, and the gradients of its outputs. False after a failure. */
static bool receive_gradients(struct llm_ctx *c, struct work *w)
{
    const struct conv *v = w->v;
    const int64_t more = v->k - 1, rows = w->x->rows / w->own, all = rows * more * v->cols, floats = rows * (w->own + more) * v->cols;
    float *in = llm_op_alloc(c, 4 * all, sizeof *in), *out = in + 2 * all;
    w->long_x = llm_op_alloc(c, floats, sizeof *in);
    w->long_dy = llm_op_alloc(c, floats, sizeof *in);
    if (llm_ctx_failed(c)) return false;
    for (int64_t i = 0; i < rows * more; i++) {
        const int64_t t = i / more * w->own + i % more;
        memcpy(out + i * v->cols, w->x->data + t * w->x->stride, (size_t)v->cols * sizeof *out);
        memcpy(out + all + i * v->cols, w->y->grad + t * w->y->grad_stride, (size_t)v->cols * sizeof *out);
    }
    if (!llm_sequence_shift(c, false, out, in, 2 * all)) return false;
    lengthen(w, w->x->data, w->x->stride, in, w->long_x);
    lengthen(w, w->y->grad, w->y->grad_stride, in + all, w->long_dy);
    return true;
}

/* The backward pass of tokens [from, to), which lie in one block of the canonical order, for channels from `at` on. */
static void back_part(const struct work *w, int64_t from, int64_t to, int64_t at, int64_t channels, float *d_w)
{
    const struct conv *v = w->v;
    const float *taps[LLM_CONV_TAPS];
    for (int64_t end; from < to; from = end) {
        const struct llm_segment *s = &v->segments[v->segment_of[from]];
        int64_t last = s->first + s->n, behind;
        end = last < to ? last : to;
        behind = last + s->follows - end < v->k - 1 ? last + s->follows - end : v->k - 1;
        taps_of(w, from, at, taps);
        const float *x = w->x->data + from * w->x->stride, *dy = w->y->grad + from * w->y->grad_stride;
        int64_t ldx = w->x->stride, ld_dy = w->y->grad_stride;
        if (w->long_x) {
            const int64_t place = (from + from / w->own * (v->k - 1)) * v->cols;
            x = w->long_x + place;
            dy = w->long_dy + place;
            ldx = ld_dy = v->cols;
        }
        struct llm_conv_back b = {.tokens = (size_t)(end - from), .behind = (size_t)behind, .channels = (size_t)channels, .k = (size_t)v->k,
                                  .before = taps, .x = x + at, .ldx = (size_t)ldx, .dy = dy + at, .ld_dy = (size_t)ld_dy, .w = v->w + at,
                                  .ldw = (size_t)v->cols, .bias = v->bias ? v->bias + at : NULL,
                                  .dx = w->g.p ? w->g.p + from * w->g.stride + at : NULL, .ld_dx = (size_t)w->g.stride, .add = w->g.add,
                                  .d_w = d_w, .ld_dw = (size_t)v->cols, .silu = v->silu};
        llm_k.scan.conv_back(&b);
    }
}

static void backward_piece(void *arg, size_t i, int thread)
{
    const struct work *w = arg;
    const struct conv *v = w->v;
    int64_t blocks = (v->cols + BLOCK - 1) / BLOCK, part = (int64_t)i / blocks, at = (int64_t)i % blocks * BLOCK, from = 0;
    int64_t channels = v->cols - at < BLOCK ? v->cols - at : BLOCK;
    float *d_w = w->parts + part * (v->k + 1) * v->cols + at;
    (void)thread;
    for (int64_t p = 0; p < part; p++) from = llm_fold_end(w->x->rows, w->folds.row_len, from);
    for (int64_t j = 0; j <= v->k; j++) memset(d_w + j * v->cols, 0, (size_t)channels * sizeof *d_w);
    back_part(w, from, llm_fold_end(w->x->rows, w->folds.row_len, from), at, channels, d_w);
}

/* Adds the parts in order, which is the canonical order. */
static void add_params(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    const struct conv *v = w->v;
    (void)thread;
    for (int64_t part = 0, at = 0; part < w->n_parts; part++, at = llm_fold_end(w->x->rows, w->folds.row_len, at)) {
        const float *p = w->parts + part * (v->k + 1) * v->cols;
        const size_t of_row = (size_t)llm_folds_part(&w->folds, at);
        float *dw = w->dw ? w->dw + of_row * w->w_stride : NULL, *d_bias = w->d_bias ? w->d_bias + of_row * w->bias_stride : NULL;
        for (int64_t i = from; i < to; i++) {
            for (int64_t j = 0; dw && j < v->k; j++) dw[i * v->k + j] += p[j * v->cols + i];
            if (d_bias) d_bias[i] += p[v->k * v->cols + i];
        }
    }
}

static void conv_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("short convolution backward", 3 * llm_tensor_bytes(n->out));
    LLM_PROFILE_WORK(LLM_PROFILE_F32, 4 * (double)(n->out->rows * n->out->cols * n->param[0]->weight.k), 0);
    const struct conv *v = &((const struct conv_args *)n->args)->v;
    struct work w = {.v = v, .x = n->in[0], .y = n->out, .dw = n->param[0]->grad, .d_bias = n->param[1] ? n->param[1]->grad : NULL,
                     .folds = llm_folds_of(c, n->out->rows), .w_stride = llm_grad_stride(n->param[0]),
                     .bias_stride = n->param[1] ? llm_grad_stride(n->param[1]) : 0, .own = llm_row_len(c, n->out->rows)};
    for (int64_t at = 0; at < n->out->rows; at = llm_fold_end(n->out->rows, w.folds.row_len, at)) w.n_parts++;
    if (llm_sequence_is_divided(c) && v->k > 1 && !receive_gradients(c, &w)) return;
    w.parts = llm_op_alloc(c, w.n_parts * (v->k + 1) * v->cols, sizeof *w.parts);
    if (!llm_grad_open(c, n->in[0], &w.g)) w.g.p = NULL;
    if (llm_ctx_failed(c)) return;
    llm_parallel((size_t)(w.n_parts * ((v->cols + BLOCK - 1) / BLOCK)), backward_piece, &w);
    llm_for_columns(v->cols, add_params, &w);
}

/* ---- gradient check ---- */

enum { CHANNELS = 19, TAPS = 4 };
static const float check_state[(TAPS - 1) * CHANNELS] = {.5f, -1, 2, [20] = .75f, [40] = -1.5f, [56] = 1};
static const struct llm_segment check_segments[] = {{.first = 0, .n = 2}, {.first = 2, .n = 5, .from = check_state}, {.first = 7, .n = 7}};

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    return llm_short_conv(c, llm_columns(c, in[0], 3, CHANNELS), p[0], p[1], true, check_segments, 3);
}

static struct llm_tensor *check_sum(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    return llm_short_conv(c, llm_columns(c, in[0], 3, CHANNELS), p[0], p[1], false, check_segments, 3);
}

static void formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, bool silu, double *y)
{
    for (int s = 0; s < 3; s++) {
        const struct llm_segment *q = &check_segments[s];
        for (int64_t t = q->first; t < q->first + q->n; t++) {
            for (int i = 0; i < CHANNELS; i++) {
                double sum = p[1] ? p[1][i] : 0;
                for (int64_t j = 0; j < TAPS; j++) {
                    int64_t from = t - TAPS + 1 + j, back = t - q->first + j;
                    if (from >= q->first) sum += p[0][i * TAPS + j] * in[0][from * g->in[0].cols + 3 + i];
                    else if (q->from) sum += p[0][i * TAPS + j] * (double)q->from[back * CHANNELS + i];
                }
                y[t * CHANNELS + i] = silu ? sum / (1 + exp(-sum)) : sum;
            }
        }
    }
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    formula(g, in, p, true, y);
}

static void check_sum_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    formula(g, in, p, false, y);
}

const struct llm_gradcheck llm_gradcheck_short_conv[] = {
    {.name = "short convolution", .in = {{14, 24}}, .param = {{CHANNELS, TAPS}, {1, CHANNELS}}, .out = {14, CHANNELS}, .n_rows = 2, .run = check_run,
     .formula = check_formula},
    {.name = "short convolution without bias", .in = {{14, 24}}, .param = {{CHANNELS, TAPS}}, .out = {14, CHANNELS}, .run = check_run,
     .formula = check_formula},
    {.name = "short convolution without activation", .in = {{14, 24}}, .param = {{CHANNELS, TAPS}, {1, CHANNELS}}, .out = {14, CHANNELS},
     .n_rows = 2, .run = check_sum, .formula = check_sum_formula},
    {0}};
