/* The tape: a list of nodes on `acts`, walked from its end (tensor/tape.h). */
#include <stdatomic.h>
#include <string.h>
#include "cpu/pool.h"
#include "tensor/tape_internal.h"

bool llm_tape_wants(const struct llm_ctx *c, const struct llm_node *n)
{
    if (!c->tape) return false;
    for (size_t i = 0; i < sizeof n->in / sizeof *n->in; i++) {
        if (n->in[i] && n->in[i]->needs_grad) return true;
    }
    for (size_t i = 0; i < sizeof n->param / sizeof *n->param; i++) {
        if (n->param[i] && (n->param[i]->grad || n->param[i]->kronecker)) return true;
    }
    return false;
}

/* ---- activation recomputation ---- */

void llm_recompute_reset(struct llm_ctx *c)
{
    for (int i = 0; i < LLM_RECOMPUTE_KINDS; i++) {
        for (struct llm_shared_buffer *p = c->shared[i]; p; p = p->smaller) p->owner = 0;
    }
}

static const struct llm_tensor *whole_of(const struct llm_tensor *x)
{
    return x->base ? x->base : x;
}

static bool is_gone(const struct llm_tensor *x)
{
    return x->shared && x->shared->owner != x->owner_id;
}

/* The shared buffer of kind c->recompute, with room for `count` floats. If the current one is too small a larger one replaces it; earlier activations
 * keep theirs. NULL and a sticky failure if memory is used up. */
static struct llm_shared_buffer *shared_buffer_for(struct llm_ctx *c, size_t count)
{
    struct llm_shared_buffer *p = c->shared[c->recompute];
    if (p && p->count >= count) return p;
    p = llm_arena_alloc(&c->shared_arena, sizeof *p);
    float *data = p && count <= SIZE_MAX / sizeof *data ? llm_arena_alloc(&c->shared_arena, count * sizeof *data) : NULL;
    if (!data) {
        llm_op_fail(c, EX_UNAVAILABLE, "activations: expected at most %zu MiB, found more", c->shared_arena.limit >> 20);
        return NULL;
    }
    *p = (struct llm_shared_buffer){.data = data, .count = count, .smaller = c->shared[c->recompute]};
    return c->shared[c->recompute] = p;
}

struct llm_tensor *llm_op_output(struct llm_ctx *c, const struct llm_node *n, int64_t rows, int64_t cols)
{
    bool kept = c->recompute == LLM_KEPT || !llm_tape_wants(c, n);
    int64_t count;
    for (size_t i = 0; i < sizeof n->in / sizeof *n->in; i++) kept |= n->in[i] && whole_of(n->in[i])->shared;
    bool panels = c->to_panels && (!kept || !c->tape);
    if ((kept && !panels) || __builtin_mul_overflow(rows, cols, &count)) return llm_tensor_create(c, rows, cols);
    if (panels) count = (int64_t)(llm_panels_bytes(rows, cols) / sizeof(float));
    struct llm_tensor *t = llm_op_alloc(c, 1, sizeof *t);
    struct llm_shared_buffer *p = t && !kept ? shared_buffer_for(c, (size_t)count) : NULL;
    float *data = p ? p->data : t && kept ? llm_op_alloc(c, count, sizeof *data) : NULL;
    if (!data) return &c->nothing;
    *t = (struct llm_tensor){.rows = rows, .cols = cols, .stride = cols, .data = data, .panels = panels, .shared = p};
    if (p) t->owner_id = p->owner = ++c->n_owners;
    return t;
}

struct fill {
    struct llm_tensor *y;
    void (*piece)(const void *arg, int64_t from, int64_t to, float *rows, int64_t ld);
    const void *arg;
    atomic_bool no_memory;
};

