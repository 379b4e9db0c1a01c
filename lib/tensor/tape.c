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
        if (n->param[i] && n->param[i]->grad) return true;
    }
    return false;
}

static struct llm_tensor *push(struct llm_ctx *c, const struct llm_node *n, const void *args, size_t n_args)
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
    return copy->out;
}

struct llm_tensor *llm_record(struct llm_ctx *c, const struct llm_node *n, const void *args, size_t n_args)
{
    if (llm_ctx_failed(c)) return &c->nothing;
    return llm_tape_wants(c, n) ? push(c, n, args, n_args) : n->out;
}

void llm_tape_walk(struct llm_ctx *c, const struct llm_node *until)
{
    struct llm_node *n;
    while ((n = c->tape->last) != until) {
        size_t mark = n->mark;
        c->tape->last = n->before;
        if (n->out->grad && !llm_ctx_failed(c)) {
            llm_grad_finish(n->out);
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

/* ---- activation checkpointing ---- */

struct checkpoint_args {
    struct llm_tensor *(*block)(struct llm_ctx *, void *arg, struct llm_tensor *x);
    void *arg;
    uint32_t layer;
};

static void checkpoint_backward(struct llm_ctx *c, struct llm_node *n)
{
    const struct checkpoint_args *a = n->args;
    const struct llm_node *until = c->tape->last;
    uint32_t layer = c->layer;
    c->layer = a->layer;
    struct llm_tensor *again = a->block(c, a->arg, n->in[0]);
    if (!llm_ctx_failed(c)) {
        llm_grad_pass(c, again, n->out);
        llm_grad_drop(c, n->out);
        llm_tape_walk(c, until);
    }
    c->layer = layer;
}

struct llm_tensor *llm_run_block(struct llm_ctx *c, struct llm_tensor *(*block)(struct llm_ctx *, void *arg, struct llm_tensor *x),
                                 void *arg, struct llm_tensor *x, bool keep)
{
    if (llm_ctx_failed(c)) return &c->nothing;
    if (c->tape && keep) return c->stored == LLM_STORED_F32 ? block(c, arg, x) : llm_run_stored(c, block, arg, x);
    struct llm_tape *tape = c->tape;
    struct checkpoint_args args = {block, arg, c->layer};
    struct llm_node n = {.backward = checkpoint_backward, .mark = llm_arena_mark(&c->acts), .in = {x}};
    c->tape = NULL;
    struct llm_tensor *y = block(c, arg, x);
    n.out = llm_keep_only(c, n.mark, y);
    c->tape = tape;
    if (!tape || llm_ctx_failed(c) || n.out == x) return n.out;
    return push(c, &n, &args, sizeof args); /* whether a parameter in the block takes a gradient is found out on the way back */
}
