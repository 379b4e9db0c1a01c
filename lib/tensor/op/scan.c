/* Selective scans: h[t] = e^(dt·a)·h[t-1] + dt·x·bᵀ, y = h·c + d·x. Time is processed in order; segments and blocks of channels are processed in
 * parallel. The backward pass recomputes the states from those that were kept every few tokens. */
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

enum { BLOCK = 64 }; /* channels per work item, rounded down to whole heads, at least one */

struct block { int64_t from, n, group; }; /* channels [from, from + n): whole heads of one group */

/* Shared by forward and backward pass; on `acts`. */
struct scan {
    struct llm_scan o;
    int64_t tokens, cols, states, each, wide; /* each: channels that share a time step; wide: channels of the widest block */
    int64_t n_blocks;
    struct llm_chunks cut;
    struct block *blocks;        /* blocks of channels */
    float *a, *skip, *bias;      /* [states or 1, cols]; [cols]; [cols] */
    float *kept;                 /* the state before each chunk, for each block [states, channels]; NULL when not recording */
};
struct scan_args { struct scan s; };
struct work {
    const struct scan *s;
    const struct llm_tensor *x, *raw, *b, *c, *y;
    /* backward */
    float *d_bc, *partial;       /* gradients of b and c [n_blocks, tokens, 2·states]; of a and of skip [n_parts, rows, cols] */
    int64_t a_rows;
    float *dx, *d_raw;           /* of x and of raw, [tokens][ldx] and [tokens][ld_raw]; the tensors' own gradients if these have no values yet */
    int64_t ldx, ld_raw;
    struct llm_grad gx, graw, gb, gc;
    float *a_log, *skip;         /* gradients */
    size_t a_stride, skip_stride; /* from that by one part of the rows to the next (tensor/sequence.h) */
    struct llm_folds folds;
    struct llm_state_grads states; /* [states, cols] of each row */
    atomic_bool no_memory;
};

/* Computes the time steps of a chunk for a block of channels, dt [n][wide], and prefetches those `ahead` tokens further. */
static void time_steps(const struct work *w, const struct block *k, const struct llm_chunk *q, int64_t ahead, float *dt)
{
    const struct scan *s = w->s;
    int64_t first = k->from / s->each, n = k->n / s->each;
    for (int64_t t = q->first; t < q->first + q->n; t++, dt += s->wide) {
        const float *raw = w->raw->data + t * w->raw->stride + first;
        for (int64_t i = 0; i < n && t + ahead >= 0 && t + ahead < s->tokens; i += 16) __builtin_prefetch(raw + ahead * w->raw->stride + i, 0, 2);
        llm_k.scan.time_step(dt, raw, s->bias + first, s->o.dt_min, s->o.dt_max, (size_t)n);
        for (int64_t j = n - 1; s->each > 1 && j >= 0; j--) { /* from the end, in place: a head's time step is copied to its channels */
            float v = dt[j];
            for (int64_t p = 0; p < s->each; p++) dt[j * s->each + p] = v;
        }
    }
}

static struct llm_scan_run run_of(const struct work *w, const struct block *k, const struct llm_chunk *q, const float *dt, float *h)
{
    const struct scan *s = w->s;
    return (struct llm_scan_run){
        .tokens = (size_t)q->n, .channels = (size_t)k->n, .states = (size_t)s->states, .one_decay = s->o.by_head,
        .a = s->a + k->from, .lda = (size_t)s->cols, .skip = s->skip + k->from,
        .x = w->x->data + q->first * w->x->stride + k->from, .ldx = (size_t)w->x->stride, .dt = dt, .ldt = (size_t)s->wide,
        .b = w->b->data + q->first * w->b->stride + k->group * s->states, .ldb = (size_t)w->b->stride,
        .c = w->c->data + q->first * w->c->stride + k->group * s->states, .ldc = (size_t)w->c->stride, .h = h, .ldh = (size_t)k->n,
        .y = w->y->data + q->first * w->y->stride + k->from, .ldy = (size_t)w->y->stride};
}

