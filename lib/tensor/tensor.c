/* Tensors and the context of operations (tensor/tensor.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "cpu/pool.h"
#include "tensor/op/rope_internal.h"
#include "tensor/tape_internal.h"

int llm_ctx_init(struct llm_ctx *c, size_t acts_limit, size_t grads_limit, bool recording, struct llm_err *e)
{
    *c = (struct llm_ctx){.compute = LLM_COMPUTE_F32};
    if (llm_arena_init(&c->acts, acts_limit, e) < 0) return -1;
    if (!recording) return 0;
    c->tape = llm_calloc(1, sizeof *c->tape, "tape", e);
    if (c->tape && llm_arena_init(&c->grads, grads_limit, e) == 0 && llm_arena_init(&c->store, acts_limit, e) == 0
        && llm_arena_init(&c->shared_arena, acts_limit, e) == 0) return 0;
    llm_ctx_release(c);
    return -1;
}

void llm_ctx_release(struct llm_ctx *c)
{
    if (c->acts.base) llm_arena_release(&c->acts);
    if (c->grads.base) llm_arena_release(&c->grads);
    if (c->store.base) llm_arena_release(&c->store);
    if (c->shared_arena.base) llm_arena_release(&c->shared_arena);
    llm_rope_tables_destroy(c->rope_tables);
    free(c->router_loads.sum);
    free(c->router_loads.seen);
    c->router_loads = (struct llm_router_loads){0};
    free(c->tape);
    c->rope_tables = NULL;
    c->tape = NULL;
}

void llm_ctx_reset(struct llm_ctx *c)
{
    llm_arena_pop(&c->acts, 0);
    c->router_loads.n_layers = 0;
    if (!c->tape) return;
    c->tape->last = NULL;
    llm_arena_pop(&c->store, 0);
    llm_arena_pop(&c->shared_arena, 0);
    for (int i = 0; i < LLM_RECOMPUTE_KINDS; i++) c->shared[i] = NULL;
    llm_grad_reset(c);
}

struct llm_tensor *llm_op_fail(struct llm_ctx *c, int status, const char *fmt, ...)
{
    if (c->err.status == 0) {
        char text[sizeof c->err.text];
        va_list args;
        va_start(args, fmt);
        vsnprintf(text, sizeof text, fmt, args);
        va_end(args);
        llm_fail(&c->err, status, "%s", text);
    }
    return &c->nothing;
}

void *llm_op_alloc(struct llm_ctx *c, int64_t count, size_t size)
{
    size_t bytes;
    if (llm_ctx_failed(c)) return NULL;
    void *p = NULL;
    if (count >= 0 && !__builtin_mul_overflow((size_t)count, size, &bytes)) p = llm_arena_alloc(&c->acts, bytes);
    if (!p) {
        llm_op_fail(c, EX_UNAVAILABLE, "activations: expected at most %zu MiB, found more (layer %u): fewer tokens at a time need less",
                    c->acts.limit >> 20, c->layer);
    }
    return p;
}

struct llm_tensor *llm_tensor_create(struct llm_ctx *c, int64_t rows, int64_t cols)
{
    int64_t count;
    if (rows < 0 || cols < 0 || __builtin_mul_overflow(rows, cols, &count)) {
        return llm_op_fail(c, LLM_EX_FAILURE, "tensor: expected a size that fits, found [%lld, %lld]", (long long)rows, (long long)cols);
    }
    struct llm_tensor *t = llm_op_alloc(c, 1, sizeof *t);
    float *data = llm_op_alloc(c, count, sizeof *data);
    if (!data) return &c->nothing;
    *t = (struct llm_tensor){.rows = rows, .cols = cols, .stride = cols, .data = data};
    return t;
}

struct llm_tensor *llm_columns(struct llm_ctx *c, struct llm_tensor *x, int64_t from, int64_t n)
{
    if (llm_ctx_failed(c)) return &c->nothing;
    if (from < 0 || n < 0 || from > x->cols - n) {
        return llm_op_fail(c, LLM_EX_FAILURE, "columns: expected within [0, %lld), found [%lld, %lld)", (long long)x->cols,
                           (long long)from, (long long)(from + n));
    }
    struct llm_tensor *t = llm_op_alloc(c, 1, sizeof *t);
    if (!t) return &c->nothing;
    *t = (struct llm_tensor){.rows = x->rows, .cols = n, .stride = x->stride, .data = x->data + from, .needs_grad = x->needs_grad,
                             .base = x->base ? x->base : x, .column = x->column + from};
    return t;
}

/* Copies the rows of x to `to`, contiguously. `to` may overlap x if it is at a lower address. */
static void move_rows(float *to, const struct llm_tensor *x)
{
    if (x->stride == x->cols) {
        memmove(to, x->data, (size_t)(x->rows * x->cols) * sizeof(float));
        return;
    }
    for (int64_t r = 0; r < x->rows; r++) memmove(to + r * x->cols, x->data + r * x->stride, (size_t)x->cols * sizeof(float));
}

