/* A block of operations, kept for the backward pass in one of three ways: as it is, rounded (stored.c), or not at all. In the last case, activation
 * checkpointing, the backward pass runs the block again. */
#include "tensor/tape_internal.h"

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
    c->recomputing = true;
    struct llm_tensor *again = a->block(c, a->arg, n->in[0]);
    c->recomputing = false;
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
    return llm_tape_push(c, &n, &args, sizeof args); /* the backward pass finds out whether a parameter in the block takes a gradient */
}