static void forward_piece(void *arg, size_t i, int thread)
{
    struct work *w = arg;
    const struct scan *s = w->s;
    int64_t number = (int64_t)i / s->n_blocks;
    const struct llm_segment *g = &s->cut.segments[number];
    const struct block *k = &s->blocks[(int64_t)i % s->n_blocks];
    float *dt = llm_scratch(thread, (size_t)((LLM_SCAN_CHUNK + s->states) * s->wide) * sizeof *dt), *h = dt + LLM_SCAN_CHUNK * s->wide;
    if (!dt) {
        atomic_store(&w->no_memory, true);
        return;
    }
    for (int64_t n = 0; n < s->states; n++) {
        if (g->from) memcpy(h + n * k->n, g->from + n * s->cols + k->from, (size_t)k->n * sizeof *h);
        else memset(h + n * k->n, 0, (size_t)k->n * sizeof *h);
    }
    for (int64_t c = s->cut.first[number]; c < s->cut.first[number + 1]; c++) {
        if (s->kept) memcpy(s->kept + (c * s->cols + k->from) * s->states, h, (size_t)(s->states * k->n) * sizeof *h);
        time_steps(w, k, &s->cut.chunks[c], LLM_SCAN_CHUNK, dt);
        struct llm_scan_run r = run_of(w, k, &s->cut.chunks[c], dt, h);
        llm_k.scan.forward(&r);
    }
    for (int64_t n = 0; n < s->states && g->to; n++) memcpy(g->to + n * s->cols + k->from, h + n * k->n, (size_t)k->n * sizeof *h);
}

static int64_t cut_channels(const struct scan *s, struct block *out)
{
    int64_t n = 0, of_group = s->cols / s->o.groups;
    for (int64_t g = 0; g < s->o.groups; g++) {
        for (int64_t at = 0; at < of_group; at += s->wide, n++) {
            if (out) out[n] = (struct block){g * of_group + at, of_group - at < s->wide ? of_group - at : s->wide, g};
        }
    }
    return n;
}

/* Cuts the segments into chunks, and expands a, skip and the time step's bias to one value per channel. */
static bool begin(struct llm_ctx *c, struct scan *s, struct llm_param *const *p, bool recording)
{
    int64_t rows = s->o.by_head ? 1 : s->states, params = s->o.by_head ? s->o.heads : s->cols, each = s->each;
    s->a = llm_op_alloc(c, rows * s->cols, sizeof(float));
    s->skip = llm_op_alloc(c, s->cols, sizeof(float));
    s->bias = llm_op_alloc(c, params, sizeof(float));
    if (!llm_chunks_cut(c, &s->cut, s->o.segments, s->o.n_segments, s->tokens, LLM_SCAN_CHUNK)) return false;
    s->n_blocks = cut_channels(s, NULL);
    s->blocks = llm_op_alloc(c, s->n_blocks, sizeof *s->blocks);
    if (recording) s->kept = llm_op_alloc(c, s->cut.n_chunks * s->states * s->cols, sizeof *s->kept);
    size_t mark = llm_arena_mark(&c->acts);
    float *a = llm_op_alloc(c, params * rows, sizeof *a);
    const float *a_log = llm_op_vector(c, p[0], params * rows), *skip = llm_op_vector(c, p[1], params), *bias = llm_op_vector(c, p[2], params);
    if (llm_ctx_failed(c)) return false;
    cut_channels(s, s->blocks);
    llm_k.scan.decay(a, a_log, (size_t)(params * rows));
    for (int64_t i = 0; i < s->cols; i++) {
        for (int64_t n = 0; n < rows; n++) s->a[n * s->cols + i] = a[i / each * rows + n];
        s->skip[i] = skip[i / each];
    }
    memcpy(s->bias, bias, (size_t)params * sizeof *bias);
    llm_arena_pop(&c->acts, mark);
    return true;
}

