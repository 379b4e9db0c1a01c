/* What Hyena's implicit filters are made of, besides linear layers (Poli et al. 2023, section 3.3): sines with learned frequencies, and windows of
 * exponential decay. */
#include <math.h>
#include <string.h>
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/tape.h"

struct sine_args { const float *freq; int64_t use; };
struct sine_work {
    const struct llm_tensor *x, *y;
    const float *freq, *dy;
    int64_t dy_stride;
    float *d_freq;
    struct llm_grad g;
    int64_t row_len;
};

static void sine_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct sine_work *w = arg;
    (void)thread;
    for (int64_t t = from; t < to; t++)
        llm_k.longconv.sine(w->y->data + t * w->y->stride, w->freq, w->x->data + t * w->x->stride, (size_t)w->x->cols);
}

static void sine_back_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct sine_work *w = arg;
    (void)thread;
    for (int64_t t = from; t < to; t++) {
        llm_k.longconv.sine_back(w->g.p + t * w->g.stride, NULL, w->freq, w->x->data + t * w->x->stride, w->dy + t * w->dy_stride,
                                 w->g.add, (size_t)w->x->cols);
    }
}

static void sine_back_columns(void *arg, int64_t from, int64_t to, int thread)
{
    const struct sine_work *w = arg;
    float sum[64];
    (void)thread;
    for (int64_t t = 0, end; t < w->y->rows; t = end) {
        end = llm_fold_end(w->y->rows, w->row_len, t);
        memset(sum, 0, (size_t)(to - from) * sizeof *sum);
        for (int64_t i = t; i < end; i++) {
            llm_k.longconv.sine_back(NULL, sum, w->freq + from, w->x->data + i * w->x->stride + from, w->dy + i * w->dy_stride + from,
                                     false, (size_t)(to - from));
        }
        llm_k.elementwise.add(w->d_freq + from, w->d_freq + from, sum, (size_t)(to - from));
    }
}

static void sine_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("sine backward", 3 * llm_tensor_bytes(n->out));
    const struct sine_args *a = n->args;
    float *own = llm_param_use(n->param[0], a->use);
    struct sine_work w = {.x = n->in[0], .y = n->out, .freq = a->freq, .d_freq = own ? own : n->param[0]->grad,
                          .dy = n->out->grad, .dy_stride = n->out->grad_stride,
                          .row_len = llm_row_len(c, n->out->rows)};
    if (w.d_freq) llm_for_columns(w.x->cols, sine_back_columns, &w);
    if (llm_grad_open_over(c, n->in[0], n->out, &w.g)) llm_for_rows(w.x->rows, w.x->cols, sine_back_rows, &w);
}

struct llm_tensor *llm_sine(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *freq, int64_t use)
{
    LLM_PROFILE("sine", 2 * llm_tensor_bytes(x));
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_node n = {.backward = sine_backward, .mark = llm_arena_mark(&c->acts), .in = {x}, .param = {freq}};
    n.out = llm_tensor_create(c, x->rows, x->cols);
    struct sine_work w = {.x = x, .y = n.out, .freq = llm_op_vector(c, freq, x->cols)};
    if (llm_ctx_failed(c)) return &c->nothing;
    llm_for_rows(x->rows, x->cols, sine_rows, &w);
    return llm_record(c, &n, &(struct sine_args){w.freq, use}, sizeof(struct sine_args));
}

/* ---- windows ---- */

struct window_args { const int32_t *positions; const float *time, *decay; float shift; };
struct window_work { const struct window_args *a; float *to; const float *from; int64_t to_stride, from_stride, cols; bool add; };

static void window_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct window_work *w = arg;
    (void)thread;
    for (int64_t t = from; t < to; t++) {
        llm_k.longconv.window(w->to + t * w->to_stride, w->from + t * w->from_stride, w->a->decay, w->a->time[w->a->positions[t]], w->a->shift,
                              w->add, (size_t)w->cols);
    }
}

static void window_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("decay window backward", 2 * llm_tensor_bytes(n->out));
    struct window_work w = {.a = n->args, .from = n->out->grad, .from_stride = n->out->grad_stride, .cols = n->out->cols};
    struct llm_grad g;
    if (!llm_grad_open_over(c, n->in[0], n->out, &g)) return;
    w.to = g.p;
    w.to_stride = g.stride;
    w.add = g.add;
    llm_for_rows(n->out->rows, n->out->cols, window_rows, &w);
}

struct llm_tensor *llm_decay_window(struct llm_ctx *c, struct llm_tensor *x, const int32_t *positions, const struct llm_param *time,
                                    const struct llm_param *decay, float shift)
{
    LLM_PROFILE("decay window", 2 * llm_tensor_bytes(x));
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_node n = {.backward = window_backward, .mark = llm_arena_mark(&c->acts), .in = {x}};
    n.out = llm_tensor_create(c, x->rows, x->cols);
    struct window_args a = {positions, llm_op_vector(c, time, llm_param_count(time)), llm_op_vector(c, decay, x->cols), shift};
    if (llm_ctx_failed(c)) return &c->nothing;
    struct window_work w = {.a = &a, .to = n.out->data, .from = x->data, .to_stride = n.out->stride, .from_stride = x->stride, .cols = x->cols};
    llm_for_rows(x->rows, x->cols, window_rows, &w);
    return llm_record(c, &n, &a, sizeof a);
}

/* ---- gradient check ---- */

enum { TOKENS = 300, COLS = 19 };

static struct llm_tensor *check_sine(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    return llm_sine(c, in[0], p[0], 0);
}

static void check_sine_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    for (int64_t i = 0; i < g->out.rows * g->out.cols; i++) y[i] = sin(p[0][i % g->out.cols] * in[0][i]);
}

static struct llm_tensor *check_window(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    static const int32_t positions[] = {0, 1, 2, 3, 0, 1, 2};
    static float times[] = {0, .25f, .5f, 1}, decays[COLS] = {-3, 2, [5] = 15, [18] = -1};
    static const struct llm_param time = {.name = "time", .n_dims = 1, .shape = {4}, .weight = {.data = times, .dtype = LLM_F32, .n = 4, .k = 1}};
    static const struct llm_param decay = {.name = "decay", .n_dims = 1, .shape = {COLS},
                                           .weight = {.data = decays, .dtype = LLM_F32, .n = COLS, .k = 1}};
    (void)p;
    return llm_decay_window(c, in[0], positions, &time, &decay, .05f);
}

static void check_window_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    static const double times[] = {0, .25, .5, 1, 0, .25, .5}, decays[COLS] = {3, 2, [5] = 15, [18] = 1};
    (void)p;
    for (int64_t i = 0; i < g->out.rows * COLS; i++) y[i] = in[0][i] * (exp(-times[i / COLS] * decays[i % COLS]) + .05);
}

const struct llm_gradcheck llm_gradcheck_hyena_filter[] = {
    {.name = "sine", .in = {{TOKENS, COLS}}, .param = {{1, COLS}}, .out = {TOKENS, COLS}, .spread = 2, .run = check_sine,
     .formula = check_sine_formula},
    {.name = "decay window", .in = {{7, COLS}}, .out = {7, COLS}, .run = check_window, .formula = check_window_formula},
    {0}};
