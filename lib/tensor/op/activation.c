/* y = act(x), and act(gate)·up (SwiGLU, GeGLU). */
#include <math.h>
#include <string.h>
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/tape.h"

int llm_act_find(const char *hf_name)
{
    static const struct { const char *name; enum llm_act act; } names[] = {
        {"gelu", LLM_ACT_GELU}, {"gelu_python", LLM_ACT_GELU}, {"gelu_python_tanh", LLM_ACT_GELU_TANH}, {"gelu_accurate", LLM_ACT_GELU_TANH},
        {"gelu_new", LLM_ACT_GELU_TANH}, {"gelu_pytorch_tanh", LLM_ACT_GELU_TANH}, {"gelu_fast", LLM_ACT_GELU_TANH},
        {"relu", LLM_ACT_RELU},
        {"silu", LLM_ACT_SILU}, {"swish", LLM_ACT_SILU}, {"sigmoid", LLM_ACT_SIGMOID}, {"tanh", LLM_ACT_TANH},
        {"relu2", LLM_ACT_RELU2}, {"quick_gelu", LLM_ACT_QUICK_GELU}, {"linear", LLM_ACT_LINEAR}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i].name, hf_name) == 0) return (int)names[i].act;
    }
    return -1;
}

struct act_args { enum llm_act act; };
struct work {
    enum llm_act act;
    const struct llm_tensor *x, *up;     /* up: NULL for the plain activation */
    const float *dy;
    int64_t dy_stride;
    struct llm_grad gx, gup;             /* of x and of up; p NULL: it takes none */
};

static void forward_rows(const void *arg, int64_t from, int64_t to, float *y, int64_t ld)
{
    const struct work *w = arg;
    size_t cols = (size_t)w->x->cols;
    for (int64_t r = from; r < to; r++, y += ld) {
        const float *x = w->x->data + r * w->x->stride;
        if (w->up) llm_k.elementwise.gated[w->act](y, x, w->up->data + r * w->up->stride, cols);
        else llm_k.elementwise.act[w->act](y, x, cols);
    }
}

static void backward_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    size_t cols = (size_t)w->x->cols;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        const float *x = w->x->data + r * w->x->stride, *dy = w->dy + r * w->dy_stride;
        float *dx = w->gx.p ? w->gx.p + r * w->gx.stride : NULL, *dup = w->gup.p ? w->gup.p + r * w->gup.stride : NULL;
        if (w->up) llm_k.elementwise.gated_back[w->act](dx, dup, x, w->up->data + r * w->up->stride, dy, w->gx.add, w->gup.add, cols);
        else llm_k.elementwise.act_back[w->act](dx, x, dy, w->gx.add, cols);
    }
}

static void activation_recompute(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("activation again", 2 * llm_tensor_bytes(n->out));
    llm_fill_rows(c, n->out, forward_rows, &(struct work){.act = ((const struct act_args *)n->args)->act, .x = n->in[0], .up = n->in[1]});
}

static void activation_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("activation backward", 3 * llm_tensor_bytes(n->out));
    const struct act_args *a = n->args;
    struct work w = {.act = a->act, .x = n->in[0], .dy = n->out->grad, .dy_stride = n->out->grad_stride};
    if (llm_grad_open_over(c, n->in[0], n->out, &w.gx)) llm_for_rows(w.x->rows, w.x->cols, backward_rows, &w);
}

static void gated_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("gated activation backward", 5 * llm_tensor_bytes(n->out));
    const struct act_args *a = n->args;
    struct llm_tensor *gate = n->in[0], *up = n->in[1];
    struct work w = {.act = a->act, .x = gate, .up = up, .dy = n->out->grad, .dy_stride = n->out->grad_stride};
    bool overlap = gate->data < up->data + up->cols && up->data < gate->data + gate->cols;
    if (!llm_grad_open(c, up, &w.gup)) w.gup.p = NULL;
    if (overlap && w.gup.p) { /* gate and up share columns, so their gradients share memory: one after the other */
        llm_for_rows(gate->rows, gate->cols, backward_rows, &w);
        w.gup.p = NULL;
    }
    /* The gate's gradient may take over the memory of y's: each element is read before it is written. */
    if (!llm_grad_open_over(c, gate, n->out, &w.gx)) w.gx.p = NULL;
    if (w.gx.p || w.gup.p) llm_for_rows(gate->rows, gate->cols, backward_rows, &w);
}

struct llm_tensor *llm_activation(struct llm_ctx *c, struct llm_tensor *x, enum llm_act act)
{
    LLM_PROFILE("activation", 2 * llm_tensor_bytes(x));
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_node n = {.backward = activation_backward, .recompute = activation_recompute, .mark = llm_arena_mark(&c->acts), .in = {x},
                         .tolerant = true};
    n.out = llm_op_output(c, &n, x->rows, x->cols);
    if (llm_ctx_failed(c)) return &c->nothing;
    llm_fill_rows(c, n.out, forward_rows, &(struct work){.act = act, .x = x});
    return llm_record(c, &n, &(struct act_args){act}, sizeof(struct act_args));
}