static const char *wrong_of(const struct llm_tensor *x, const struct llm_tensor *dt, const struct llm_tensor *b, const struct llm_tensor *c,
                            const struct llm_scan *o)
{
    if (o->groups < 1 || x->cols % o->groups) return "groups: expected a divisor of the channels";
    int64_t states = b->cols / o->groups;
    if (b->cols % o->groups || states < 1 || states > LLM_SCAN_STATES || c->cols != b->cols) return "states: expected 1 to 256";
    if (o->by_head ? o->heads < 1 || x->cols % o->heads || o->heads % o->groups || dt->cols != o->heads : dt->cols != x->cols) {
        return "time steps: expected one a channel or a head";
    }
    return x->rows == dt->rows && x->rows == b->rows && x->rows == c->rows ? NULL : "expected inputs of as many tokens";
}

#define FLOPS_A_STATE 7.0 /* decay, input, output */

static void scan_backward(struct llm_ctx *c, struct llm_node *n);

struct llm_tensor *llm_selective_scan(struct llm_ctx *c, struct llm_tensor *x, struct llm_tensor *dt, struct llm_tensor *b, struct llm_tensor *cc,
                                      struct llm_param *a_log, struct llm_param *d, struct llm_param *dt_bias, const struct llm_scan *o)
{
    LLM_PROFILE("selective scan", 2 * llm_tensor_bytes(x) + llm_tensor_bytes(dt) + llm_tensor_bytes(b) + llm_tensor_bytes(cc));
    if (llm_ctx_failed(c)) return &c->nothing;
    const char *wrong = wrong_of(x, dt, b, cc, o);
    if (wrong) return llm_op_fail(c, LLM_EX_FAILURE, "selective scan: %s", wrong);
    struct llm_node n = {.backward = scan_backward, .mark = llm_arena_mark(&c->acts), .in = {x, dt, b, cc}, .param = {a_log, d, dt_bias}};
    struct scan s = {.o = *o, .tokens = x->rows, .cols = x->cols, .states = b->cols / o->groups, .each = x->cols / dt->cols};
    s.wide = s.each < BLOCK ? BLOCK / s.each * s.each : s.each;
    n.out = llm_tensor_create(c, x->rows, x->cols);
    if (llm_ctx_failed(c) || !begin(c, &s, n.param, llm_tape_wants(c, &n))) return &c->nothing;
    const size_t scratch = llm_arena_mark(&c->acts);
    struct llm_sequence_states states;
    if (!llm_sequence_receive_states(c, &states, s.cut.segments, s.cut.n_segments, s.tokens, s.states * s.cols)) return &c->nothing;
    struct work w = {.s = &s, .x = x, .raw = dt, .b = b, .c = cc, .y = n.out};
    LLM_PROFILE_WORK(LLM_PROFILE_F32, FLOPS_A_STATE * (double)(x->rows * x->cols * s.states), 0);
    llm_parallel((size_t)(o->n_segments * s.n_blocks), forward_piece, &w);
    if (atomic_load(&w.no_memory)) return llm_op_fail(c, EX_UNAVAILABLE, "out of memory in a selective scan");
    if (!llm_sequence_send_states(c, &states)) return &c->nothing;
    llm_arena_pop(&c->acts, scratch);
    return llm_record(c, &n, &(struct scan_args){s}, sizeof(struct scan_args));
}

/* ---- backward ---- */

/* Gradients of a chunk's time steps before their softplus (d_raw), from the gradients after it, ddt [n][wide]. ddt is overwritten with its sums over
 * the channels of each head. */
static void time_steps_back(const struct work *w, const struct block *k, const struct llm_chunk *q, float *ddt)
{
    const struct scan *s = w->s;
    int64_t first = k->from / s->each, n = k->n / s->each;
    for (int64_t t = q->first; t < q->first + q->n; t++, ddt += s->wide) {
        for (int64_t j = 0; s->each > 1 && j < n; j++) ddt[j] = llm_k.scan.sum(ddt + j * s->each, (size_t)s->each);
        llm_k.scan.time_step_back(w->d_raw + t * w->ld_raw + first, ddt, w->raw->data + t * w->raw->stride + first, s->bias + first, s->o.dt_min,
                                  s->o.dt_max, (size_t)n);
    }
}

