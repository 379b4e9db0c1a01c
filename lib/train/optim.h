/* Optimizers: one row each. To add one: optim/<name>.c (and its kernel in cpu/kernels/optim.c), its row in optim.c. */
#ifndef LLM_TRAIN_OPTIM_H
#define LLM_TRAIN_OPTIM_H

#include "cpu/kernels.h"
#include "tensor/tensor.h"

struct llm_optim {
    const char *name;
    const char *m, *v;          /* names of the moments it keeps, in checkpoints; NULL: none */
    void (*update)(const struct llm_optim_span *s, const struct llm_optim_step *o);
};
extern const struct llm_optim *const llm_optims[]; /* NULL-terminated */
const struct llm_optim *llm_optim_find(const char *name);

/* A parameter under training: what llm_param holds, and the moments. */
struct llm_trainable {
    struct llm_param *p;
    float *m, *v;
};

/* √Σ g² over all parameters: sums of blocks of 64 Ki elements added in order. Tied embeddings: the lookup's gradient is first added to the head's.
 * A gradient that is not finite: *bad is the first such parameter and the result is not finite either. */
double llm_grad_norm(struct llm_trainable *t, size_t n, const struct llm_param **bad);
/* One update of everything; clears gradients. `step` has no weight decay for parameters that do not decay. */
void llm_params_update(const struct llm_optim *o, struct llm_trainable *t, size_t n, const struct llm_optim_step *step);

#endif
