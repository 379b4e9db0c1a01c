/* Hyena's long convolution: y = filter * u + skip ⊙ u, u = x ⊙ gate, by transforms in double. Each piece of work is LLM_FFT_CHANNELS channels of all
 * segments, in order, so sums do not depend on threads. */
#include <stdatomic.h>
#include <string.h>
#include "cpu/dtype.h"
#include "cpu/half.h"
#include "cpu/kernels.h"
#include "cpu/pool.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/tape.h"

enum { WIDTH = LLM_FFT_CHANNELS };
struct conv_args {
    struct llm_long_conv o;
    const float *skip;
    bool rounds;                 /* u is rounded to BF16, as a cache of that type keeps it */
};
struct work {
    struct conv_args a;
    const struct llm_tensor *x, *gate, *filter, *y;
    struct llm_grad gx, gate_grad, filter_grad; /* p NULL: it takes none */
    float *d_skip;
    int64_t row_len;
    size_t longest;              /* of the transforms */
    atomic_bool no_memory;
};
/* One piece's memory and channels. */
struct group {
    int64_t at, n;               /* its channels */
    double *spectra;             /* of the filter: the one of length m lies m numbers behind the beginning */
    double *y, *u;               /* [longest] series */
    uint64_t have;               /* which lengths there are spectra of */
};

/* The length of transforms of n tokens: enough for the whole of a convolution, which is then not cyclic. */
static size_t length_of(int64_t n)
{
    size_t m = 2;
    while (m < 2 * (size_t)n) m *= 2;
    return m;
}

/* Series of `rows` rows of x, and zeros up to m. */
static void take(double *out, const float *x, int64_t ldx, int64_t rows, int64_t n, size_t m)
{
    if (n < WIDTH) memset(out, 0, (size_t)rows * WIDTH * sizeof *out);
    for (int64_t t = 0; t < rows; t++, x += ldx) {
        for (int64_t i = 0; i < n; i++) out[t * WIDTH + i] = (double)x[i];
    }
    memset(out + rows * WIDTH, 0, (m - (size_t)rows) * WIDTH * sizeof *out);
}

/* The filter's spectrum of length m. It has m/2 numbers of the filter at most, so that all segments of up to m/2 tokens can use it. */
static const double *filter_spectrum(const struct work *w, struct group *g, size_t m)
{
    double *to = g->spectra + m * WIDTH;
    int64_t rows = w->a.o.length < (int64_t)m / 2 ? w->a.o.length : (int64_t)m / 2;
    if (g->have & m) return to;
    take(to, w->filter->data + g->at, w->filter->stride, rows, g->n, m);
    llm_k.longconv.spectrum(to, m, llm_fft_factors(m));
    g->have |= m;
    return to;
}

/* u of a token. */
static void gated_row(const struct work *w, const struct group *g, int64_t row, float u[WIDTH])
{
    const float *x = w->x->data + row * w->x->stride + g->at, *gate = w->gate->data + row * w->gate->stride + g->at;
    for (int64_t i = 0; i < g->n; i++) u[i] = w->a.rounds ? llm_bf16_decode(llm_bf16_encode(x[i] * gate[i])) : x[i] * gate[i];
}

static void take_input(const struct work *w, const struct group *g, const struct llm_segment *s, double *out, size_t m)
{
    float u[WIDTH] = {0};
    for (int64_t t = 0; t < s->n; t++) {
        gated_row(w, g, s->first + t, u);
        for (int64_t i = 0; i < WIDTH; i++) out[t * WIDTH + i] = (double)u[i];
    }
    memset(out + s->n * WIDTH, 0, (m - (size_t)s->n) * WIDTH * sizeof *out);
}

static void forward_segment(const struct work *w, struct group *g, const struct llm_segment *s)
{
    const size_t m = length_of(s->n);
    const double *filter = filter_spectrum(w, g, m), scale = 1 / (double)m;
    take_input(w, g, s, g->y, m);
    llm_k.longconv.spectrum(g->y, m, llm_fft_factors(m));
    llm_k.longconv.product(g->y, g->y, filter, false, m);
    llm_k.longconv.series(g->y, m, llm_fft_factors(m));
    for (int64_t t = 0; t < s->n; t++) {
        float *y = w->y->data + (s->first + t) * w->y->stride + g->at, u[WIDTH];
        gated_row(w, g, s->first + t, u);
        for (int64_t i = 0; i < g->n; i++) y[i] = (float)(g->y[t * WIDTH + i] * scale + (double)w->a.skip[g->at + i] * (double)u[i]);
    }
}

