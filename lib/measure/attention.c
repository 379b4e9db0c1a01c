#include "measure/attention.h"

#include <math.h>
#include <string.h>
#include "base/log.h"
#include "base/rng.h"
#include "measure/stats.h"
#include "tensor/ops.h"

enum { MAX_RUNS = 1000, MIN_RUNS = 3 };

double llm_attention_flops(const struct llm_attention_job *j)
{
    double pairs = (double)j->tokens * (double)(j->tokens + 1) / 2;
    return (j->backward ? 3 : 1) * 4 * (double)(j->n_heads * j->head_dim) * pairs;
}

/* Inputs stand at the same place in every run; the first fills them. */
static struct llm_tensor *input(struct llm_ctx *c, const struct llm_attention_job *j, uint32_t number, bool fill)
{
    struct llm_tensor *x = llm_tensor_create(c, j->tokens, j->n_heads * j->head_dim);
    struct llm_rng r = llm_rng_at(0, 0, LLM_RNG_TEST, 0, number, 0);
    for (int64_t i = 0; fill && i < x->rows * x->cols; i++) x->data[i] = 2 * llm_rng_uniform(&r, (uint32_t)i) - 1;
    x->needs_grad = j->backward;
    return x;
}

/* One run's seconds. The gradient that comes in is the output. */
static double once(struct llm_ctx *c, const struct llm_attention_job *j, bool first)
{
    const struct llm_attn a = {.n_heads = j->n_heads, .n_kv_heads = j->n_heads, .d_k = j->head_dim, .d_v = j->head_dim,
                               .scale = (float)(1 / sqrt((double)j->head_dim)), .causal = true};
    llm_ctx_reset(c);
    struct llm_tensor *q = input(c, j, 0, first), *k = input(c, j, 1, first), *v = input(c, j, 2, first);
    double start = llm_now();
    struct llm_tensor *y = llm_attention(c, q, k, v, &a, NULL);
    double seconds = llm_now() - start;
    if (!j->backward || llm_ctx_failed(c)) return seconds;
    float *dy = llm_tensor_grad(c, y);
    if (dy) memcpy(dy, y->data, (size_t)(y->rows * y->cols) * sizeof *dy);
    start = llm_now();
    llm_backward(c);
    return seconds + llm_now() - start;
}

int llm_attention_speed(const struct llm_attention_job *j, double seconds, struct llm_attention_speed *out, struct llm_err *e)
{
    struct llm_ctx c;
    double rates[MAX_RUNS], all = 0;
    size_t n = 0, room = (size_t)(j->tokens * j->n_heads * j->head_dim) * 32 * sizeof(float) + ((size_t)64 << 20);
    *out = (struct llm_attention_speed){0};
    if (llm_ctx_init(&c, room, room, j->backward, e) < 0) return -1;
    c.compute = j->compute;
    c.n_rows = 1;
    c.row_len = j->tokens;
    once(&c, j, true); /* touches everything */
    while (!llm_ctx_failed(&c) && n < MAX_RUNS && (all < seconds || n < MIN_RUNS)) {
        double took = once(&c, j, false);
        all += took;
        rates[n] = llm_attention_flops(j) / took;
        if (rates[n] > out->best) out->best = rates[n];
        n++;
    }
    int status = 0;
    if (llm_ctx_failed(&c)) {
        *e = c.err;
        status = -1;
    } else {
        out->median = llm_median(rates, n);
        out->bytes = c.acts.peak + c.grads.peak;
    }
    llm_ctx_release(&c);
    return status;
}