struct llm_tensor *llm_gated(struct llm_ctx *c, struct llm_tensor *gate, struct llm_tensor *up, enum llm_act act)
{
    LLM_PROFILE("gated activation", 3 * llm_tensor_bytes(gate));
    if (llm_ctx_failed(c)) return &c->nothing;
    if (gate->rows != up->rows || gate->cols != up->cols) {
        return llm_op_fail(c, LLM_EX_FAILURE, "gated: expected [%lld, %lld], found [%lld, %lld]", (long long)gate->rows, (long long)gate->cols,
                           (long long)up->rows, (long long)up->cols);
    }
    struct llm_node n = {.backward = gated_backward, .recompute = activation_recompute, .mark = llm_arena_mark(&c->acts), .in = {gate, up},
                         .tolerant = true};
    n.out = llm_op_output(c, &n, gate->rows, gate->cols);
    if (llm_ctx_failed(c)) return &c->nothing;
    llm_fill_rows(c, n.out, forward_rows, &(struct work){.act = act, .x = gate, .up = up});
    return llm_record(c, &n, &(struct act_args){act}, sizeof(struct act_args));
}

/* ---- gradient check ---- */

static double value(enum llm_act act, double x)
{
    switch (act) {
    case LLM_ACT_GELU: return x * 0.5 * (1 + erf(x / sqrt(2)));
    case LLM_ACT_GELU_TANH: return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
    case LLM_ACT_RELU: return x > 0 ? x : 0;
    case LLM_ACT_RELU2: return x > 0 ? x * x : 0;
    case LLM_ACT_SILU: return x / (1 + exp(-x));
    case LLM_ACT_SIGMOID: return 1 / (1 + exp(-x));
    case LLM_ACT_QUICK_GELU: return x / (1 + exp(-1.702 * x));
    case LLM_ACT_LINEAR: return x;
    default: return tanh(x);
    }
}

#define CHECK(name, act)                                                                                                              \
    static struct llm_tensor *check_##name(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)               \
    {                                                                                                                                 \
        (void)p;                                                                                                                      \
        return in[1] ? llm_gated(c, in[0], in[1], act) : llm_activation(c, in[0], act);                                               \
    }                                                                                                                                 \
    static void formula_##name(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)             \
    {                                                                                                                                 \
        (void)p;                                                                                                                      \
        for (int64_t i = 0; i < g->out.rows * g->out.cols; i++) y[i] = value(act, in[0][i]) * (in[1] ? in[1][i] : 1);                 \
    }
CHECK(gelu, LLM_ACT_GELU)
CHECK(gelu_tanh, LLM_ACT_GELU_TANH)
CHECK(relu, LLM_ACT_RELU)
CHECK(silu, LLM_ACT_SILU)
CHECK(sigmoid, LLM_ACT_SIGMOID)
CHECK(tanh, LLM_ACT_TANH)
CHECK(relu2, LLM_ACT_RELU2)
CHECK(quick_gelu, LLM_ACT_QUICK_GELU)
CHECK(linear, LLM_ACT_LINEAR)

static struct llm_tensor *check_shared(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    (void)p;
    return llm_gated(c, llm_columns(c, in[0], 0, 19), llm_columns(c, in[0], 7, 19), LLM_ACT_SILU); /* views that overlap */
}

static void formula_shared(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    (void)p;
    for (int64_t t = 0; t < g->out.rows; t++) {
        for (int64_t i = 0; i < 19; i++) y[t * 19 + i] = value(LLM_ACT_SILU, in[0][t * 26 + i]) * in[0][t * 26 + 7 + i];
    }
}

#define ROW(a) {.name = #a, .in = {{5, 23}}, .out = {5, 23}, .spread = 1.5, .run = check_##a, .formula = formula_##a}
#define GATED_ROW(a) \
    {.name = "gated " #a, .in = {{5, 23}, {5, 23}}, .out = {5, 23}, .spread = 1.5, .run = check_##a, .formula = formula_##a}
const struct llm_gradcheck llm_gradcheck_activation[] = {
    ROW(gelu), ROW(gelu_tanh), ROW(relu), ROW(silu), ROW(sigmoid), ROW(tanh), ROW(relu2), ROW(quick_gelu), ROW(linear),
    GATED_ROW(silu), GATED_ROW(gelu), GATED_ROW(gelu_tanh),
    {.name = "gated views", .in = {{4, 26}}, .out = {4, 19}, .run = check_shared, .formula = formula_shared}, {0}};