/* Adds to the gradients of x and gate from that of u: the correlation of dy with the filter, in g->y, and skip ⊙ dy. */
static void back_input(const struct work *w, const struct group *g, const struct llm_segment *s, double scale)
{
    for (int64_t t = 0; t < s->n; t++) {
        int64_t row = s->first + t;
        const float *x = w->x->data + row * w->x->stride + g->at, *gate = w->gate->data + row * w->gate->stride + g->at;
        const float *dy = w->y->grad + row * w->y->grad_stride + g->at;
        float *dx = w->gx.p ? w->gx.p + row * w->gx.stride + g->at : NULL;
        float *dg = w->gate_grad.p ? w->gate_grad.p + row * w->gate_grad.stride + g->at : NULL;
        for (int64_t i = 0; i < g->n; i++) {
            float du = (float)(g->y[t * WIDTH + i] * scale + (double)w->a.skip[g->at + i] * (double)dy[i]);
            if (dx) dx[i] = du * gate[i] + (w->gx.add ? dx[i] : 0);
            if (dg) dg[i] = du * x[i] + (w->gate_grad.add ? dg[i] : 0);
        }
    }
}

static void back_filter(const struct work *w, const struct group *g, const struct llm_segment *s, double scale)
{
    int64_t copies = w->filter->rows / w->a.o.length, copy = copies > 1 ? s->first / w->row_len : 0;
    for (int64_t t = 0; t < s->n; t++) {
        float *to = w->filter_grad.p + (copy * w->a.o.length + t) * w->filter_grad.stride + g->at;
        for (int64_t i = 0; i < g->n; i++) to[i] += (float)(g->u[t * WIDTH + i] * scale);
    }
}

static void backward_segment(const struct work *w, struct group *g, const struct llm_segment *s)
{
    const size_t m = length_of(s->n);
    const double *filter = filter_spectrum(w, g, m), scale = 1 / (double)m;
    const double *const *factors = llm_fft_factors(m);
    take(g->y, w->y->grad + s->first * w->y->grad_stride + g->at, w->y->grad_stride, s->n, g->n, m);
    llm_k.longconv.spectrum(g->y, m, factors);
    if (w->filter_grad.p) {
        take_input(w, g, s, g->u, m);
        llm_k.longconv.spectrum(g->u, m, factors);
        llm_k.longconv.product(g->u, g->y, g->u, true, m);
        llm_k.longconv.series(g->u, m, factors);
        back_filter(w, g, s, scale);
    }
    if (!w->gx.p && !w->gate_grad.p) return;
    llm_k.longconv.product(g->y, g->y, filter, true, m);
    llm_k.longconv.series(g->y, m, factors);
    back_input(w, g, s, scale);
}

/* The gradient of skip, in the canonical order. */
static void back_skip(const struct work *w, const struct group *g)
{
    for (int64_t t = 0, end; t < w->y->rows; t = end) {
        double sum[WIDTH] = {0};
        end = llm_fold_end(w->y->rows, w->row_len, t);
        for (int64_t row = t; row < end; row++) {
            const float *dy = w->y->grad + row * w->y->grad_stride + g->at;
            float u[WIDTH];
            gated_row(w, g, row, u);
            for (int64_t i = 0; i < g->n; i++) sum[i] += (double)dy[i] * (double)u[i];
        }
        for (int64_t i = 0; i < g->n; i++) w->d_skip[g->at + i] += (float)sum[i];
    }
}

/* The channels of piece i, and its memory: `buffers` series besides the spectra. False: memory is short. */
static bool begin(struct work *w, size_t i, int thread, int buffers, struct group *g)
{
    const size_t series = w->longest * WIDTH;
    *g = (struct group){.at = (int64_t)i * WIDTH};
    g->n = w->y->cols - g->at < WIDTH ? w->y->cols - g->at : WIDTH;
    g->spectra = llm_scratch(thread, (size_t)(2 + buffers) * series * sizeof *g->spectra);
    if (!g->spectra) {
        atomic_store(&w->no_memory, true);
        return false;
    }
    g->y = g->spectra + 2 * series;
    g->u = g->y + series;
    return true;
}

