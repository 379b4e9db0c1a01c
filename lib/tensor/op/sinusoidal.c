/* y = x + PE(position): Vaswani et al. 2017, 3.5. PE(p)[2i] = sin(p·10000^(-2i/d)), PE(p)[2i + 1] the cosine. */
#include <math.h>
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/tape.h"

struct work { const struct llm_tensor *x, *y; const int32_t *positions; const double *frequency; };

static void rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    (void)thread;
    for (int64_t t = from; t < to; t++) {
        const float *x = w->x->data + t * w->x->stride;
        float *y = w->y->data + t * w->y->stride;
        for (int64_t i = 0; i < w->x->cols; i++) {
            double angle = w->positions[t] * w->frequency[i / 2];
            y[i] = x[i] + (float)(i % 2 ? cos(angle) : sin(angle));
        }
    }
}

static void sinusoidal_backward(struct llm_ctx *c, struct llm_node *n)
{
    llm_grad_pass(c, n->in[0], n->out);
}

struct llm_tensor *llm_add_sinusoidal(struct llm_ctx *c, struct llm_tensor *x, const int32_t *positions)
{
    LLM_PROFILE("sinusoidal", 2 * llm_tensor_bytes(x));
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_node n = {.backward = sinusoidal_backward, .mark = llm_arena_mark(&c->acts), .in = {x}};
    n.out = llm_tensor_create(c, x->rows, x->cols);
    size_t scratch = llm_arena_mark(&c->acts);
    double *frequency = llm_op_alloc(c, (x->cols + 1) / 2, sizeof *frequency);
    if (llm_ctx_failed(c)) return &c->nothing;
    for (int64_t i = 0; i < (x->cols + 1) / 2; i++) frequency[i] = pow(10000, -2.0 * (double)i / (double)x->cols);
    struct work w = {x, n.out, positions, frequency};
    llm_for_rows(x->rows, x->cols, rows, &w);
    llm_arena_pop(&c->acts, scratch);
    return llm_record(c, &n, NULL, 0);
}

/* ---- gradient check ---- */

static const int32_t check_positions[5] = {0, 1, 7, 1000, 3};

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    (void)p;
    return llm_add_sinusoidal(c, in[0], check_positions);
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    int64_t d = g->in[0].cols;
    (void)p;
    for (int64_t t = 0; t < g->in[0].rows; t++) {
        for (int64_t i = 0; i < d; i++) {
            double angle = check_positions[t] / pow(10000, (double)(i / 2 * 2) / (double)d);
            y[t * d + i] = in[0][t * d + i] + (i % 2 ? cos(angle) : sin(angle));
        }
    }
}

const struct llm_gradcheck llm_gradcheck_sinusoidal[] = {
    {.name = "sinusoidal", .in = {{5, 18}}, .out = {5, 18}, .run = check_run, .formula = check_formula}, {0}};
