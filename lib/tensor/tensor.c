/* Tensors, and what operations allocate and run by (tensor/tensor.h). */
#include <stdio.h>
#include <string.h>
#include "cpu/pool.h"
#include "tensor/tape.h"

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
    if (from < 0 || n < 0 || from > x->cols - n || x->panels) {
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
