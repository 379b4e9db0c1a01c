/* Ops against PyTorch in FP64 (tests/oracle/ops.py): outputs and gradients by norm and 64 projections on vectors of signs. F32 within 1e-5 of the
 * norm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "cpu/pool.h"
#include "tensor/ops.h"

enum { TOKENS = 70, WIDTH = 48, VOCAB = 97, MOST = 3 };

static int32_t ids[TOKENS], targets[TOKENS], positions[TOKENS];
static float frequency[8];
static struct llm_rope rope = {16, 16, LLM_ROPE_HALVES, frequency, 1, 0};

struct operands { struct llm_tensor *x[MOST]; struct llm_param *p[MOST]; double loss; };
typedef struct llm_tensor *op_fn(struct llm_ctx *c, struct operands *o);

static struct llm_tensor *linear(struct llm_ctx *c, struct operands *o) { return llm_linear(c, o->x[0], o->p[0], o->p[1]); }
static struct llm_tensor *embedding(struct llm_ctx *c, struct operands *o) { return llm_embedding(c, ids, TOKENS, o->p[0], 1); }
static struct llm_tensor *layernorm(struct llm_ctx *c, struct operands *o) { return llm_layernorm(c, o->x[0], o->p[0], o->p[1], 1e-5f); }
static struct llm_tensor *rmsnorm(struct llm_ctx *c, struct operands *o) { return llm_rmsnorm(c, o->x[0], o->p[0], 1e-5f, 0, WIDTH); }
static struct llm_tensor *gelu(struct llm_ctx *c, struct operands *o) { return llm_activation(c, o->x[0], LLM_ACT_GELU); }
static struct llm_tensor *gelu_tanh(struct llm_ctx *c, struct operands *o) { return llm_activation(c, o->x[0], LLM_ACT_GELU_TANH); }
static struct llm_tensor *relu(struct llm_ctx *c, struct operands *o) { return llm_activation(c, o->x[0], LLM_ACT_RELU); }
static struct llm_tensor *relu2(struct llm_ctx *c, struct operands *o) { return llm_activation(c, o->x[0], LLM_ACT_RELU2); }
static struct llm_tensor *groupnorm(struct llm_ctx *c, struct operands *o) { return llm_groupnorm(c, o->x[0], o->p[0], o->p[1], 6, 1e-5f); }
static struct llm_tensor *batchnorm(struct llm_ctx *c, struct operands *o)
{
    static float numbers[WIDTH];
    static struct llm_param running = {.name = "running", .n_dims = 1, .shape = {WIDTH}, .weight = {.data = numbers, .dtype = LLM_F32}};
    c->training = true;
    return llm_batchnorm(c, o->x[0], o->p[0], o->p[1], &running, &running, 1e-5f);
}
static struct llm_tensor *silu(struct llm_ctx *c, struct operands *o) { return llm_activation(c, o->x[0], LLM_ACT_SILU); }
static struct llm_tensor *sigmoid(struct llm_ctx *c, struct operands *o) { return llm_activation(c, o->x[0], LLM_ACT_SIGMOID); }
static struct llm_tensor *tanh_op(struct llm_ctx *c, struct operands *o) { return llm_activation(c, o->x[0], LLM_ACT_TANH); }
static struct llm_tensor *swiglu(struct llm_ctx *c, struct operands *o) { return llm_gated(c, o->x[0], o->x[1], LLM_ACT_SILU); }
static struct llm_tensor *geglu(struct llm_ctx *c, struct operands *o) { return llm_gated(c, o->x[0], o->x[1], LLM_ACT_GELU); }
static struct llm_tensor *add(struct llm_ctx *c, struct operands *o) { return llm_add(c, o->x[0], o->x[1]); }
static struct llm_tensor *scale(struct llm_ctx *c, struct operands *o) { return llm_scale(c, o->x[0], 0.375f); }
static struct llm_tensor *sinusoidal(struct llm_ctx *c, struct operands *o) { return llm_add_sinusoidal(c, o->x[0], positions); }
static struct llm_tensor *softmax(struct llm_ctx *c, struct operands *o) { return llm_softmax(c, o->x[0]); }
static struct llm_tensor *rope_halves(struct llm_ctx *c, struct operands *o)
{
    rope.pairing = LLM_ROPE_HALVES;
    return llm_rope(c, o->x[0], positions, &rope);
}
static struct llm_tensor *rope_pairs(struct llm_ctx *c, struct operands *o)
{
    rope.pairing = LLM_ROPE_INTERLEAVED;
    return llm_rope(c, o->x[0], positions, &rope);
}
static struct llm_tensor *cross_entropy(struct llm_ctx *c, struct operands *o)
{
    int64_t counted = 0;
    for (int t = 0; t < TOKENS; t++) counted += targets[t] >= 0;
    struct llm_cross_entropy a = {.targets = targets, .logit_scale = 0.25f, .grad_scale = 1 / (double)counted};
    struct llm_loss l = llm_cross_entropy(c, o->x[0], o->p[0], &a);
    o->loss = l.nll / (double)l.tokens;
    return NULL;
}

/* The loss that is reported is the cross-entropy alone: what is added shows in the gradients. */
static struct llm_tensor *z_loss(struct llm_ctx *c, struct operands *o)
{
    c->z_loss = .01;
    cross_entropy(c, o);
    o->loss = 0;
    return NULL;
}