static void forward_group(void *arg, size_t i, int thread)
{
    struct work *w = arg;
    struct group g;
    if (!begin(w, i, thread, 1, &g)) return;
    for (int64_t s = 0; s < w->a.o.n_segments; s++) forward_segment(w, &g, &w->a.o.segments[s]);
}

static void backward_group(void *arg, size_t i, int thread)
{
    struct work *w = arg;
    struct group g;
    if (!begin(w, i, thread, 2, &g)) return;
    for (int64_t s = w->gx.p || w->gate_grad.p || w->filter_grad.p ? 0 : w->a.o.n_segments; s < w->a.o.n_segments; s++)
        backward_segment(w, &g, &w->a.o.segments[s]);
    if (w->d_skip) back_skip(w, &g);
}

/* Sets the longest transform, and makes the factors of all. False after a failure. */
static bool prepare(struct llm_ctx *c, struct work *w)
{
    for (int64_t s = 0; s < w->a.o.n_segments; s++) {
        const size_t m = length_of(w->a.o.segments[s].n);
        if (m > w->longest) w->longest = m;
        if (w->a.o.segments[s].n > w->a.o.length) {
            llm_op_fail(c, EX_DATAERR, "a long convolution: expected at most %lld tokens (the filter's length), found %lld",
                        (long long)w->a.o.length, (long long)w->a.o.segments[s].n);
            return false;
        }
    }
    if (llm_fft_factors(w->longest) && llm_fft_factors(w->longest / 2)) return true;
    llm_op_fail(c, EX_UNAVAILABLE, "out of memory in a long convolution");
    return false;
}

static void run(struct llm_ctx *c, struct work *w, void (*piece)(void *arg, size_t i, int thread))
{
    llm_parallel((size_t)((w->y->cols + WIDTH - 1) / WIDTH), piece, w);
    if (atomic_load(&w->no_memory)) llm_op_fail(c, EX_UNAVAILABLE, "out of memory in a long convolution");
}

static void conv_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("long convolution backward", 5 * llm_tensor_bytes(n->out));
    struct work w = {.a = *(const struct conv_args *)n->args, .x = n->in[0], .gate = n->in[1], .filter = n->in[2], .y = n->out,
                     .d_skip = n->param[0]->grad ? n->param[0]->grad + ((const struct conv_args *)n->args)->o.at : NULL,
                     .row_len = llm_row_len(c, n->out->rows)};
    if (!llm_grad_open(c, n->in[0], &w.gx)) w.gx.p = NULL;
    if (!llm_grad_open(c, n->in[1], &w.gate_grad)) w.gate_grad.p = NULL;
    if (!llm_grad_open_zeroed(c, n->in[2], &w.filter_grad)) w.filter_grad.p = NULL;
    if (!llm_ctx_failed(c) && prepare(c, &w)) run(c, &w, backward_group);
}

struct llm_tensor *llm_long_conv(struct llm_ctx *c, struct llm_tensor *x, struct llm_tensor *gate, struct llm_tensor *filter, struct llm_param *skip,
                                 const struct llm_long_conv *o)
{
    LLM_PROFILE("long convolution", 4 * llm_tensor_bytes(x));
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_node n = {.backward = conv_backward, .mark = llm_arena_mark(&c->acts), .in = {x, gate, filter}, .param = {skip}};
    struct work w = {.a.o = *o, .x = x, .gate = gate, .filter = filter};
    struct llm_segment *segments = llm_op_alloc(c, o->n_segments, sizeof *segments);
    w.y = n.out = llm_tensor_create(c, x->rows, x->cols);
    const float *skips = llm_op_vector(c, skip, llm_param_count(skip));
    if (llm_ctx_failed(c) || !prepare(c, &w)) return &c->nothing;
    memcpy(segments, o->segments, (size_t)o->n_segments * sizeof *segments);
    w.a.o.segments = segments;
    w.a.skip = skips + o->at;
    w.a.rounds = c->compute == LLM_COMPUTE_BF16;
    run(c, &w, forward_group);
    return llm_record(c, &n, &w.a, sizeof w.a);
}

