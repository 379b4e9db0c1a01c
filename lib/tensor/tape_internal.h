/* What tensor.c, tape.c and grad.c share. */
#ifndef LLM_TENSOR_TAPE_INTERNAL_H
#define LLM_TENSOR_TAPE_INTERNAL_H

#include "tensor/tape.h"

struct llm_grad_block;
struct llm_tape {
    struct llm_node *last;
    struct llm_grad_block *top; /* the highest block of `grads` */
};

/* Undoes what was recorded after `until`. */
void llm_tape_walk(struct llm_ctx *c, const struct llm_node *until);
/* Runs and records a block whose activations then go to c->store, rounded; they come back for its way back (stored.c). */
struct llm_tensor *llm_run_stored(struct llm_ctx *c, struct llm_tensor *(*block)(struct llm_ctx *, void *arg, struct llm_tensor *x), void *arg,
                                  struct llm_tensor *x);

/* Passing values are to be made again before they are read. */
void llm_passing_forget(struct llm_ctx *c);

/* Forgets all blocks. */
void llm_grad_reset(struct llm_ctx *c);
/* Zeroes the columns of a whole tensor's gradient that no view has set; nothing when there is no gradient. */
void llm_grad_finish(struct llm_tensor *x);
/* x no longer needs its gradient. */
void llm_grad_drop(struct llm_ctx *c, struct llm_tensor *x);

#endif