/* Inputs are [TOKENS, WIDTH]; parameters [rows, cols], rows 1: a vector. */
static const struct { const char *name; op_fn *run; int n_inputs; int64_t params[MOST][2]; } cases[] = {
    {"linear", linear, 1, {{VOCAB, WIDTH}, {1, VOCAB}}}, {"embedding", embedding, 0, {{VOCAB, WIDTH}}},
    {"layernorm", layernorm, 1, {{1, WIDTH}, {1, WIDTH}}}, {"rmsnorm", rmsnorm, 1, {{1, WIDTH}}}, {"gelu", gelu, 1, {{0}}},
    {"gelu_tanh", gelu_tanh, 1, {{0}}}, {"relu", relu, 1, {{0}}}, {"relu2", relu2, 1, {{0}}},
    {"groupnorm", groupnorm, 1, {{1, WIDTH}, {1, WIDTH}}}, {"batchnorm", batchnorm, 1, {{1, WIDTH}, {1, WIDTH}}},
    {"z_loss", z_loss, 1, {{VOCAB, WIDTH}}}, {"silu", silu, 1, {{0}}}, {"sigmoid", sigmoid, 1, {{0}}},
    {"tanh", tanh_op, 1, {{0}}}, {"swiglu", swiglu, 2, {{0}}}, {"geglu", geglu, 2, {{0}}}, {"softmax", softmax, 1, {{0}}},
    {"add", add, 2, {{0}}}, {"scale", scale, 1, {{0}}}, {"sinusoidal", sinusoidal, 1, {{0}}},
    {"rope_halves", rope_halves, 1, {{0}}}, {"rope_pairs", rope_pairs, 1, {{0}}}, {"cross_entropy", cross_entropy, 1, {{VOCAB, WIDTH}}}};

static void draw(float *x, int64_t n, uint64_t step, uint32_t layer)
{
    struct llm_rng r = llm_rng_at(31, step, LLM_RNG_TEST, layer, 0, 0);
    for (int64_t i = 0; i < n; i++) x[i] = llm_rng_normal(&r, (uint32_t)i);
}

static void compare(const char *name, const char *what, const float *x, int64_t n, const json_t *golden)
{
    double norm = json_number_value(json_object_get(golden, "norm")), squares = 0, sums[64] = {0};
    const json_t *projections = json_object_get(golden, "projections");
    struct llm_rng r = llm_rng_at(99, 0, LLM_RNG_TEST, 0, 0, 0);
    assert_int_equal(json_array_size(projections), 64);
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = (uint64_t)llm_rng_u32(&r, (uint32_t)(2 * i + 1)) << 32 | llm_rng_u32(&r, (uint32_t)(2 * i));
        for (int k = 0; k < 64; k++) sums[k] += bits >> k & 1 ? (double)x[i] : -(double)x[i];
        squares += (double)x[i] * (double)x[i];
    }
    if (!(norm > 0) || !(fabs(sqrt(squares) - norm) <= 1e-5 * norm))
        fail_msg("%s: norm of %s: expected %.9g, found %.9g", name, what, norm, sqrt(squares));
    for (int k = 0; k < 64; k++) {
        double expected = json_number_value(json_array_get(projections, (size_t)k));
        if (!(fabs(sums[k] - expected) <= 1e-5 * norm))
            fail_msg("%s: projection %d of %s: expected %.9g, found %.9g (norm %.4g)", name, k, what, expected, sums[k], norm);
    }
}