/* ---- with a cache ---- */

enum { FEW = 32 }; /* new tokens that take direct sums */
struct cached {
    const struct llm_tensor *x, *gate, *y;
    const float *filter, *skip;  /* skip: of these channels */
    int64_t ld, head;
    const struct llm_kv_seq *seqs;
    int64_t n_seqs;
    float *const *u;             /* [n_seqs]: of all tokens of the sequence, [tokens, cols] */
    atomic_bool no_memory;
};

/* Token t of a sequence in its cache. */
static unsigned char *kept_row(const struct cached *f, const struct llm_kv_seq *s, int64_t t)
{
    const size_t bytes = llm_dtype_bytes(s->view.k_type, (uint64_t)f->x->cols);
    return (unsigned char *)s->view.k[t / LLM_KV_TILE] + (size_t)(f->head * LLM_KV_TILE + t % LLM_KV_TILE) * bytes;
}

/* Stores u of new tokens of sequence i, and reads those of all its tokens. */
static void keep_sequence(void *arg, size_t i, int thread)
{
    const struct cached *f = arg;
    const struct llm_kv_seq *s = &f->seqs[i];
    const struct llm_dtype_row *type = &llm_dtypes[s->view.k_type];
    const int64_t cols = f->x->cols;
    (void)thread;
    for (int64_t t = 0; t < s->pos + s->n; t++) {
        float *u = f->u[i] + t * cols;
        if (t >= s->pos) {
            const float *x = f->x->data + (s->first + t - s->pos) * f->x->stride, *gate = f->gate->data + (s->first + t - s->pos) * f->gate->stride;
            for (int64_t j = 0; j < cols; j++) u[j] = x[j] * gate[j];
            type->encode(u, kept_row(f, s, t), (size_t)cols);
        }
        type->decode(kept_row(f, s, t), u, (size_t)cols);
    }
}

/* Sums of FEW tokens at most. */
static void step_group(const struct cached *f, int64_t seq, int64_t at, int64_t n)
{
    const struct llm_kv_seq *s = &f->seqs[seq];
    double sums[FEW * WIDTH] = {0};
    const struct llm_conv_step step = {.tokens = (size_t)s->n, .past = (size_t)s->pos, .channels = (size_t)n, .u = f->u[seq] + at,
                                       .ldu = (size_t)f->x->cols, .k = f->filter + at, .ldk = (size_t)f->ld, .y = sums};
    llm_k.longconv.step(&step);
    for (int64_t t = 0; t < s->n; t++) {
        for (int64_t i = 0; i < n; i++) {
            double u = (double)f->u[seq][(s->pos + t) * f->x->cols + at + i];
            f->y->data[(s->first + t) * f->y->stride + at + i] = (float)(sums[t * n + i] + (double)f->skip[at + i] * u);
        }
    }
}

static void transform_group(struct cached *f, int64_t seq, int64_t at, int64_t n, int thread)
{
    const struct llm_kv_seq *s = &f->seqs[seq];
    const int64_t all = s->pos + s->n;
    const size_t m = length_of(all);
    const double *const *factors = llm_fft_factors(m);
    double *u = llm_scratch(thread, 2 * m * WIDTH * sizeof *u), *filter = u ? u + m * WIDTH : NULL, scale = 1 / (double)m;
    if (!u || !factors) {
        atomic_store(&f->no_memory, true);
        return;
    }
    take(u, f->u[seq] + at, f->x->cols, all, n, m);
    take(filter, f->filter + at, f->ld, all, n, m);
    llm_k.longconv.spectrum(u, m, factors);
    llm_k.longconv.spectrum(filter, m, factors);
    llm_k.longconv.product(u, u, filter, false, m);
    llm_k.longconv.series(u, m, factors);
    for (int64_t t = s->pos; t < all; t++) {
        float *y = f->y->data + (s->first + t - s->pos) * f->y->stride + at;
        const float *here = f->u[seq] + t * f->x->cols + at;
        for (int64_t i = 0; i < n; i++) y[i] = (float)(u[t * WIDTH + i] * scale + (double)f->skip[at + i] * (double)here[i]);
    }
}