struct llm_tensor *llm_keep_only(struct llm_ctx *c, size_t mark, struct llm_tensor *y)
{
    if (c->tape || llm_ctx_failed(c)) return y;
    const char *floor = c->acts.base + mark;
    struct llm_tensor whole = *y;
    if ((const char *)whole.data < floor) { /* y lies below the mark, or is a view of a tensor that does */
        bool below = (const char *)y < floor;
        llm_arena_pop(&c->acts, mark);
        if (below) return y;
    } else { /* moves the rows to the address at which llm_tensor_create will place the result, before that memory is popped */
        char *to = c->acts.base + (mark + 63) / 64 * 64 + (sizeof whole + 63) / 64 * 64;
        move_rows((float *)(void *)to, &whole);
        llm_arena_pop(&c->acts, mark);
        whole.data = (float *)(void *)to;
        whole.stride = whole.cols;
    }
    y = llm_tensor_create(c, whole.rows, whole.cols);
    if (!llm_ctx_failed(c) && y->data != whole.data) move_rows(y->data, &whole);
    return y;
}

const float *llm_op_vector(struct llm_ctx *c, const struct llm_param *p, int64_t n)
{
    if (llm_ctx_failed(c)) return NULL;
    if (llm_param_count(p) != n) {
        llm_op_fail(c, LLM_EX_FAILURE, "'%s': expected [%lld], found [%lld]", p->name, (long long)n, (long long)llm_param_count(p));
        return NULL;
    }
    if (llm_weight_is_f32(&p->weight)) return p->weight.data;
    float *v = llm_op_alloc(c, n, sizeof *v);
    if (v) llm_weight_decode(&p->weight, 0, n, v);
    return v;
}

struct runs {
    int64_t n, run;
    void (*piece)(void *arg, int64_t from, int64_t to, int thread);
    void *arg;
};

static void runs_piece(void *arg, size_t i, int thread)
{
    const struct runs *w = arg;
    int64_t from = (int64_t)i * w->run, to = from + w->run < w->n ? from + w->run : w->n;
    w->piece(w->arg, from, to, thread);
}

void llm_for_rows(int64_t rows, int64_t cols, void (*piece)(void *arg, int64_t from, int64_t to, int thread), void *arg)
{
    const int64_t elements = 16 << 10;
    if (rows <= 0) return;
    struct runs w = {rows, cols >= elements ? 1 : elements / (cols > 0 ? cols : 1), piece, arg};
    llm_parallel((size_t)((rows + w.run - 1) / w.run), runs_piece, &w);
}

void llm_for_columns(int64_t cols, void (*piece)(void *arg, int64_t from, int64_t to, int thread), void *arg)
{
    struct runs w = {cols, 64, piece, arg};
    if (cols > 0) llm_parallel((size_t)((cols + w.run - 1) / w.run), runs_piece, &w);
}
