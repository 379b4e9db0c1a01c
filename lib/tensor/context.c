/* The context of operations: its arenas, tape and shared buffers, made, reset and released (tensor/tensor.h). */
#include <stdlib.h>
#include "base/buf.h"
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