static void run_case(size_t i, const json_t *golden)
{
    struct llm_err e = {0};
    struct llm_ctx c;
    struct operands o = {0};
    struct llm_param params[MOST];
    const json_t *gradients = json_object_get(golden, "gradients");
    size_t at = 0;
    assert_int_equal(llm_ctx_init(&c, (size_t)64 << 20, (size_t)64 << 20, true, &e), 0);
    c.n_rows = 2;
    c.row_len = TOKENS / 2;
    for (int j = 0; j < cases[i].n_inputs; j++) {
        o.x[j] = llm_tensor_create(&c, TOKENS, WIDTH);
        o.x[j]->needs_grad = true;
        draw(o.x[j]->data, TOKENS * WIDTH, 0, (uint32_t)j);
    }
    for (int j = 0; j < MOST && cases[i].params[j][0]; j++) {
        int64_t rows = cases[i].params[j][0], cols = cases[i].params[j][1];
        float *w = malloc((size_t)(rows * cols) * sizeof *w), *grad = calloc((size_t)(rows * cols), sizeof *grad);
        draw(w, rows * cols, 0, (uint32_t)(4 + j));
        params[j] = (struct llm_param){.name = "p", .n_dims = rows == 1 ? 1 : 2, .shape = {rows == 1 ? cols : rows, cols}, .grad = grad, .master = w,
                                       .weight = {.data = w, .dtype = LLM_F32, .n = rows, .k = cols}};
        o.p[j] = &params[j];
    }
    struct llm_tensor *y = cases[i].run(&c, &o);
    if (llm_ctx_failed(&c)) fail_msg("%s: %s", cases[i].name, c.err.text);
    if (y) {
        compare(cases[i].name, "output", y->data, y->rows * y->cols, json_object_get(golden, "output"));
        draw(llm_tensor_grad(&c, y), y->rows * y->cols, 1, 0);
    } else if (o.loss > 0) {
        double expected = json_number_value(json_object_get(json_object_get(golden, "output"), "norm"));
        assert_true(fabs(o.loss / expected - 1) < 1e-6);
    }
    llm_backward(&c);
    for (int j = 0; j < cases[i].n_inputs; j++) {
        assert_non_null(o.x[j]->grad);
        compare(cases[i].name, "input's gradient", o.x[j]->grad, TOKENS * WIDTH, json_array_get(gradients, at++));
    }
    for (int j = 0; j < MOST && o.p[j]; j++) {
        compare(cases[i].name, "parameter's gradient", o.p[j]->grad, llm_param_count(o.p[j]), json_array_get(gradients, at++));
        llm_weight_release(&o.p[j]->weight);
        free(o.p[j]->master);
        free(o.p[j]->grad);
    }
    assert_int_equal(at, json_array_size(gradients));
    llm_ctx_release(&c);
}

static void test_goldens(void **state)
{
    struct llm_err e = {0};
    json_t *goldens = llm_json_load("tests/golden/ops/ops.json", (size_t)1 << 20, &e);
    (void)state;
    if (!goldens) fail_msg("%s", e.text);
    assert_int_equal(json_object_size(goldens), sizeof cases / sizeof *cases);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) run_case(i, json_object_get(goldens, cases[i].name));
    json_decref(goldens);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_goldens)};
    struct llm_err e = {0};
    for (int t = 0; t < TOKENS; t++) {
        ids[t] = (7 * t * t + 3 * t) % VOCAB;
        targets[t] = t % 9 == 4 ? -1 : (11 * t * t + t) % VOCAB;
        positions[t] = 5 * t;
    }
    for (int i = 0; i < 8; i++) frequency[i] = (float)pow(10000, -i / 8.0);
    if (llm_pool_start(2, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
