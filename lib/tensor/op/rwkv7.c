/* What RWKV 7 (Peng et al. 2025) computes around its recurrence, by head: the direction of a key, the key that is stored, the output. With s the
 * sigmoid:
 *   direction: y = -(k ⊙ scale) / max(|k ⊙ scale|, 1e-12)
 *   key:       y = k ⊙ (1 + (s(rate) - 1) ⊙ mix)
 *   output:    y = (x + (Σ r ⊙ k ⊙ bonus) v) ⊙ gate
 * Sums over a head's channels are in double, in order. */
#include <math.h>
#include <string.h>
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/tape.h"

enum { MAX_INPUTS = 5 };
struct rwkv7_args { const float *p; int64_t size; };
struct work {
    struct llm_tensor *const *in;
    const struct llm_tensor *y;
    struct rwkv7_args a;
    struct llm_grad g[MAX_INPUTS];
    float *partial;              /* the gradient of the parameter by token [tokens, cols]; NULL: it is frozen */
    float *d_param;
};
/* One head of one token: inputs, output and their gradients, the parameter and its gradient. A gradient that is not wanted is NULL. */
struct head {
    int64_t n;
    const float *in[MAX_INPUTS], *p, *dy;
    float *y, *d[MAX_INPUTS], *dp;
};
typedef void head_function(const struct head *h);

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static void add(float *to, int64_t i, double x) { if (to) to[i] += (float)x; }

/* ---- direction: in k ---- */

static double length_of(const struct head *h)
{
    double sum = 0;
    for (int64_t i = 0; i < h->n; i++) sum += (double)(h->in[0][i] * h->p[i]) * (double)(h->in[0][i] * h->p[i]);
    return fmax(sqrt(sum), 1e-12);
}

static void direction(const struct head *h)
{
    double length = length_of(h);
    for (int64_t i = 0; i < h->n; i++) h->y[i] = (float)(-(double)(h->in[0][i] * h->p[i]) / length);
}

static void direction_back(const struct head *h)
{
    double length = length_of(h), along = 0;
    for (int64_t i = 0; i < h->n; i++) along -= (double)h->dy[i] * (double)(h->in[0][i] * h->p[i]) / length;
    for (int64_t i = 0; i < h->n; i++) {
        double unit = -(double)(h->in[0][i] * h->p[i]) / length, d = -((double)h->dy[i] - unit * along) / length;
        add(h->d[0], i, d * (double)h->p[i]);
        if (h->dp) h->dp[i] = (float)(d * (double)h->in[0][i]);
    }
}

/* ---- key: in k and rate ---- */

static void key(const struct head *h)
{
    for (int64_t i = 0; i < h->n; i++) h->y[i] = (float)((double)h->in[0][i] * (1 - sigmoid(-(double)h->in[1][i]) * (double)h->p[i]));
}

static void key_back(const struct head *h)
{
    for (int64_t i = 0; i < h->n; i++) {
        double k = (double)h->in[0][i], rest = sigmoid(-(double)h->in[1][i]), p = (double)h->p[i], dy = (double)h->dy[i];
        add(h->d[0], i, dy * (1 - rest * p));
        add(h->d[1], i, dy * k * p * rest * (1 - rest));
        if (h->dp) h->dp[i] = (float)(-dy * k * rest);
    }
}

/* ---- output: in x, r, k, v and gate ---- */

enum { X, R, K, V, GATE };

static double bonus_of(const struct head *h)
{
    double sum = 0;
    for (int64_t i = 0; i < h->n; i++) sum += (double)h->in[R][i] * (double)h->in[K][i] * (double)h->p[i];
    return sum;
}

static void output(const struct head *h)
{
    double bonus = bonus_of(h);
    for (int64_t i = 0; i < h->n; i++) h->y[i] = (float)(((double)h->in[X][i] + bonus * (double)h->in[V][i]) * (double)h->in[GATE][i]);
}

static void output_back(const struct head *h)
{
    double bonus = bonus_of(h), d_bonus = 0;
    for (int64_t i = 0; i < h->n; i++) {
        double dy = (double)h->dy[i], through = dy * (double)h->in[GATE][i];
        d_bonus += through * (double)h->in[V][i];
        add(h->d[X], i, through);
        add(h->d[V], i, through * bonus);
        add(h->d[GATE], i, dy * ((double)h->in[X][i] + bonus * (double)h->in[V][i]));
    }
    for (int64_t i = 0; i < h->n; i++) {
        double r = (double)h->in[R][i], k = (double)h->in[K][i], p = (double)h->p[i];
        add(h->d[R], i, d_bonus * k * p);
        add(h->d[K], i, d_bonus * r * p);
        if (h->dp) h->dp[i] = (float)(d_bonus * r * k);
    }
}

/* ---- all of them ---- */

struct call { struct work *w; head_function *f; };

static void call_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct call *c = arg;
    const struct work *w = c->w;
    (void)thread;
    for (int64_t t = from; t < to; t++) {
        for (int64_t at = 0; at < w->y->cols; at += w->a.size) {
            struct head h = {.n = w->a.size, .p = w->a.p + at, .y = w->y->data + t * w->y->stride + at,
                             .dp = w->partial ? w->partial + t * w->y->cols + at : NULL,
                             .dy = w->y->grad ? w->y->grad + t * w->y->grad_stride + at : NULL};
            for (int i = 0; i < MAX_INPUTS && w->in[i]; i++) {
                h.in[i] = w->in[i]->data + t * w->in[i]->stride + at;
                h.d[i] = w->g[i].p ? w->g[i].p + t * w->g[i].stride + at : NULL;
            }
            c->f(&h);
        }
    }
}

