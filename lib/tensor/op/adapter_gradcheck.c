/* Gradient checks of matrices with adapters. The checks of experts and heads with adapters are in the files of those operations. */
#include "tensor/gradcheck.h"
#include "tensor/ops.h"

enum { RANK = 3, K = 29, N = 13 };

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    static struct llm_adapter adapter; /* the backward reads it */
    adapter = (struct llm_adapter){.a = p[1], .b = p[2], .scale = .5f};
    p[0]->adapter = &adapter;
    return llm_linear(c, in[0], p[0], p[3]);
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    for (int64_t t = 0; t < g->out.rows; t++) {
        for (int64_t j = 0; j < N; j++) {
            double sum = p[3][j];
            for (int64_t i = 0; i < K; i++) {
                double w = p[0][j * K + i];
                for (int64_t r = 0; r < RANK; r++) w += .5 * p[2][j * RANK + r] * p[1][r * K + i];
                sum += in[0][t * K + i] * w;
            }
            y[t * N + j] = sum;
        }
    }
}

/* Two adapters, the first with dropout: row 1 of the batch is global row 41. */
static struct llm_tensor *check_two(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    static struct llm_adapter adapters[2];
    c->training = true;
    c->seed = 5;
    c->step = 9;
    c->first_row = 40;
    adapters[0] = (struct llm_adapter){.a = p[1], .b = p[2], .scale = .5f, .dropout = .3f, .number = 7, .next = &adapters[1]};
    adapters[1] = (struct llm_adapter){.a = p[3], .b = p[4], .scale = 2};
    p[0]->adapter = adapters;
    return llm_linear(c, in[0], p[0], NULL);
}

static void formula_two(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    int64_t row_len = g->in[0].rows / g->n_rows;
    for (int64_t t = 0; t < g->out.rows; t++) {
        struct llm_rng rng = llm_rng_at(5, 9, LLM_RNG_DROPOUT_ADAPTER, 7, (uint32_t)(40 + t / row_len), (uint32_t)(t % row_len));
        for (int64_t j = 0; j < N; j++) {
            double sum = 0;
            for (int64_t i = 0; i < K; i++) {
                double first = 0, second = 0, keep = llm_rng_uniform(&rng, (uint32_t)i) < .3f ? 0 : 1 / (1 - (double).3f);
                for (int64_t r = 0; r < RANK; r++) first += .5 * p[2][j * RANK + r] * p[1][r * K + i];
                for (int64_t r = 0; r < RANK; r++) second += 2 * p[4][j * RANK + r] * p[3][r * K + i];
                sum += in[0][t * K + i] * (p[0][j * K + i] + first * keep + second);
            }
            y[t * N + j] = sum;
        }
    }
}

/* The norms of magnitudes are constants. */
static struct llm_tensor *run_magnified(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p, float dropout)
{
    static struct llm_adapter adapter; /* the backward reads it */
    static float norms[N];
    for (int j = 0; j < N; j++) norms[j] = j == 5 ? 0 : .5f + .25f * (float)j;
    adapter = (struct llm_adapter){.a = p[1], .b = p[2], .magnitude = p[4], .norm = norms, .scale = .5f, .factor = 1, .dropout = dropout,
                                   .number = 7};
    p[0]->adapter = &adapter;
    return llm_linear(c, in[0], p[0], p[3]);
}

static struct llm_tensor *check_magnified(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    return run_magnified(c, in, p, 0);
}

static void formula_magnified(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    check_formula(g, in, p, y);
    for (int64_t i = 0; i < g->out.rows * N; i++) {
        int64_t j = i % N;
        if (j != 5) y[i] = p[3][j] + (y[i] - p[3][j]) * p[4][j] / (.5 + .25 * (double)j);
    }
}

/* With magnitudes and dropout, which the gains' part of the product with w itself has too: PEFT's formula. */
static struct llm_tensor *check_dropped(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    c->training = true;
    c->seed = 5;
    c->step = 9;
    c->first_row = 40;
    return run_magnified(c, in, p, .3f);
}

static void formula_dropped(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    int64_t row_len = g->in[0].rows / g->n_rows;
    for (int64_t t = 0; t < g->out.rows; t++) {
        struct llm_rng rng = llm_rng_at(5, 9, LLM_RNG_DROPOUT_ADAPTER, 7, (uint32_t)(40 + t / row_len), (uint32_t)(t % row_len));
        for (int64_t j = 0; j < N; j++) {
            double sum = p[3][j], gain = j == 5 ? 1 : p[4][j] / (.5 + .25 * (double)j);
            for (int64_t i = 0; i < K; i++) {
                double low = 0, keep = llm_rng_uniform(&rng, (uint32_t)i) < .3f ? 0 : 1 / (1 - (double).3f);
                for (int64_t r = 0; r < RANK; r++) low += .5 * p[2][j * RANK + r] * p[1][r * K + i];
                sum += in[0][t * K + i] * (p[0][j * K + i] + keep * ((gain - 1) * p[0][j * K + i] + gain * low));
            }
            y[t * N + j] = sum;
        }
    }
}

const struct llm_gradcheck llm_gradcheck_adapter[] = {
    {.name = "linear with an adapter", .in = {{11, K}}, .param = {{N, K}, {RANK, K}, {N, RANK}, {1, N}}, .out = {11, N}, .run = check_run,
     .formula = check_formula},
    {.name = "linear with two adapters and dropout", .in = {{12, K}}, .param = {{N, K}, {RANK, K}, {N, RANK}, {RANK, K}, {N, RANK}}, .out = {12, N},
     .n_rows = 2, .run = check_two, .formula = formula_two},
    {.name = "linear with an adapter and magnitudes", .in = {{11, K}}, .param = {{N, K}, {RANK, K}, {N, RANK}, {1, N}, {1, N}}, .out = {11, N},
     .run = check_magnified, .formula = formula_magnified},
    {.name = "linear with an adapter, magnitudes and dropout", .in = {{12, K}}, .param = {{N, K}, {RANK, K}, {N, RANK}, {1, N}, {1, N}},
     .out = {12, N}, .n_rows = 2, .run = check_dropped, .formula = formula_dropped}, {0}};