static void backward_piece(void *arg, size_t i, int thread)
{
    struct work *w = arg;
    const struct scan *s = w->s;
    int64_t segment = (int64_t)i / s->n_blocks, number = (int64_t)i % s->n_blocks;
    const struct block *k = &s->blocks[number];
    size_t state = (size_t)(s->states * s->wide), steps = (size_t)(LLM_SCAN_CHUNK * s->wide), wide = (size_t)s->wide;
    float *all = llm_scratch(thread, (LLM_SCAN_SCRATCH + 2 * steps + 2 * state + wide) * sizeof *all);
    float *dt = all + LLM_SCAN_SCRATCH, *ddt = dt + steps, *g = ddt + steps, *da = g + state, *d_skip = da + state;
    if (!all) {
        atomic_store(&w->no_memory, true);
        return;
    }
    memset(g, 0, (2 * state + wide) * sizeof *g);
    const struct llm_segment *of = &s->cut.segments[segment];
    const float *after = llm_state_grad_after(&w->states, of);
    float *before = llm_state_grad_before(&w->states, of);
    for (int64_t n = 0; n < s->states && after; n++) memcpy(g + n * k->n, after + n * s->cols + k->from, (size_t)k->n * sizeof *g);
    for (int64_t c = s->cut.first[segment + 1] - 1; c >= s->cut.first[segment]; c--) {
        const struct llm_chunk *q = &s->cut.chunks[c];
        time_steps(w, k, q, -LLM_SCAN_CHUNK, dt);
        struct llm_scan_back b = {.run = run_of(w, k, q, dt, s->kept + (c * s->cols + k->from) * s->states),
                                  .dy = w->y->grad + q->first * w->y->grad_stride + k->from, .ld_dy = (size_t)w->y->grad_stride, .g = g,
                                  .dx = w->dx + q->first * w->ldx + k->from, .ld_dx = (size_t)w->ldx, .ddt = ddt, .ld_ddt = wide,
                                  .d_bc = w->d_bc + (number * s->tokens + q->first) * 2 * s->states, .da = da, .d_skip = d_skip, .scratch = all};
        llm_k.scan.backward(&b);
        time_steps_back(w, k, q, ddt);
        if (c > s->cut.first[segment] && s->cut.chunks[c - 1].part == q->part) continue;
        float *out = w->partial + q->part * (w->a_rows + 1) * s->cols + k->from;
        for (int64_t n = 0; n < w->a_rows; n++) memcpy(out + n * s->cols, da + n * k->n, (size_t)k->n * sizeof *out);
        memcpy(out + w->a_rows * s->cols, d_skip, (size_t)k->n * sizeof *out);
        memset(da, 0, (state + wide) * sizeof *da);
    }
    for (int64_t n = 0; n < s->states && before; n++) memcpy(before + n * s->cols + k->from, g + n * k->n, (size_t)k->n * sizeof *g);
}