static void backward(struct llm_ctx *c, struct llm_node *n, head_function *f)
{
    LLM_PROFILE("RWKV 7 heads backward", 4 * llm_tensor_bytes(n->out));
    struct work w = {.in = n->in, .y = n->out, .a = *(const struct rwkv7_args *)n->args, .d_param = n->param[0]->grad};
    for (int i = 0; i < MAX_INPUTS && n->in[i]; i++) {
        if (!llm_grad_open_zeroed(c, n->in[i], &w.g[i])) w.g[i].p = NULL;
    }
    if (w.d_param) w.partial = llm_op_alloc(c, n->out->rows * n->out->cols, sizeof *w.partial);
    if (llm_ctx_failed(c)) return;
    llm_for_rows(w.y->rows, 16 * w.y->cols, call_rows, &(struct call){&w, f});
    const struct llm_folds folds = llm_folds_of(c, w.y->rows);
    llm_bias_grad(n->param[0], w.partial, w.y->cols, w.y->rows, &folds, w.y->cols);
}

static void direction_backward(struct llm_ctx *c, struct llm_node *n) { backward(c, n, direction_back); }
static void key_backward(struct llm_ctx *c, struct llm_node *n) { backward(c, n, key_back); }
static void output_backward(struct llm_ctx *c, struct llm_node *n) { backward(c, n, output_back); }

static struct llm_tensor *forward(struct llm_ctx *c, struct llm_node n, struct llm_param *p, int64_t heads, head_function *f)
{
    const int64_t cols = n.in[0]->cols;
    LLM_PROFILE("RWKV 7 heads", 2 * llm_tensor_bytes(n.in[0]));
    if (llm_ctx_failed(c)) return &c->nothing;
    n.mark = llm_arena_mark(&c->acts);
    n.param[0] = p;
    n.out = llm_tensor_create(c, n.in[0]->rows, cols);
    struct work w = {.in = n.in, .y = n.out, .a = {llm_op_vector(c, p, cols), cols / heads}};
    if (llm_ctx_failed(c)) return &c->nothing;
    llm_for_rows(n.out->rows, 16 * cols, call_rows, &(struct call){&w, f});
    return llm_record(c, &n, &w.a, sizeof w.a);
}

struct llm_tensor *llm_rwkv7_direction(struct llm_ctx *c, struct llm_tensor *k, struct llm_param *scale, int64_t heads)
{
    return forward(c, (struct llm_node){.backward = direction_backward, .in = {k}}, scale, heads, direction);
}

struct llm_tensor *llm_rwkv7_key(struct llm_ctx *c, struct llm_tensor *k, struct llm_tensor *rate, struct llm_param *mix)
{
    return forward(c, (struct llm_node){.backward = key_backward, .in = {k, rate}}, mix, 1, key);
}

struct llm_tensor *llm_rwkv7_output(struct llm_ctx *c, struct llm_tensor *x, struct llm_tensor *r, struct llm_tensor *k, struct llm_tensor *v,
                                    struct llm_tensor *gate, struct llm_param *bonus, int64_t heads)
{
    return forward(c, (struct llm_node){.backward = output_backward, .in = {x, r, k, v, gate}}, bonus, heads, output);
}

/* ---- gradient check ---- */

enum { TOKENS = 7, HEADS = 2, SIZE = 5, CHANNELS = HEADS * SIZE };

static struct llm_tensor *run_direction(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    return llm_rwkv7_direction(c, in[0], p[0], HEADS);
}

static struct llm_tensor *run_key(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    return llm_rwkv7_key(c, in[0], in[1], p[0]);
}

static struct llm_tensor *run_output(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    return llm_rwkv7_output(c, in[0], in[1], in[2], llm_columns(c, in[3], 0, CHANNELS), llm_columns(c, in[3], CHANNELS, CHANNELS), p[0], HEADS);
}

static void direction_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    (void)g;
    for (int i = 0; i < TOKENS * CHANNELS; i++) {
        double squares = 0;
        for (int j = i - i % SIZE; j < i - i % SIZE + SIZE; j++) squares += pow(in[0][j] * p[0][j % CHANNELS], 2);
        y[i] = -in[0][i] * p[0][i % CHANNELS] / sqrt(squares);
    }
}

static void key_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    (void)g;
    for (int i = 0; i < TOKENS * CHANNELS; i++) y[i] = in[0][i] * (1 + (1 / (1 + exp(-in[1][i])) - 1) * p[0][i % CHANNELS]);
}

static void output_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    (void)g;
    for (int i = 0; i < TOKENS * CHANNELS; i++) {
        const double *v = in[3] + i / CHANNELS * 2 * CHANNELS + i % CHANNELS;
        double bonus = 0;
        for (int j = i - i % SIZE; j < i - i % SIZE + SIZE; j++) bonus += in[1][j] * in[2][j] * p[0][j % CHANNELS];
        y[i] = (in[0][i] + bonus * v[0]) * v[CHANNELS];
    }
}

#define ROWS {TOKENS, CHANNELS}
const struct llm_gradcheck llm_gradcheck_rwkv7[] = {
    {.name = "RWKV 7 direction", .in = {ROWS}, .param = {{1, CHANNELS}}, .out = ROWS, .run = run_direction, .formula = direction_formula},
    {.name = "RWKV 7 key", .in = {ROWS, ROWS}, .param = {{1, CHANNELS}}, .out = ROWS, .run = run_key, .formula = key_formula},
    {.name = "RWKV 7 output", .in = {ROWS, ROWS, ROWS, {TOKENS, 2 * CHANNELS}}, .param = {{1, CHANNELS}}, .out = ROWS, .run = run_output,
     .formula = output_formula},
    {0}};
