/* A small decoder with every op in it, for tests of the tape: parameters drawn from a seed, one function for a step. */
#ifndef LLM_TEST_TENSOR_NETWORK_H
#define LLM_TEST_TENSOR_NETWORK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/pool.h"
#include "tensor/ops.h"

enum { VOCAB = 83, POSITIONS = 700, WIDTH = 40, HEADS = 4, HEAD = 10, HIDDEN = 56, LAYERS = 3, PER_LAYER = 12, GLOBAL = 4 };
enum { N_PARAMS = GLOBAL + LAYERS * PER_LAYER };

struct network { struct llm_param p[N_PARAMS]; struct llm_rope rope; float frequency[HEAD / 2]; const int32_t *positions; };

static inline void param_make(struct llm_param *p, uint32_t number, int64_t rows, int64_t cols, float spread, float centre)
{
    int64_t n = rows * cols;
    float *w = malloc((size_t)n * sizeof *w);
    struct llm_rng r = llm_rng_at(11, 0, LLM_RNG_TEST, number, 0, 0);
    for (int64_t i = 0; i < n; i++) w[i] = centre + spread * llm_rng_normal(&r, (uint32_t)i);
    *p = (struct llm_param){.name = "p", .n_dims = rows == 1 ? 1 : 2, .shape = {rows == 1 ? cols : rows, cols},
                            .weight = {.data = w, .dtype = LLM_F32, .n = rows, .k = cols}, .master = w, .grad = calloc((size_t)n, sizeof *w)};
}

static inline struct network *network_create(void)
{
    struct network *n = calloc(1, sizeof *n);
    param_make(&n->p[0], 0, VOCAB, WIDTH, 0.3f, 0);
    n->p[0].grad_lookup = calloc((size_t)VOCAB * WIDTH, sizeof(float)); /* tied: lookup and head apart */
    param_make(&n->p[1], 1, POSITIONS, WIDTH, 0.3f, 0);
    param_make(&n->p[2], 2, 1, WIDTH, 0.2f, 1);
    param_make(&n->p[3], 3, 1, WIDTH, 0.2f, 0);
    for (uint32_t l = 0; l < LAYERS; l++) {
        const int64_t shape[PER_LAYER][2] = {
            {1, WIDTH}, {1, WIDTH}, {3 * HEADS * HEAD, WIDTH}, {1, 3 * HEADS * HEAD}, {1, HEAD},       {WIDTH, HEADS * HEAD},
            {1, WIDTH}, {1, WIDTH}, {HIDDEN, WIDTH},           {HIDDEN, WIDTH},       {WIDTH, HIDDEN}, {1, WIDTH}};
        for (uint32_t i = 0; i < PER_LAYER; i++) {
            bool gain = i == 0 || i == 4 || i == 7;
            param_make(&n->p[GLOBAL + l * PER_LAYER + i], 10 + l * PER_LAYER + i, shape[i][0], shape[i][1], 0.2f, gain ? 1 : 0);
        }
    }
    for (int i = 0; i < HEAD / 2; i++) n->frequency[i] = 1 / (float)(1 + 3 * i);
    n->rope = (struct llm_rope){HEAD, HEAD, LLM_ROPE_HALVES, n->frequency, 1, 0};
    return n;
}

static inline void network_destroy(struct network *n)
{
    for (int i = 0; i < N_PARAMS; i++) {
        llm_weight_release(&n->p[i].weight);
        free(n->p[i].master);
        free(n->p[i].grad);
        free(n->p[i].grad_lookup);
    }
    free(n);
}

static inline void network_clear(struct network *n)
{
    for (int i = 0; i < N_PARAMS; i++) memset(n->p[i].grad, 0, (size_t)llm_param_count(&n->p[i]) * sizeof(float));
    memset(n->p[0].grad_lookup, 0, (size_t)VOCAB * WIDTH * sizeof(float));
}

