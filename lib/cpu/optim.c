/* See cpu/optim.h. */
#include "cpu/optim.h"

#include "cpu/kernels.h"
#include "cpu/pool.h"

struct update {
    void (*method)(const struct llm_optim_span *s, const struct llm_optim_step *o);
    const struct llm_optim_span *s;
    const struct llm_optim_step *o;
};

static size_t block_length(size_t n, size_t at)
{
    return n - at < LLM_OPTIM_BLOCK ? n - at : LLM_OPTIM_BLOCK;
}

static void update_block(void *arg, size_t i, int thread)
{
    const struct update *u = arg;
    size_t at = i * LLM_OPTIM_BLOCK;
    struct llm_optim_span s = *u->s;
    (void)thread;
    s.n = block_length(s.n, at);
    s.master += at;
    s.grad += at;
    if (s.m) s.m += at;
    if (s.v) s.v += at;
    u->method(&s, u->o);
}

void llm_optim_update(void (*method)(const struct llm_optim_span *s, const struct llm_optim_step *o), const struct llm_optim_span *s,
                      const struct llm_optim_step *o)
{
    struct update u = {method, s, o};
    llm_parallel((s->n + LLM_OPTIM_BLOCK - 1) / LLM_OPTIM_BLOCK, update_block, &u);
}

struct combination { float *y; const float *x; size_t n; float a, b; };

static void combine_block(void *arg, size_t i, int thread)
{
    const struct combination *c = arg;
    size_t at = i * LLM_OPTIM_BLOCK;
    (void)thread;
    llm_k.optim.combine(c->y + at, c->x + at, c->a, c->b, block_length(c->n, at));
}

void llm_combine(float *y, const float *x, double a, double b, size_t n)
{
    struct combination c = {y, x, n, (float)a, (float)b};
    llm_parallel((n + LLM_OPTIM_BLOCK - 1) / LLM_OPTIM_BLOCK, combine_block, &c);
}

enum { PARTIALS = 1024 };
struct sum { const float *x; size_t n; double partial[PARTIALS]; };

static void sum_block(void *arg, size_t i, int thread)
{
    struct sum *s = arg;
    size_t at = i * LLM_OPTIM_BLOCK;
    (void)thread;
    s->partial[i] = llm_k.optim.sum_squares(s->x + at, block_length(s->n, at));
}

double llm_sum_squares(const float *x, size_t n)
{
    const size_t max = (size_t)PARTIALS * LLM_OPTIM_BLOCK;
    double total = 0;
    for (size_t at = 0; at < n; at += max) {
        struct sum s = {.x = x + at, .n = n - at < max ? n - at : max};
        size_t blocks = (s.n + LLM_OPTIM_BLOCK - 1) / LLM_OPTIM_BLOCK;
        llm_parallel(blocks, sum_block, &s);
        for (size_t i = 0; i < blocks; i++) total += s.partial[i];
    }
    return total;
}
