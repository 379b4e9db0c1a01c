/* What the files of the tape share. Each calls those before it only: tensor.c, grad.c, tape.c, stored.c, block.c, context.c. */
#ifndef LLM_TENSOR_TAPE_INTERNAL_H
#define LLM_TENSOR_TAPE_INTERNAL_H

#include "tensor/tape.h"

struct llm_grad_block;
struct llm_tape {
    struct llm_node *last;
    struct llm_grad_block *top; /* the highest block of `grads` */
};

/* Appends a copy of the node to the tape, which must be recording. Returns its output; c->nothing if memory is used up. */
struct llm_tensor *llm_tape_push(struct llm_ctx *c, const struct llm_node *n, const void *args, size_t n_args);
/* Runs the backward functions of all nodes recorded after `until`, last first, and frees the nodes. */
void llm_tape_walk(struct llm_ctx *c, const struct llm_node *until);
/* Runs and records a block, then moves its activations to c->store, rounded to c->stored. The block's backward pass moves them back (stored.c). */
struct llm_tensor *llm_run_stored(struct llm_ctx *c, struct llm_tensor *(*block)(struct llm_ctx *, void *arg, struct llm_tensor *x), void *arg,
                                  struct llm_tensor *x);

/* Empties the shared buffers: recomputed activations are recomputed before the next read. */
void llm_recompute_reset(struct llm_ctx *c);

/* Frees all blocks of `grads`. */
void llm_grad_reset(struct llm_ctx *c);
/* Zeroes the columns of x's gradient that no view has set. x is no view; nothing happens if it has no gradient. */
void llm_grad_finish(struct llm_tensor *x);
/* Releases x's reference to its gradient. */
void llm_grad_drop(struct llm_ctx *c, struct llm_tensor *x);

#endif
