/* y = x · keep, keep = 0 with probability p, else 1/(1 - p). The mask is a function of (seed, step, layer, site, row, position, channel); the
 * backward pass recomputes it. */
#include <math.h>
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/sequence.h"
#include "tensor/tape.h"

struct dropout_args { uint32_t layer; enum llm_rng_site site; float p; };
struct work {
    struct dropout_args a;
    uint64_t seed, step;
    int64_t first_row, first, row_len, cols; /* first: position of a row's first token */
    const float *from;
    float *to;
    int64_t from_stride, to_stride;
    bool add;
};

static void rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    uint32_t drop = (uint32_t)ceil((double)w->a.p * 0x1p24);
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        struct llm_rng rng = llm_rng_at(w->seed, w->step, w->a.site, w->a.layer, (uint32_t)(w->first_row + r / w->row_len),
                                        (uint32_t)(w->first + r % w->row_len));
        llm_k.elementwise.dropout(w->to + r * w->to_stride, w->from + r * w->from_stride, rng.key, rng.counter, drop, 1 / (1 - w->a.p), w->add,
                                  (size_t)w->cols);
    }
}

static struct work work_for(const struct llm_ctx *c, const struct llm_tensor *x, struct dropout_args a)
{
    const int64_t row_len = llm_row_len(c, x->rows);
    return (struct work){.a = a, .seed = c->seed, .step = c->step, .first_row = c->first_row, .first = llm_sequence_first(c, row_len),
                         .row_len = row_len, .cols = x->cols};
}

static void dropout_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("dropout backward", 2 * llm_tensor_bytes(n->out));
    struct llm_tensor *x = n->in[0];
    struct work w = work_for(c, x, *(const struct dropout_args *)n->args);
    struct llm_grad g;
    w.from = n->out->grad;
    w.from_stride = n->out->grad_stride;
    if (!llm_grad_open_over(c, x, n->out, &g)) return;
    w.to = g.p;
    w.to_stride = g.stride;
    w.add = g.add;
    llm_for_rows(x->rows, x->cols, rows, &w);
}

struct llm_tensor *llm_dropout(struct llm_ctx *c, struct llm_tensor *x, float p, enum llm_rng_site site)
{
    if (llm_ctx_failed(c)) return &c->nothing;
    if (p <= 0 || !c->training) return x;
    LLM_PROFILE("dropout", 2 * llm_tensor_bytes(x));
    struct dropout_args a = {c->layer, site, p};
    struct llm_node n = {.backward = dropout_backward, .mark = llm_arena_mark(&c->acts), .in = {x}};
    n.out = llm_tensor_create(c, x->rows, x->cols);
    if (llm_ctx_failed(c)) return &c->nothing;
    struct work w = work_for(c, x, a);
    w.from = x->data;
    w.from_stride = x->stride;
    w.to = n.out->data;
    w.to_stride = n.out->stride;
    llm_for_rows(x->rows, x->cols, rows, &w);
    n.out->spare = true;
    return llm_record(c, &n, &a, sizeof a);
}

/* ---- gradient check: the formula draws one random number per element ---- */

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    (void)p;
    c->training = true;
    c->seed = 5;
    c->step = 9;
    c->layer = 2;
    c->first_row = 40;
    return llm_dropout(c, in[0], 0.3f, LLM_RNG_DROPOUT_RESID);
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    int64_t row_len = g->in[0].rows / g->n_rows, n = g->in[0].cols;
    (void)p;
    for (int64_t t = 0; t < g->in[0].rows; t++) {
        struct llm_rng rng = llm_rng_at(5, 9, LLM_RNG_DROPOUT_RESID, 2, (uint32_t)(40 + t / row_len), (uint32_t)(t % row_len));
        for (int64_t i = 0; i < n; i++) y[t * n + i] = llm_rng_uniform(&rng, (uint32_t)i) < 0.3f ? 0 : in[0][t * n + i] / (1 - (double)0.3f);
    }
}

const struct llm_gradcheck llm_gradcheck_dropout[] = {
    {.name = "dropout", .in = {{6, 133}}, .out = {6, 133}, .n_rows = 2, .run = check_run, .formula = check_formula}, {0}};
