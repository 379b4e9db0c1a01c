/* Gradient-check rows of attention, with the plain formula in double. tests/unit/tensor/test_attention*.c test masks, packing and caches. */
#include <math.h>
#include "tensor/gradcheck.h"
#include "tensor/op/attention_internal.h"

#define TOKENS 70 /* more than a tile */

static const struct llm_attn grouped = {.n_heads = 4, .n_kv_heads = 2, .d_k = 5, .d_v = 3, .scale = 0.4f, .causal = true, .window = 40};
static const struct llm_attn adorned = {.n_heads = 2, .n_kv_heads = 2, .d_k = 6, .d_v = 7, .scale = 0.4f, .prefix = 9, .causal = true, .softcap = 4,
                                        .rel_max = 12};
static const int32_t buckets[23] = {0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 4, 5, 6, 6, 7, 7, 7, 8, 8, 8, 8, 8};

static struct llm_tensor *check_grouped(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *param)
{
    (void)param;
    return llm_attention(c, in[0], in[1], in[2], &grouped, NULL);
}

static struct llm_tensor *check_adorned(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *param)
{
    struct llm_attn a = adorned;
    a.sinks = param[0];
    a.rel_bias = param[1];
    return llm_attention(c, in[0], in[1], in[2], &a, NULL);
}

/* Runs attention with a relative position bias by bucket; the formula has the bias by distance. */
static struct llm_tensor *check_buckets(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *param)
{
    struct llm_attn a = adorned;
    a.sinks = param[0];
    a.rel_bias = param[1];
    a.rel_map = buckets;
    a.rel_buckets = 9;
    return llm_attention(c, in[0], in[1], in[2], &a, NULL);
}

static bool sees(const struct llm_attn *a, int64_t i, int64_t j)
{
    return j < a->prefix || (j <= i && (a->window == 0 || i - j < a->window));
}

/* The formula for query i of head h. */
static void formula_query(const struct llm_attn *a, const double *const *in, const double *const *param, int64_t i, int64_t h, double *y)
{
    int64_t kv = h * a->n_kv_heads / a->n_heads;
    double sum = a->rel_max ? exp(param[0][h]) : 0;
    for (int64_t j = 0; j < TOKENS; j++) {
        if (!sees(a, i, j)) continue;
        double s = 0;
        for (int64_t x = 0; x < a->d_k; x++) s += in[0][(i * a->n_heads + h) * a->d_k + x] * in[1][(j * a->n_kv_heads + kv) * a->d_k + x];
        s *= (double)a->scale;
        if (a->softcap > 0) s = (double)a->softcap * tanh(s / (double)a->softcap);
        if (a->rel_max) s += param[1][h * (2 * a->rel_max - 1) + attn_max(1 - a->rel_max, attn_min(a->rel_max - 1, j - i)) + a->rel_max - 1];
        sum += exp(s);
        for (int64_t x = 0; x < a->d_v; x++) y[x] += exp(s) * in[2][(j * a->n_kv_heads + kv) * a->d_v + x];
    }
    for (int64_t x = 0; x < a->d_v; x++) y[x] /= sum;
}

static void formula(const struct llm_attn *a, const double *const *in, const double *const *param, double *y)
{
    for (int64_t i = 0; i < TOKENS * a->n_heads * a->d_v; i++) y[i] = 0;
    for (int64_t i = 0; i < TOKENS; i++)
        for (int64_t h = 0; h < a->n_heads; h++) formula_query(a, in, param, i, h, y + (i * a->n_heads + h) * a->d_v);
}

static void formula_buckets(const struct llm_gradcheck *g, const double *const *in, const double *const *param, double *y)
{
    double table[2 * 23];
    const double *expanded[2] = {param[0], table};
    (void)g;
    for (int h = 0; h < 2; h++) {
        for (int x = 0; x < 23; x++) table[h * 23 + x] = param[1][buckets[x] * 2 + h];
    }
    formula(&adorned, in, expanded, y);
}

static void formula_grouped(const struct llm_gradcheck *g, const double *const *in, const double *const *param, double *y)
{
    (void)g;
    formula(&grouped, in, param, y);
}

static void formula_adorned(const struct llm_gradcheck *g, const double *const *in, const double *const *param, double *y)
{
    (void)g;
    formula(&adorned, in, param, y);
}

const struct llm_gradcheck llm_gradcheck_attention[] = {
    {.name = "attention, grouped, window", .in = {{TOKENS, 20}, {TOKENS, 10}, {TOKENS, 6}}, .out = {TOKENS, 12}, .spread = 1.5, .run = check_grouped,
     .formula = formula_grouped},
    {.name = "attention, bias, sinks, soft-cap", .in = {{TOKENS, 12}, {TOKENS, 12}, {TOKENS, 14}}, .param = {{1, 2}, {2, 23}}, .out = {TOKENS, 14},
     .spread = 1.5, .run = check_adorned, .formula = formula_adorned},
    {.name = "attention, bias by buckets", .in = {{TOKENS, 12}, {TOKENS, 12}, {TOKENS, 14}}, .param = {{1, 2}, {9, 2}}, .out = {TOKENS, 14},
     .spread = 1.5, .run = check_buckets, .formula = formula_buckets},
    {0}};