static void cached_group(void *arg, size_t i, int thread)
{
    struct cached *f = arg;
    const int64_t seq = (int64_t)i % f->n_seqs, at = (int64_t)i / f->n_seqs * WIDTH, n = f->x->cols - at < WIDTH ? f->x->cols - at : WIDTH;
    if (f->seqs[seq].n <= FEW) step_group(f, seq, at, n);
    else transform_group(f, seq, at, n, thread);
}

struct llm_tensor *llm_long_conv_cached(struct llm_ctx *c, struct llm_tensor *x, struct llm_tensor *gate, const float *filter, int64_t ld,
                                        struct llm_param *skip, int64_t at, int64_t head, const struct llm_kv_seq *seqs, int64_t n_seqs)
{
    LLM_PROFILE("long convolution over a cache", 0);
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_tensor *y = llm_tensor_create(c, x->rows, x->cols);
    const size_t mark = llm_arena_mark(&c->acts);
    struct cached f = {.x = x, .gate = gate, .y = y, .filter = filter, .ld = ld, .head = head, .seqs = seqs, .n_seqs = n_seqs};
    const float *skips = llm_op_vector(c, skip, llm_param_count(skip));
    float **u = llm_op_alloc(c, n_seqs, sizeof *u);
    for (int64_t s = 0; u && s < n_seqs; s++) u[s] = llm_op_alloc(c, (seqs[s].pos + seqs[s].n) * x->cols, sizeof **u);
    if (llm_ctx_failed(c)) return &c->nothing;
    f.u = u;
    f.skip = skips + at;
    llm_parallel((size_t)n_seqs, keep_sequence, &f);
    llm_parallel((size_t)(n_seqs * ((x->cols + WIDTH - 1) / WIDTH)), cached_group, &f);
    if (atomic_load(&f.no_memory)) return llm_op_fail(c, EX_UNAVAILABLE, "out of memory in a long convolution");
    llm_arena_pop(&c->acts, mark);
    return y;
}

/* ---- gradient check: three rows of a batch, one of two documents, whose lengths are no powers of two ---- */

enum { COLS = 19, ROW = 7, ROWS = 3 };
static const struct llm_segment check_segments[] = {{.first = 0, .n = 7}, {.first = 7, .n = 2}, {.first = 9, .n = 5}, {.first = 14, .n = 7}};

/* With `copies` copies of the filter. */
static struct llm_tensor *check_with(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p, int64_t copies)
{
    static const int32_t rows[ROWS * ROW] = {0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6};
    const struct llm_long_conv o = {.length = ROW, .at = 3, .segments = check_segments, .n_segments = 4};
    struct llm_tensor *filter = copies > 1 ? llm_gather(c, in[1], rows, copies * ROW) : in[1];
    return llm_long_conv(c, llm_columns(c, in[0], 1, COLS), llm_columns(c, in[0], 1 + COLS, COLS), filter, p[0], &o);
}

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p) { return check_with(c, in, p, 1); }
static struct llm_tensor *check_copies(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    return check_with(c, in, p, ROWS);
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    const int64_t ld = g->in[0].cols;
    for (size_t s = 0; s < sizeof check_segments / sizeof *check_segments; s++) {
        for (int64_t t = 0; t < check_segments[s].n; t++) {
            for (int64_t i = 0; i < COLS; i++) {
                double sum = 0;
                for (int64_t j = 0; j <= t; j++) {
                    const double *row = in[0] + (check_segments[s].first + j) * ld;
                    double u = row[1 + i] * row[1 + COLS + i];
                    sum += u * in[1][(t - j) * COLS + i] + (j == t ? p[0][3 + i] * u : 0);
                }
                y[(check_segments[s].first + t) * COLS + i] = sum;
            }
        }
    }
}

const struct llm_gradcheck llm_gradcheck_long_conv[] = {
    {.name = "long convolution", .in = {{ROWS * ROW, 2 * COLS + 1}, {ROW, COLS}}, .param = {{1, COLS + 5}}, .out = {ROWS * ROW, COLS}, .n_rows = ROWS,
     .run = check_run, .formula = check_formula},
    {.name = "long convolution, a filter for each row", .in = {{ROWS * ROW, 2 * COLS + 1}, {ROW, COLS}}, .param = {{1, COLS + 5}},
     .out = {ROWS * ROW, COLS}, .n_rows = ROWS, .run = check_copies, .formula = check_formula},
    {0}};
