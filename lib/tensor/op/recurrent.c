/* y[t] = cell(x[t] + w·y[t-1] + b): a recurrence over time, tanh or LSTM. All segments are processed in parallel and sorted by falling length, so
 * that the segments that have a k-th token are the first rows of one product. A row of the product does not depend on the others. */
#include <math.h>
#include <string.h>
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/sequence.h"
#include "tensor/tape.h"

/* Shared by forward and backward pass; on `acts`. */
struct recur {
    bool lstm;
    enum llm_compute compute;
    int64_t width, gates;        /* gates: columns of x */
    struct llm_segment *segments; /* sorted by falling length */
    int64_t n_segments;
    float *first_h, *first_c;    /* [n_segments, width]: the states before the first tokens */
    struct llm_sequence_states states; /* sent when the last tokens are computed */
    float *sums;                 /* [tokens, gates] activated gates; LSTM */
    float *cells;                /* [tokens, width]; LSTM */
};
struct recurrent_args { struct recur r; };

/* One time step: the first `active` segments process their k-th token. */
struct moment {
    const struct recur *r;
    int64_t k;
    const struct llm_tensor *x, *y;
    const float *rec;            /* [active, gates] */
    float *h;                    /* [active, width] */
    /* backward */
    float *d_sums, *packed;      /* [tokens, gates], rows d_stride apart; [active, gates]: the rows of this time step, contiguous */
    int64_t d_stride;
    float *dh, *dc;              /* [n_segments, width] */
    struct llm_state_grads states; /* h, of an LSTM followed by c, of each row */
};

/* Sorts segments by falling length; equal ones keep their order. A merge sort: `spare` has room for n. */
static void sort_segments(struct llm_segment *s, struct llm_segment *spare, int64_t n)
{
    for (int64_t run = 1; run < n; run *= 2) {
        for (int64_t at = 0; at < n; at += 2 * run) {
            int64_t i = at, middle = at + run < n ? at + run : n, j = middle, end = middle + run < n ? middle + run : n;
            for (int64_t to = at; to < end; to++) spare[to] = j == end || (i < middle && s[i].n >= s[j].n) ? s[i++] : s[j++];
        }
        memcpy(s, spare, (size_t)n * sizeof *s);
    }
}

static const float *cell_before(const struct recur *r, int64_t s, int64_t k)
{
    return k == 0 ? r->first_c + s * r->width : r->cells + (r->segments[s].first + k - 1) * r->width;
}

static void forward_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct moment *m = arg;
    const struct recur *r = m->r;
    (void)thread;
    for (int64_t s = from; s < to; s++) {
        int64_t t = r->segments[s].first + m->k;
        const float *x = m->x->data + t * m->x->stride;
        float *y = m->y->data + t * m->y->stride;
        const struct llm_lstm_step step = {.gates = r->sums + t * r->gates, .c = r->cells + t * r->width, .h = y, .x = x, .r = m->rec + s * r->gates,
                                           .c_before = r->lstm ? cell_before(r, s, m->k) : NULL};
        if (r->lstm) llm_k.recurrent.lstm(&step, (size_t)r->width);
        else llm_k.recurrent.tanh(y, x, step.r, (size_t)r->width);
        memcpy(m->h + s * r->width, y, (size_t)r->width * sizeof *y);
    }
}

static int64_t active_at(const struct recur *r, int64_t active, int64_t k)
{
    while (active > 0 && r->segments[active - 1].n <= k) active--;
    return active;
}

static int64_t state_of(const struct recur *r) { return r->lstm ? 2 * r->width : r->width; }

/* Copies and sorts the segments, and copies the states before their first tokens. */
static bool begin(struct llm_ctx *c, struct recur *r, const struct llm_recurrent *o, int64_t tokens)
{
    struct llm_segment *spare = llm_op_alloc(c, o->n_segments, sizeof *spare);
    r->segments = llm_op_alloc(c, o->n_segments, sizeof *r->segments);
    r->first_h = llm_op_alloc(c, o->n_segments * r->width, sizeof(float));
    if (r->lstm) r->first_c = llm_op_alloc(c, o->n_segments * r->width, sizeof(float));
    if (r->lstm) r->sums = llm_op_alloc(c, tokens * r->gates, sizeof(float));
    if (r->lstm) r->cells = llm_op_alloc(c, tokens * r->width, sizeof(float));
    if (llm_ctx_failed(c)) return false;
    memcpy(r->segments, o->segments, (size_t)o->n_segments * sizeof *r->segments);
    sort_segments(r->segments, spare, o->n_segments);
    if (!llm_sequence_receive_states(c, &r->states, r->segments, r->n_segments, tokens, state_of(r))) return false;
    for (int64_t s = 0; s < r->n_segments; s++) {
        size_t bytes = (size_t)r->width * sizeof(float);
        const float *from = r->segments[s].from;
        float *h = r->first_h + s * r->width, *cell = r->lstm ? r->first_c + s * r->width : NULL;
        if (from) memcpy(h, from, bytes);
        else memset(h, 0, bytes);
        if (cell && from) memcpy(cell, from + r->width, bytes);
        else if (cell) memset(cell, 0, bytes);
    }
    return true;
}