static inline struct llm_tensor *network_block(struct llm_ctx *c, void *arg, struct llm_tensor *x)
{
    struct network *n = arg;
    struct llm_param *p = &n->p[GLOBAL + c->layer * PER_LAYER];
    struct llm_attn attn = {.n_heads = HEADS, .n_kv_heads = HEADS, .d_k = HEAD, .d_v = HEAD, .scale = 0.5f, .causal = true};
    int64_t inner = HEADS * HEAD;
    struct llm_tensor *qkv = llm_linear(c, llm_layernorm(c, x, &p[0], &p[1], 1e-5f), &p[2], &p[3]);
    struct llm_tensor *q = llm_rope(c, llm_rmsnorm(c, llm_columns(c, qkv, 0, inner), &p[4], 1e-6f, 0, HEAD), n->positions, &n->rope);
    struct llm_tensor *k = llm_rope(c, llm_columns(c, qkv, inner, inner), n->positions, &n->rope);
    struct llm_tensor *a = llm_attention(c, q, k, llm_columns(c, qkv, 2 * inner, inner), &attn, NULL);
    x = llm_add(c, x, llm_dropout(c, llm_linear(c, a, &p[5], &p[6]), 0.1f, LLM_RNG_DROPOUT_ATTN));
    struct llm_tensor *h = llm_rmsnorm(c, x, &p[7], 1e-6f, 0, WIDTH);
    h = llm_gated(c, llm_linear(c, h, &p[8], NULL), llm_linear(c, h, &p[9], NULL), LLM_ACT_SILU);
    h = llm_activation(c, llm_linear(c, h, &p[10], &p[11]), LLM_ACT_GELU_TANH);
    return llm_add(c, x, llm_dropout(c, h, 0.1f, LLM_RNG_DROPOUT_RESID));
}

/* Forward (and, when recording, backward) of rows × length tokens, the first being global row `first`. checkpoint: each block is run again on the way
 * back. Gradients are added. */
static inline struct llm_loss network_step(struct llm_ctx *c, struct network *n, int64_t first, int64_t rows, int64_t length, bool checkpoint,
                                           double grad_scale)
{
    int64_t tokens = rows * length;
    int32_t *ids = malloc((size_t)tokens * 3 * sizeof *ids), *positions = ids + tokens, *targets = positions + tokens;
    for (int64_t t = 0; t < tokens; t++) {
        struct llm_rng r = llm_rng_at(12, 0, LLM_RNG_TEST, 0, (uint32_t)(first + t / length), (uint32_t)(t % length));
        ids[t] = (int32_t)llm_rng_below(&r, 0, 31); /* ids from 31 on never occur */
        targets[t] = llm_rng_uniform(&r, 20) < 0.1f ? -1 : (int32_t)llm_rng_below(&r, 1, VOCAB);
        positions[t] = (int32_t)(t % length);
    }
    n->positions = positions;
    c->n_rows = rows;
    c->row_len = length;
    c->first_row = first;
    c->seed = 77;
    c->step = 5;
    c->training = true;
    c->layer = 0;
    struct llm_tensor *x = llm_add(c, llm_embedding(c, ids, tokens, &n->p[0], 1), llm_embedding(c, positions, tokens, &n->p[1], 1));
    x = llm_add_sinusoidal(c, llm_dropout(c, x, 0.1f, LLM_RNG_DROPOUT_EMBED), positions);
    for (c->layer = 0; c->layer < LAYERS; c->layer++) x = llm_run_block(c, network_block, n, x, !checkpoint);
    x = llm_layernorm(c, x, &n->p[2], &n->p[3], 1e-5f);
    struct llm_cross_entropy a = {.targets = targets, .logit_scale = 1, .grad_scale = grad_scale};
    struct llm_loss loss = llm_cross_entropy(c, x, &n->p[0], &a);
    llm_backward(c);
    llm_ctx_reset(c);
    free(ids);
    return loss;
}

/* All gradients one after the other, malloced; *count numbers. */
static inline float *network_gradients(const struct network *n, size_t *count)
{
    size_t total = (size_t)VOCAB * WIDTH, at = 0;
    for (int i = 0; i < N_PARAMS; i++) total += (size_t)llm_param_count(&n->p[i]);
    float *all = malloc(total * sizeof *all);
    for (int i = 0; i < N_PARAMS; i++) {
        size_t size = (size_t)llm_param_count(&n->p[i]);
        memcpy(all + at, n->p[i].grad, size * sizeof *all);
        at += size;
    }
    memcpy(all + at, n->p[0].grad_lookup, (size_t)VOCAB * WIDTH * sizeof *all);
    *count = total;
    return all;
}

#endif