/* Sums the gradients of b and c over the blocks of their group, in order, and adds dx and d_raw to gradients that have values already. */
static void gather_rows(void *arg, int64_t from, int64_t to, int thread)
{
    struct work *w = arg;
    const struct scan *s = w->s;
    int64_t per_group = s->n_blocks / s->o.groups;
    (void)thread;
    for (int64_t t = from; t < to; t++) {
        for (int64_t k = 0; k < s->n_blocks; k++) {
            const float *part = w->d_bc + (k * s->tokens + t) * 2 * s->states;
            for (int what = 0; what < 2; what++) {
                const struct llm_grad *g = what ? &w->gc : &w->gb;
                if (!g->p) continue;
                float *out = g->p + t * g->stride + s->blocks[k].group * s->states;
                if (k % per_group == 0 && !g->add) memcpy(out, part + what * s->states, (size_t)s->states * sizeof *out);
                else llm_k.elementwise.add(out, out, part + what * s->states, (size_t)s->states);
            }
        }
        if (w->graw.add) llm_k.elementwise.add(w->graw.p + t * w->graw.stride, w->graw.p + t * w->graw.stride, w->d_raw + t * w->ld_raw,
                                                   (size_t)w->raw->cols);
        if (w->gx.add) llm_k.elementwise.add(w->gx.p + t * w->gx.stride, w->gx.p + t * w->gx.stride, w->dx + t * w->ldx, (size_t)s->cols);
    }
}

/* Adds the parts in order, which is the canonical order. da_log = da·a. */
static void add_params(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    const struct scan *s = w->s;
    int64_t params = s->o.by_head ? s->o.heads : s->cols, each = s->cols / params;
    (void)thread;
    for (int64_t part = 0; part < s->cut.n_parts; part++) {
        const int64_t of_row = llm_folds_part(&w->folds, s->cut.part_first[part]);
        const float *p = w->partial + part * (w->a_rows + 1) * s->cols;
        float *a_log = w->a_log ? w->a_log + (size_t)of_row * w->a_stride : NULL, *skip = w->skip ? w->skip + (size_t)of_row * w->skip_stride : NULL;
        for (int64_t j = from; j < to; j++) {
            for (int64_t n = 0; a_log && n < w->a_rows; n++) {
                float sum = 0;
                for (int64_t i = j * each; i < (j + 1) * each; i++) sum += p[n * s->cols + i];
                a_log[j * w->a_rows + n] += sum * s->a[n * s->cols + j * each];
            }
            float sum = 0;
            for (int64_t i = j * each; i < (j + 1) * each; i++) sum += p[w->a_rows * s->cols + i];
            if (skip) skip[j] += sum;
        }
    }
}

/* The memory to write x's gradient to: the gradient itself if it has no values yet, else a buffer on `acts`. *ld: distance between rows. */
static float *open_or_apart(struct llm_ctx *c, struct llm_tensor *x, struct llm_grad *g, int64_t *ld)
{
    if (llm_grad_open(c, x, g) && !g->add) {
        *ld = g->stride;
        return g->p;
    }
    *ld = x->cols;
    return llm_op_alloc(c, x->rows * x->cols, sizeof(float));
}

static void scan_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("selective scan backward", 5 * llm_tensor_bytes(n->out));
    const struct scan *s = &((const struct scan_args *)n->args)->s;
    struct work w = {.s = s, .x = n->in[0], .raw = n->in[1], .b = n->in[2], .c = n->in[3], .y = n->out, .a_rows = s->o.by_head ? 1 : s->states,
                     .a_log = n->param[0]->grad, .skip = n->param[1]->grad, .a_stride = llm_grad_stride(n->param[0]),
                     .skip_stride = llm_grad_stride(n->param[1]), .folds = llm_folds_of(c, s->tokens)};
    w.dx = open_or_apart(c, n->in[0], &w.gx, &w.ldx);
    w.d_raw = open_or_apart(c, n->in[1], &w.graw, &w.ld_raw);
    if (!llm_grad_open(c, n->in[2], &w.gb)) w.gb.p = NULL;
    if (!llm_grad_open(c, n->in[3], &w.gc)) w.gc.p = NULL;
    LLM_PROFILE_WORK(LLM_PROFILE_F32, 2 * FLOPS_A_STATE * (double)(n->out->rows * s->cols * s->states), 0);
    w.d_bc = llm_op_alloc(c, s->n_blocks * s->tokens * 2 * s->states, sizeof(float));
    w.partial = llm_op_alloc(c, s->cut.n_parts * (w.a_rows + 1) * s->cols, sizeof(float));
    if (llm_ctx_failed(c) || !llm_sequence_receive_gradients(c, &w.states, s->tokens, s->states * s->cols)) return;
    llm_parallel((size_t)(s->o.n_segments * s->n_blocks), backward_piece, &w);
    if (atomic_load(&w.no_memory)) {
        llm_op_fail(c, EX_UNAVAILABLE, "out of memory in a selective scan");
        return;
    }
    if (!llm_sequence_send_gradients(c, &w.states)) return;
    llm_for_rows(s->tokens, s->cols, gather_rows, &w);
    llm_for_columns(s->o.by_head ? s->o.heads : s->cols, add_params, &w);
    llm_bias_grad(n->param[2], w.d_raw, w.ld_raw, s->tokens, &w.folds, w.raw->cols);
}