/* Panels take one row after another, which the first cache holds. */
static void fill_run(void *arg, int64_t from, int64_t to, int thread)
{
    struct fill *f = arg;
    if (!f->y->panels) {
        f->piece(f->arg, from, to, f->y->data + from * f->y->stride, f->y->stride);
        return;
    }
    float *row = llm_scratch(thread, (size_t)f->y->cols * sizeof *row);
    for (int64_t r = from; r < to && row; r++) {
        f->piece(f->arg, r, r + 1, row, f->y->cols);
        llm_panels_put(row, r, 0, f->y->cols, f->y->cols, f->y->data);
    }
    if (!row) atomic_store(&f->no_memory, true);
}

void llm_fill_rows(struct llm_ctx *c, struct llm_tensor *y, void (*piece)(const void *arg, int64_t from, int64_t to, float *rows, int64_t ld),
                   const void *arg)
{
    struct fill f = {.y = y, .piece = piece, .arg = arg};
    llm_for_rows(y->rows, y->cols, fill_run, &f);
    if (atomic_load(&f.no_memory)) llm_op_fail(c, EX_UNAVAILABLE, "out of memory in packed activations");
}

/* Recomputes the inputs of n whose shared buffer another activation owns. Their own inputs are kept (llm_op_output), so this does not recur. */
static void recompute_inputs(struct llm_ctx *c, struct llm_node *n)
{
    for (size_t i = 0; i < sizeof n->in / sizeof *n->in; i++) {
        const struct llm_tensor *x = n->in[i] ? whole_of(n->in[i]) : NULL;
        if (!x || !is_gone(x)) continue;
        x->maker->recompute(c, x->maker);
        x->shared->owner = x->owner_id;
        if (x->edited) x->edited->look(x->edited, c, 0, x->data, x->rows, x->cols, x->stride, true);
    }
}

struct llm_tensor *llm_tape_push(struct llm_ctx *c, const struct llm_node *n, const void *args, size_t n_args)
{
    struct llm_node *copy = llm_op_alloc(c, 1, sizeof *copy);
    void *args_copy = n_args ? llm_op_alloc(c, 1, n_args) : NULL;
    if (llm_ctx_failed(c)) return &c->nothing;
    *copy = *n;
    if (n_args) memcpy(args_copy, args, n_args);
    copy->args = args_copy;
    copy->boundary = c->boundary;
    c->boundary = 0;
    copy->before = c->tape->last;
    c->tape->last = copy;
    copy->out->needs_grad = true;
    copy->out->maker = copy;
    return copy->out;
}

struct llm_tensor *llm_record(struct llm_ctx *c, const struct llm_node *n, const void *args, size_t n_args)
{
    if (llm_ctx_failed(c)) return &c->nothing;
    for (size_t i = 0; i < sizeof n->in / sizeof *n->in; i++) {
        if (n->in[i] && is_gone(whole_of(n->in[i]))) {
            return llm_op_fail(c, LLM_EX_FAILURE, "tape: expected the values of a recomputed activation, found those of a later one");
        }
        if (n->in[i] && n->in[i]->panels && (i > 0 || !n->reads_panels)) {
            return llm_op_fail(c, LLM_EX_FAILURE, "tape: expected an input of floats, found one that is packed for matrix products");
        }
    }
    return llm_tape_wants(c, n) ? llm_tape_push(c, n, args, n_args) : n->out;
}

void llm_tape_walk(struct llm_ctx *c, const struct llm_node *until)
{
    struct llm_node *n;
    while ((n = c->tape->last) != until) {
        size_t mark = n->mark;
        const int64_t boundary = n->boundary;
        c->tape->last = n->before;
        if (n->out->grad && !llm_ctx_failed(c)) {
            llm_grad_finish(n->out);
            recompute_inputs(c, n);
            n->backward(c, n);
        }
        llm_grad_drop(c, n->out);
        llm_arena_pop(&c->acts, mark);
        if (boundary > 0 && c->between) c->between->left(c->between, c, boundary - 1);
    }
}

void llm_backward(struct llm_ctx *c)
{
    if (c->tape) llm_tape_walk(c, NULL);
}
