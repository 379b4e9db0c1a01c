/* Gradients of activations: reference-counted blocks on the arena `grads`. A new block takes the lowest free memory that fits, so a backward pass, in
 * which few gradients live at once, reuses the same memory for every layer. Blocks are in address order. Free neighbours are joined, and a free block
 * at the top is popped. */
#include <string.h>
#include "cpu/kernels.h"
#include "tensor/tape_internal.h"

enum { SETS = 4 };

struct llm_grad_block {
    size_t bytes;                          /* with this header */
    struct llm_grad_block *below, *above;  /* neighbours */
    int refs;                              /* 0: free */
    int n_sets;                            /* disjoint runs of columns written so far; all columns are one run */
    int64_t sets[SETS][2];
};

enum { HEADER = (sizeof(struct llm_grad_block) + 63) / 64 * 64 };

static struct llm_grad_block *block_of(const struct llm_tensor *whole)
{
    return (struct llm_grad_block *)((char *)whole->grad - HEADER);
}

void llm_grad_reset(struct llm_ctx *c)
{
    c->tape->top = NULL;
    llm_arena_pop(&c->grads, 0);
}

/* Splits b: what it does not need of its memory becomes a free block above it. */
static void block_split(struct llm_ctx *c, struct llm_grad_block *b, size_t bytes)
{
    if (b->bytes - bytes < 4096) return;
    struct llm_grad_block *rest = (struct llm_grad_block *)((char *)b + bytes);
    *rest = (struct llm_grad_block){.bytes = b->bytes - bytes, .below = b, .above = b->above};
    if (rest->above) rest->above->below = rest;
    else c->tape->top = rest;
    b->above = rest;
    b->bytes = bytes;
}

/* A block for `count` floats. NULL and a sticky failure if `grads` is used up. */
static float *block_create(struct llm_ctx *c, int64_t count)
{
    if (llm_ctx_failed(c)) return NULL;
    size_t bytes = HEADER + ((size_t)count * sizeof(float) + 63) / 64 * 64;
    struct llm_grad_block *b = c->tape->top, *lowest = NULL;
    for (; b; b = b->below) {
        if (b->refs == 0 && b->bytes >= bytes) lowest = b;
    }
    if (lowest) {
        b = lowest;
        block_split(c, b, bytes);
    } else {
        b = llm_arena_alloc(&c->grads, bytes);
        if (!b) {
            llm_op_fail(c, EX_UNAVAILABLE, "gradients of activations: expected at most %zu MiB, found more", c->grads.limit >> 20);
            return NULL;
        }
        *b = (struct llm_grad_block){.bytes = bytes, .below = c->tape->top};
        if (b->below) b->below->above = b;
        c->tape->top = b;
    }
    b->refs = 1;
    b->n_sets = 0;
    return (float *)((char *)b + HEADER);
}

/* Joins b with the free block above it. */
static void block_join(struct llm_ctx *c, struct llm_grad_block *b)
{
    b->bytes += b->above->bytes;
    b->above = b->above->above;
    if (b->above) b->above->below = b;
    else c->tape->top = b;
}

static void block_unref(struct llm_ctx *c, struct llm_grad_block *b)
{
    if (--b->refs > 0) return;
    if (b->above && b->above->refs == 0) block_join(c, b);
    if (b->below && b->below->refs == 0) {
        b = b->below;
        block_join(c, b);
    }
    if (c->tape->top != b) return;
    c->tape->top = b->below;
    if (b->below) b->below->above = NULL;
    llm_arena_pop(&c->grads, (size_t)((char *)b - c->grads.base));
}

void llm_grad_drop(struct llm_ctx *c, struct llm_tensor *x)
{
    if (!x->grad) return;
    block_unref(c, block_of(x));
    x->grad = NULL;
}

static void zero_columns(struct llm_tensor *whole, int64_t from, int64_t to)
{
    if (from == to) return;
    for (int64_t r = 0; r < whole->rows; r++) {
        memset(whole->grad + r * whole->grad_stride + from, 0, (size_t)(to - from) * sizeof(float));
    }
}

/* Zeroes the columns that are not set, and marks all as set. */
static void block_complete(struct llm_grad_block *b, struct llm_tensor *whole)
{
    for (int i = 1; i < b->n_sets; i++) {
        for (int j = i; j > 0 && b->sets[j - 1][0] > b->sets[j][0]; j--) {
            int64_t swap[2] = {b->sets[j][0], b->sets[j][1]};
            memcpy(b->sets[j], b->sets[j - 1], sizeof swap);
            memcpy(b->sets[j - 1], swap, sizeof swap);
        }
    }
    int64_t from = 0;
    for (int i = 0; i < b->n_sets; i++) {
        zero_columns(whole, from, b->sets[i][0]);
        from = b->sets[i][1];
    }
    zero_columns(whole, from, whole->cols);
    b->n_sets = 1;
    b->sets[0][0] = 0;
    b->sets[0][1] = whole->cols;
}