/* ---- gradient check ---- */

enum { TOKENS = 76, CHANNELS = 6, STATES = 3 };
static const float check_state[STATES * CHANNELS] = {.5f, -1, 2, .25f, [7] = .75f, [12] = -1.5f, [17] = 1};
static const struct llm_segment check_segments[] = {{.first = 0, .n = 36}, {.first = 36, .n = 2}, {.first = 38, .n = 38, .from = check_state}};

static struct llm_tensor *run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p, const struct llm_scan *o)
{
    int64_t bc = STATES * o->groups;
    return llm_selective_scan(c, in[0], in[1], llm_columns(c, in[2], 0, bc), llm_columns(c, in[2], bc, bc), p[0], p[1], p[2], o);
}

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    return run(c, in, p, &(struct llm_scan){.groups = 1, .dt_max = INFINITY, .segments = check_segments, .n_segments = 3});
}

static struct llm_tensor *check_heads(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    return run(c, in, p, &(struct llm_scan){.by_head = true, .heads = 2, .groups = 2, .dt_min = .3f, .dt_max = 1.5f, .segments = check_segments,
                                            .n_segments = 3});
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    bool by_head = g->in[1].cols == 2;
    int64_t params = g->in[1].cols, each = CHANNELS / params, groups = by_head ? 2 : 1;
    for (int s = 0; s < 3; s++) {
        const struct llm_segment *q = &check_segments[s];
        for (int i = 0; i < CHANNELS; i++) {
            double h[STATES];
            int64_t j = i / each, group = i / (CHANNELS / groups);
            for (int n = 0; n < STATES; n++) h[n] = q->from ? (double)q->from[n * CHANNELS + i] : 0;
            for (int64_t t = q->first; t < q->first + q->n; t++) {
                const double *b = in[2] + t * 2 * STATES * groups + group * STATES, *c = b + STATES * groups;
                double dt = log1p(exp(in[1][t * params + j] + p[2][j])), x = in[0][t * CHANNELS + i];
                if (by_head) dt = fmin(1.5, fmax((double).3f, dt));
                double sum = p[1][j] * x;
                for (int n = 0; n < STATES; n++) {
                    double a = -exp(by_head ? p[0][j] : p[0][i * STATES + n]);
                    h[n] = exp(dt * a) * h[n] + dt * x * b[n];
                    sum += h[n] * c[n];
                }
                y[t * CHANNELS + i] = sum;
            }
        }
    }
}

const struct llm_gradcheck llm_gradcheck_scan[] = {
    {.name = "selective scan", .in = {{TOKENS, CHANNELS}, {TOKENS, CHANNELS}, {TOKENS, 2 * STATES}},
     .param = {{CHANNELS, STATES}, {1, CHANNELS}, {1, CHANNELS}}, .out = {TOKENS, CHANNELS}, .n_rows = 2, .run = check_run, .formula = check_formula},
    {.name = "selective scan by heads", .in = {{TOKENS, CHANNELS}, {TOKENS, 2}, {TOKENS, 4 * STATES}}, .param = {{1, 2}, {1, 2}, {1, 2}},
     .out = {TOKENS, CHANNELS}, .n_rows = 2, .run = check_heads, .formula = check_formula},
    {0}};