/* Writes the states after the last tokens to llm_segment.to. */
static void end(const struct recur *r, const struct llm_tensor *y)
{
    for (int64_t s = 0; s < r->n_segments; s++) {
        const struct llm_segment *g = &r->segments[s];
        int64_t last = g->first + g->n - 1;
        if (!g->to) continue;
        memcpy(g->to, y->data + last * y->stride, (size_t)r->width * sizeof(float));
        if (r->lstm) memcpy(g->to + r->width, r->cells + last * r->width, (size_t)r->width * sizeof(float));
    }
}

static int check(struct llm_ctx *c, const struct llm_tensor *x, const struct llm_param *w, const struct llm_recurrent *o)
{
    int64_t rows = 0, gates = o->lstm ? 4 : 1;
    for (int64_t s = 0; s < o->n_segments; s++) {
        const struct llm_segment *g = &o->segments[s];
        if (g->n < 1 || g->first < 0 || g->first + g->n > x->rows) break;
        rows += g->n;
    }
    if (rows == x->rows && x->cols == w->weight.n && w->weight.n == gates * w->weight.k) return 0;
    llm_op_fail(c, LLM_EX_FAILURE, "'%s': expected inputs [*, %lld] and segments that cover them, found [%lld, %lld]", w->name,
                (long long)(gates * w->weight.k), (long long)x->rows, (long long)x->cols);
    return -1;
}

static void recurrent_backward(struct llm_ctx *c, struct llm_node *n);

struct llm_tensor *llm_recurrent(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *w, struct llm_param *b, const struct llm_recurrent *o)
{
    LLM_PROFILE("recurrent", 0);
    if (llm_ctx_failed(c) || check(c, x, w, o) < 0) return &c->nothing;
    struct llm_node n = {.backward = recurrent_backward, .mark = llm_arena_mark(&c->acts), .in = {x}, .param = {w, b}};
    struct recur r = {.lstm = o->lstm, .compute = c->compute, .width = w->weight.k, .gates = x->cols, .n_segments = o->n_segments};
    n.out = llm_tensor_create(c, x->rows, r.width);
    if (llm_ctx_failed(c) || !begin(c, &r, o, x->rows)) return &c->nothing;
    size_t scratch = llm_arena_mark(&c->acts);
    int64_t longest = r.n_segments ? r.segments[0].n : 0, active = r.n_segments;
    float *rec = llm_op_alloc(c, active * r.gates, sizeof *rec), *h = llm_op_alloc(c, active * r.width, sizeof *h);
    const float *bias = b ? llm_op_vector(c, b, r.gates) : NULL;
    if (llm_ctx_failed(c) || (longest > 2 && llm_weight_pack(&w->weight, c->compute, false, &c->err) < 0)) return &c->nothing;
    memcpy(h, r.first_h, (size_t)(active * r.width) * sizeof *h);
    for (int64_t k = 0; k < longest; k++) {
        active = active_at(&r, active, k);
        struct llm_matmul product = {.m = active, .x = h, .ldx = r.width, .y = rec, .ldy = r.gates, .bias = bias, .compute = c->compute};
        if (llm_matmul(&product, &w->weight, &c->err) < 0) {
            llm_in(&c->err, "'%s'", w->name);
            return &c->nothing;
        }
        struct moment m = {.r = &r, .k = k, .x = x, .y = n.out, .rec = rec, .h = h};
        llm_for_rows(active, 8 * r.gates, forward_rows, &m);
    }
    end(&r, n.out);
    if (!llm_sequence_send_states(c, &r.states)) return &c->nothing;
    llm_arena_pop(&c->acts, scratch);
    return llm_record(c, &n, &(struct recurrent_args){r}, sizeof(struct recurrent_args));
}

/* ---- backward ---- */

