/* What is minimised. To add one: objective/<name>.c, its row in objective.c. */
#ifndef LLM_TRAIN_OBJECTIVE_H
#define LLM_TRAIN_OBJECTIVE_H

#include "data/batch.h"
#include "model/model.h"

struct llm_objective {
    const char *name, *summary;
    /* Whether it can be asked of the model: 0 or -1. */
    int (*check)(const struct llm_model *m, struct llm_err *e);
    /* Runs the model over rows. With a tape in `c` the gradient of grad_scale · Σ loss is then ready for llm_backward.
     * token_loss [n_rows, row_len]: each token's loss, 0 where none counts. 0 or -1. */
    int (*run)(struct llm_ctx *c, struct llm_model *m, const struct llm_rows *rows, int64_t checkpoint_every, double grad_scale, float *token_loss,
               struct llm_err *e);
};
extern const struct llm_objective *const llm_objectives[]; /* NULL-terminated */
const struct llm_objective *llm_objective_find(const char *name);

#endif
