/* The tape: a list of nodes on `acts`, walked from its end (tensor/tape.h). */
#include <string.h>
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
        if (c->shared[i]) c->shared[i]->owner = 0;
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
    *p = (struct llm_shared_buffer){data, count, 0};
    return c->shared[c->recompute] = p;
}

struct llm_tensor *llm_op_output(struct llm_ctx *c, const struct llm_node *n, int64_t rows, int64_t cols)
{
    bool kept = c->recompute == LLM_KEPT || !llm_tape_wants(c, n);
    int64_t count;
    for (size_t i = 0; i < sizeof n->in / sizeof *n->in; i++) kept |= n->in[i] && whole_of(n->in[i])->shared;
    if (kept || __builtin_mul_overflow(rows, cols, &count)) return llm_tensor_create(c, rows, cols);
    struct llm_tensor *t = llm_op_alloc(c, 1, sizeof *t);
    struct llm_shared_buffer *p = t ? shared_buffer_for(c, (size_t)count) : NULL;
    if (!p) return &c->nothing;
    p->owner = ++c->n_owners;
    *t = (struct llm_tensor){.rows = rows, .cols = cols, .stride = cols, .data = p->data, .shared = p, .owner_id = p->owner};
    return t;
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
    }
    return llm_tape_wants(c, n) ? llm_tape_push(c, n, args, n_args) : n->out;
}

void llm_tape_walk(struct llm_ctx *c, const struct llm_node *until)
{
    struct llm_node *n;
    while ((n = c->tape->last) != until) {
        size_t mark = n->mark;
        c->tape->last = n->before;
        if (n->out->grad && !llm_ctx_failed(c)) {
            llm_grad_finish(n->out);
            recompute_inputs(c, n);
            n->backward(c, n);
        }
        llm_grad_drop(c, n->out);
        llm_arena_pop(&c->acts, mark);
    }
}

void llm_backward(struct llm_ctx *c)
{
    if (c->tape) llm_tape_walk(c, NULL);
}