void llm_grad_finish(struct llm_tensor *x)
{
    if (x->grad) block_complete(block_of(x), x);
}

/* Marks columns [from, to) as set and joins adjacent runs. False: they had values before, or have just been set to zero. */
static bool block_set(struct llm_grad_block *b, struct llm_tensor *whole, int64_t from, int64_t to)
{
    int touching = -1;
    for (int i = 0; i < b->n_sets; i++) {
        if (from >= b->sets[i][0] && to <= b->sets[i][1]) return false;
        if (from < b->sets[i][1] && to > b->sets[i][0]) {
            block_complete(b, whole);
            return false;
        }
        if (from == b->sets[i][1] || to == b->sets[i][0]) touching = i;
    }
    if (touching >= 0) {
        if (from == b->sets[touching][1]) b->sets[touching][1] = to;
        else b->sets[touching][0] = from;
        return true;
    }
    if (b->n_sets == SETS) {
        block_complete(b, whole);
        return false;
    }
    b->sets[b->n_sets][0] = from;
    b->sets[b->n_sets][1] = to;
    b->n_sets++;
    return true;
}

/* Gives `whole` a copy of its gradient if other tensors share the block; to be called before a write. False after a failure. */
static bool own_block(struct llm_ctx *c, struct llm_tensor *whole)
{
    struct llm_grad_block *shared = block_of(whole);
    if (shared->refs == 1) return true;
    float *copy = block_create(c, whole->rows * whole->cols);
    if (!copy) return false;
    memcpy(copy, whole->grad, (size_t)(whole->rows * whole->cols) * sizeof(float));
    shared->refs--;
    whole->grad = copy;
    struct llm_grad_block *b = block_of(whole);
    b->n_sets = shared->n_sets;
    memcpy(b->sets, shared->sets, sizeof b->sets);
    return true;
}

bool llm_grad_open(struct llm_ctx *c, struct llm_tensor *x, struct llm_grad *g)
{
    struct llm_tensor *whole = x->base ? x->base : x;
    if (!x->needs_grad || llm_ctx_failed(c)) return false;
    if (whole->grad) {
        if (!own_block(c, whole)) return false;
    } else {
        whole->grad = block_create(c, whole->rows * whole->cols);
        whole->grad_stride = whole->cols;
        if (!whole->grad) return false;
    }
    g->add = !block_set(block_of(whole), whole, x->column, x->column + x->cols);
    g->p = whole->grad + x->column;
    g->stride = whole->grad_stride;
    return true;
}

bool llm_grad_open_zeroed(struct llm_ctx *c, struct llm_tensor *x, struct llm_grad *g)
{
    if (!llm_grad_open(c, x, g)) return false;
    for (int64_t r = 0; !g->add && r < x->rows; r++) memset(g->p + r * g->stride, 0, (size_t)x->cols * sizeof(float));
    g->add = true;
    return true;
}

bool llm_grad_open_over(struct llm_ctx *c, struct llm_tensor *x, struct llm_tensor *y, struct llm_grad *g)
{
    if (!x->needs_grad || llm_ctx_failed(c)) return false;
    if (x->base || x->grad || y->base || block_of(y)->refs != 1) return llm_grad_open(c, x, g);
    x->grad = y->grad;
    x->grad_stride = y->grad_stride;
    y->grad = NULL;
    *g = (struct llm_grad){x->grad, x->grad_stride, false};
    return true;
}

struct add_work { struct llm_grad to; const float *from; int64_t from_stride, cols; };

static void add_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct add_work *w = arg;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        float *out = w->to.p + r * w->to.stride;
        const float *in = w->from + r * w->from_stride;
        if (!w->to.add) memcpy(out, in, (size_t)w->cols * sizeof(float));
        else llm_k.elementwise.add(out, out, in, (size_t)w->cols);
    }
}

void llm_grad_give(const struct llm_grad *g, const float *x, int64_t stride, int64_t rows, int64_t cols)
{
    struct add_work w = {.to = *g, .from = x, .from_stride = stride, .cols = cols};
    llm_for_rows(rows, cols, add_rows, &w);
}

void llm_grad_pass(struct llm_ctx *c, struct llm_tensor *x, struct llm_tensor *y)
{
    if (!x->needs_grad || llm_ctx_failed(c)) return;
    if (!x->base && !x->grad && !y->base) {
        x->grad = y->grad;
        x->grad_stride = y->grad_stride;
        block_of(y)->refs++;
        return;
    }
    struct llm_grad g;
    if (llm_grad_open(c, x, &g)) llm_grad_give(&g, y->grad, y->grad_stride, x->rows, x->cols);
}

float *llm_tensor_grad(struct llm_ctx *c, struct llm_tensor *x)
{
    struct llm_grad g;
    return llm_grad_open_zeroed(c, x, &g) ? g.p : NULL;
}
