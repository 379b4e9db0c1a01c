/* What is minimised. To add one: objective/<name>.c, its row in objective.c. */
#ifndef LLM_TRAIN_OBJECTIVE_H
#define LLM_TRAIN_OBJECTIVE_H

#include "data/batch.h"
#include "train/options.h"
#include "model/model.h"

/* Which rows these are, for random numbers: the same for the same data wherever the run was interrupted. */
struct llm_rows_key {
    uint64_t seed, step;
    int64_t first_row;
};
#define LLM_EVAL_STEP (UINT64_C(1) << 63) /* the step of evaluations, whose rows are windows of the data */

/* A document that becomes a row. */
struct llm_document {
    const int32_t *ids;
    const uint8_t *mask;        /* loss mask */
    int64_t n;
    int32_t label;              /* its class, of objectives that take classes */
};

struct llm_objective {
    const char *name, *summary;
    /* Whether it can be asked of the model: 0 or -1. */
    int (*check)(const struct llm_model *m, struct llm_err *e);
    /* What a configuration becomes for it, before there is a model of it. NULL: it stays. */
    int (*configure)(struct llm_config *c, const struct llm_tokens *data, struct llm_err *e);
    /* Rows are documents, not windows: one becomes row `row`. NULL: they are windows. */
    int (*document)(const struct llm_model *m, struct llm_rows *rows, int64_t row, const struct llm_document *d, struct llm_err *e);
    bool two_texts;             /* documents are two texts, each of which has a row's room */
    bool labelled;              /* documents have classes */
    bool by_pass;               /* a row's loss depends on the other rows of its pass, so that the division of a step changes the result */
    bool other_targets;         /* targets are no tokens: nothing is said by the byte */
    const char *judged;         /* what the share of right answers is called, which `run` counts in the context when not training; NULL: nothing */
    /* Makes of rows that were cut for the next token those that it learns from. NULL: they stay as they are. */
    int (*remake)(const struct llm_model *m, const struct llm_train_options *o, const struct llm_rows_key *key, struct llm_rows *rows,
                  struct llm_err *e);
    /* Runs the model over rows. With a tape in `c` the gradient of grad_scale · Σ loss is then ready for llm_backward.
     * token_loss [n_rows, row_len]: each token's loss, 0 where none counts. 0 or -1. */
    int (*run)(struct llm_ctx *c, struct llm_model *m, const struct llm_rows *rows, int64_t checkpoint_every, double grad_scale, float *token_loss,
               struct llm_err *e);
};
/* The sources of rows that have them, as an encoder takes them. */
struct llm_batch llm_rows_source(const struct llm_rows *rows);
/* `run` of objectives that predict the next token of rows as they are. */
int llm_objective_run_next(struct llm_ctx *c, struct llm_model *m, const struct llm_rows *rows, int64_t checkpoint_every, double grad_scale,
                           float *token_loss, struct llm_err *e);
/* Whether a model continues texts: 0 or -1. */
int llm_objective_check_next(const struct llm_model *m, struct llm_err *e);
/* Whether the loss of a row depends on the other rows of its pass: by the objective, or by BatchNorm. */
bool llm_objective_by_pass(const struct llm_objective *o, const struct llm_config *c);
extern const struct llm_objective *const llm_objectives[]; /* NULL-terminated */
/* `run` of objectives whose rows have picks. */
int llm_objective_run_picks(struct llm_ctx *c, struct llm_model *m, const struct llm_rows *rows, int64_t checkpoint_every, double grad_scale,
                            float *token_loss, struct llm_err *e);
const struct llm_objective *llm_objective_find(const char *name);

#endif