static void backward_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct moment *m = arg;
    const struct recur *r = m->r;
    (void)thread;
    for (int64_t s = from; s < to; s++) {
        int64_t t = r->segments[s].first + m->k;
        const float *dy = m->y->grad + t * m->y->grad_stride, *dr = m->dh + s * r->width;
        float *d = m->d_sums + t * m->d_stride;
        if (r->lstm) {
            const struct llm_lstm_back_step step = {.d_sums = d, .dc = m->dc + s * r->width, .gates = r->sums + t * r->gates,
                                                    .c = r->cells + t * r->width, .c_before = cell_before(r, s, m->k), .dy = dy, .dr = dr};
            llm_k.recurrent.lstm_back(&step, (size_t)r->width);
        } else {
            llm_k.recurrent.tanh_back(d, m->y->data + t * m->y->stride, dy, dr, (size_t)r->width);
        }
        memcpy(m->packed + s * r->gates, d, (size_t)r->gates * sizeof *d);
    }
}

/* Backpropagation through time: fills d_sums. */
static int walk(struct llm_ctx *c, const struct recur *r, struct llm_weight *w, struct moment *m)
{
    int64_t longest = r->n_segments ? r->segments[0].n : 0, active = 0;
    const size_t bytes = (size_t)r->width * sizeof *m->dh;
    memset(m->dh, 0, (size_t)r->n_segments * bytes);
    if (m->dc) memset(m->dc, 0, (size_t)r->n_segments * bytes);
    for (int64_t s = 0; s < r->n_segments; s++) {
        const float *after = llm_state_grad_after(&m->states, &r->segments[s]);
        if (after) memcpy(m->dh + s * r->width, after, bytes);
        if (after && m->dc) memcpy(m->dc + s * r->width, after + r->width, bytes);
    }
    if (longest > 2 && llm_weight_pack(w, r->compute, true, &c->err) < 0) return -1;
    for (m->k = longest - 1; m->k >= 0; m->k--) {
        while (active < r->n_segments && r->segments[active].n > m->k) active++;
        llm_for_rows(active, 8 * r->gates, backward_rows, m);
        struct llm_matmul product = {.m = active, .x = m->packed, .ldx = r->gates, .y = m->dh, .ldy = r->width, .compute = r->compute};
        if ((m->k > 0 || m->states.arrived) && llm_matmul_dx(&product, w, &c->err) < 0) return -1;
    }
    for (int64_t s = 0; s < r->n_segments; s++) {
        float *before = llm_state_grad_before(&m->states, &r->segments[s]);
        if (before) memcpy(before, m->dh + s * r->width, bytes);
        if (before && m->dc) memcpy(before + r->width, m->dc + s * r->width, bytes);
    }
    return 0;
}

/* The state before each token, [tokens, width]. */
static float *states_before(struct llm_ctx *c, const struct recur *r, const struct llm_tensor *y)
{
    float *h = llm_op_alloc(c, y->rows * r->width, sizeof *h);
    size_t bytes = (size_t)r->width * sizeof *h;
    for (int64_t s = 0; h && s < r->n_segments; s++) {
        const struct llm_segment *g = &r->segments[s];
        memcpy(h + g->first * r->width, r->first_h + s * r->width, bytes);
        for (int64_t t = g->first + 1; t < g->first + g->n; t++) memcpy(h + t * r->width, y->data + (t - 1) * y->stride, bytes);
    }
    return h;
}

struct add_work { struct llm_grad g; const float *d; int64_t cols; };

static void add_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct add_work *w = arg;
    (void)thread;
    for (int64_t t = from; t < to; t++) {
        llm_k.elementwise.add(w->g.p + t * w->g.stride, w->g.p + t * w->g.stride, w->d + t * w->cols, (size_t)w->cols);
    }
}

