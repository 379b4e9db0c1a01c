/* What is minimised. To add one: objective/<name>.c, its row in objective.c. */
#ifndef LLM_TRAIN_OBJECTIVE_H
#define LLM_TRAIN_OBJECTIVE_H

#include "data/batch.h"
#include "model/model.h"
#include "tensor/ops.h"
#include "train/options.h"

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

struct llm_objective;
enum { LLM_MAX_MEANS = 16 };
struct llm_mean { double sum, n; };

/* An objective at work in one run. It owns what the objective needs beside the model that learns, and what it has seen since the last reset. */
struct llm_task {
    const struct llm_objective *objective;
    struct llm_model *model;                /* the model that learns; borrowed */
    struct llm_train_options o;             /* a copy */
    void *own;                              /* the objective's further models and buffers, made by `create`; NULL: none */
    struct llm_mean means[LLM_MAX_MEANS];   /* of objective->means, added to by `run` */
    double beside;                          /* Σ of losses in nats, times their weight, that have a gradient but no place in token_loss */
    struct llm_router_report routers;       /* what backward passes saw of routers */
};

struct llm_objective {
    const char *name, *summary;
    /* Whether it can be asked of the model: 0 or -1. */
    int (*check)(const struct llm_model *m, struct llm_err *e);
    /* What a configuration becomes for it, before there is a model of it. NULL: it stays. */
    int (*configure)(struct llm_config *c, const struct llm_tokens *data, struct llm_err *e);
    /* Makes t->own, once a run, and frees it. Models that it loads (a reference, a teacher) are its own. NULL: it needs nothing. */
    int (*create)(struct llm_task *t, struct llm_err *e);
    void (*destroy)(struct llm_task *t);
    /* Rows are documents, not windows: one becomes row `row`. NULL: they are windows. */
    int (*document)(const struct llm_task *t, struct llm_rows *rows, int64_t row, const struct llm_document *d, struct llm_err *e);
    bool two_texts;             /* documents are two texts, each of which has a row's room */
    bool labelled;              /* documents have classes */
    bool by_pass;               /* a row's loss depends on the other rows of its pass, so that the division of a step changes the result */
    bool other_targets;         /* targets are no tokens: nothing is said by the byte */
    /* Names, in the log, of what `run` adds to llm_task.means: those with something to say follow the loss of a step, and, as val_<name>, that of an
     * evaluation. NULL after the last. */
    const char *means[LLM_MAX_MEANS];
    /* Makes of rows that were cut for the next token those that it learns from. NULL: they stay as they are. */
    int (*remake)(const struct llm_task *t, const struct llm_rows_key *key, struct llm_rows *rows, struct llm_err *e);
    /* Runs the model over rows. With a tape in `c` the gradient of grad_scale · Σ loss is then ready for llm_backward.
     * token_loss [n_rows, row_len]: each token's loss, 0 where none counts. 0 or -1. */
    int (*run)(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *rows, double grad_scale, float *token_loss, struct llm_err *e);
};
/* Checks that the objective can be asked of the model, and makes what it owns. Zero-initialise; release either way. */
int llm_task_init(struct llm_task *t, const struct llm_objective *o, struct llm_model *m, const struct llm_train_options *options, struct llm_err *e)
    LLM_MUST_CHECK;
void llm_task_release(struct llm_task *t);
/* Nothing was seen: between steps, and around an evaluation. */
void llm_task_reset(struct llm_task *t);
/* The mean number i of those that were seen; NaN: there was nothing. */
double llm_task_mean(const struct llm_task *t, int i);

/* The rows as a model takes them, with what the objective's options say of memory, and the routers' report. */
struct llm_batch llm_rows_batch(struct llm_task *t, const struct llm_rows *rows);
/* The sources of rows that have them, as an encoder takes them. */
struct llm_batch llm_rows_source(const struct llm_rows *rows);
/* `run` of objectives that predict the next token of rows as they are. */
int llm_objective_run_next(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *rows, double grad_scale, float *token_loss,
                           struct llm_err *e);
/* The name of the mean that it adds to, the first one: the loss, in nats, of tokens after the next one. */
#define LLM_MEAN_FURTHER "mtp_loss"
/* `run` of objectives whose rows have picks. */
int llm_objective_run_picks(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *rows, double grad_scale, float *token_loss,
                            struct llm_err *e);
/* Whether a model continues texts: 0 or -1. */
int llm_objective_check_next(const struct llm_model *m, struct llm_err *e);
/* Whether the loss of a row depends on the other rows of its pass: by the objective, or by BatchNorm. */
bool llm_objective_by_pass(const struct llm_objective *o, const struct llm_config *c);
extern const struct llm_objective *const llm_objectives[]; /* NULL-terminated */
const struct llm_objective *llm_objective_find(const char *name);

#endif