static void recurrent_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("recurrent backward", 0);
    const struct recur *r = &((const struct recurrent_args *)n->args)->r;
    struct llm_tensor *x = n->in[0], *y = n->out;
    struct llm_param *w = n->param[0], *b = n->param[1];
    const struct llm_folds folds = llm_folds_of(c, y->rows);
    struct moment m = {.r = r, .y = y};
    struct llm_grad g = {0};
    bool wanted = llm_grad_open(c, x, &g), apart = !wanted || g.add;
    m.d_sums = apart ? llm_op_alloc(c, y->rows * r->gates, sizeof(float)) : g.p;
    m.d_stride = apart ? r->gates : g.stride;
    m.packed = llm_op_alloc(c, r->n_segments * r->gates, sizeof(float));
    m.dh = llm_op_alloc(c, r->n_segments * r->width, sizeof(float));
    if (r->lstm) m.dc = llm_op_alloc(c, r->n_segments * r->width, sizeof(float));
    if (llm_ctx_failed(c) || !llm_sequence_receive_gradients(c, &m.states, y->rows, state_of(r)) || walk(c, r, &w->weight, &m) < 0) return;
    if (!llm_sequence_send_gradients(c, &m.states)) return;
    if (wanted && apart) {
        struct add_work work = {g, m.d_sums, r->gates};
        llm_for_rows(y->rows, r->gates, add_rows, &work);
    }
    llm_bias_grad(b, m.d_sums, m.d_stride, y->rows, &folds, r->gates);
    float *before = w->grad ? states_before(c, r, y) : NULL;
    if (before && !llm_weight_grad(c, w, w->grad, m.d_sums, m.d_stride, before, r->width, NULL, y->rows, &folds, r->compute)) {
        llm_in(&c->err, "'%s'", w->name);
    }
}

/* ---- gradient check ---- */

enum { WIDTH = 5, TOKENS = 14 };
static const float check_state[2 * WIDTH] = {.5f, -1, .25f, 2, -.75f, 1, -.5f, .125f, .75f, -2};
static const struct llm_segment check_segments[] = {{.first = 0, .n = 3}, {.first = 3, .n = 4, .from = check_state}, {.first = 7, .n = 7}};

#define CHECK(name, is_lstm)                                                                                                          \
    static struct llm_tensor *check_##name(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)               \
    {                                                                                                                                 \
        const struct llm_recurrent o = {is_lstm, check_segments, sizeof check_segments / sizeof *check_segments};                     \
        return llm_recurrent(c, in[0], p[0], p[1], &o);                                                                           \
    }
CHECK(tanh, false)
CHECK(lstm, true)

/* x is used twice, so its gradient is added to. */
static struct llm_tensor *check_twice(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    return llm_add(c, check_lstm(c, in, p), check_lstm(c, in, p));
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static void formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    int64_t gates = g->in[0].cols;
    bool is_lstm = gates == 4 * WIDTH;
    for (size_t s = 0; s < sizeof check_segments / sizeof *check_segments; s++) {
        const struct llm_segment *q = &check_segments[s];
        double h[WIDTH], cell[WIDTH], a[4 * WIDTH];
        for (int i = 0; i < WIDTH; i++) {
            h[i] = q->from ? (double)q->from[i] : 0;
            cell[i] = q->from ? (double)q->from[WIDTH + i] : 0;
        }
        for (int64_t t = q->first; t < q->first + q->n; t++) {
            for (int64_t j = 0; j < gates; j++) {
                a[j] = in[0][t * gates + j] + (p[1] ? p[1][j] : 0);
                for (int i = 0; i < WIDTH; i++) a[j] += p[0][j * WIDTH + i] * h[i];
            }
            for (int i = 0; i < WIDTH; i++) {
                if (is_lstm) cell[i] = sigmoid(a[WIDTH + i]) * cell[i] + sigmoid(a[i]) * tanh(a[2 * WIDTH + i]);
                h[i] = is_lstm ? sigmoid(a[3 * WIDTH + i]) * tanh(cell[i]) : tanh(a[i]);
                y[t * WIDTH + i] = h[i];
            }
        }
    }
}

static void formula_twice(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    formula(g, in, p, y);
    for (int64_t i = 0; i < g->out.rows * g->out.cols; i++) y[i] *= 2;
}

const struct llm_gradcheck llm_gradcheck_recurrent[] = {
    {.name = "recurrent tanh", .in = {{TOKENS, WIDTH}}, .param = {{WIDTH, WIDTH}, {1, WIDTH}}, .out = {TOKENS, WIDTH}, .n_rows = 2,
     .run = check_tanh, .formula = formula},
    {.name = "lstm", .in = {{TOKENS, 4 * WIDTH}}, .param = {{4 * WIDTH, WIDTH}, {1, 4 * WIDTH}}, .out = {TOKENS, WIDTH}, .n_rows = 2,
     .run = check_lstm, .formula = formula},
    {.name = "lstm without bias", .in = {{TOKENS, 4 * WIDTH}}, .param = {{4 * WIDTH, WIDTH}}, .out = {TOKENS, WIDTH}, .run = check_lstm,
     .formula = formula},
    {.name = "lstm twice", .in = {{TOKENS, 4 * WIDTH}}, .param = {{4 * WIDTH, WIDTH}}, .out = {TOKENS, WIDTH}, .run = check_twice,
     .formula = formula_twice},
    {0}};
