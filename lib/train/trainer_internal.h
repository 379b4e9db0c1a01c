/* What the files of a trainer share: trainer.c (its life), source.c (rows), pass.c, leave.c, step.c, eval.c, not_finite.c. */
#ifndef LLM_TRAIN_TRAINER_INTERNAL_H
#define LLM_TRAIN_TRAINER_INTERNAL_H

#include "train/trainer.h"

/* ---- source.c ---- */
/* Decides the order of the training data, its held-out share, and the model's class of each label. 0 or -1: the data does not serve. */
int llm_trainer_place_data(struct llm_trainer *t, struct llm_err *e) LLM_MUST_CHECK;
/* With --carry-state: memory for the rows' states before and after a step. After t->rows. */
int llm_trainer_place_states(struct llm_trainer *t, struct llm_err *e) LLM_MUST_CHECK;
/* Makes row `row` document `number` of the training data, or of the validation file. */
int llm_trainer_put_document(struct llm_trainer *t, struct llm_rows *rows, int64_t row, bool val, uint64_t number, struct llm_err *e) LLM_MUST_CHECK;

/* ---- survey.c ---- */
/* Runs the objective over all training documents, without a gradient, so that what it checks of them is checked before any of them changes the
 * weights. 0, 1 (a signal was caught) or -1. */
int llm_trainer_survey(struct llm_trainer *t, struct llm_err *e) LLM_MUST_CHECK;

/* ---- pass.c ---- */
/* The rows that one gradient is of: the step's, or a replica's. */
struct llm_whole { int64_t first, n; double weight; };
/* Rows [first, end) of the step, of one shard; none if the shard has no rows. Zeroed: before the first pass. */
struct llm_trainer_pass {
    int64_t shard, first, end;
    bool ends_shard;
    int64_t number;             /* of the pass, from 0 */
    bool idle;                  /* of no rows: other ranks of the group have some that need this rank's experts */
    int64_t idle_left;          /* such passes that are left */
};
/* The next pass over the run's shards, each pass as far as it lies in one shard. With zero 2 and 3 a shard is one pass (llm_share_check). False:
 * there is none. */
bool llm_pass_next(const struct llm_trainer *t, const struct llm_whole *whole, struct llm_shard_run run, struct llm_trainer_pass *p);
/* The rows that a pass runs: an idle one has a row in which no loss counts. */
struct llm_rows llm_pass_rows(const struct llm_trainer *t, const struct llm_trainer_pass *p);
/* Of a rank whose group divides experts: which pass ends which shard of which member, and what idle passes need. After t->rows. 0 or -1. */
int llm_pass_place_members(struct llm_trainer *t, struct llm_err *e) LLM_MUST_CHECK;
/* The backward pass. An idle one adds nothing to the counts and the statistics of routers. */
void llm_pass_backward(struct llm_trainer *t, struct llm_ctx *c, const struct llm_trainer_pass *p);
/* Runs the objective over the pass's rows, which llm_rows_part has cut, or this rank's part of each, which goes to `own` if ranks divide rows. Both
 * must live until the backward pass. 0 or -1. */
int llm_pass_forward(struct llm_trainer *t, struct llm_ctx *c, const struct llm_whole *whole, const struct llm_trainer_pass *p,
                     const struct llm_rows *rows, struct llm_rows *own, struct llm_err *e) LLM_MUST_CHECK;

/* ---- step.c ---- */
/* Adds the losses of targets [n_rows, row_len], times their weights, to *sum one by one in the order of tokens, so that the sum does not depend on
 * how rows are divided into passes. *bytes: the bytes of the targets' texts, times the same weights. */
void llm_trainer_fold(const struct llm_trainer *t, const struct llm_rows *rows, const float *loss, double *sum, double *bytes);

/* ---- leave.c ---- */
/* Whether the rank computes its passes together with others. */
static inline bool llm_trainer_joins(const struct llm_trainer *t) { return t->group || t->experts || t->sequence.group; }
/* Tells the rank's groups that it has left its passes (llm_group_say). 0 or -1. */
int llm_trainer_say(struct llm_trainer *t, struct llm_err *e) LLM_MUST_CHECK;
/* After the passes of a step or of an evaluation, if the rank is a member of a group: waits until all of its groups have left them. A result *got of
 * -1 becomes 0 if the rank's pass failed because another rank had left it: that one knows the reason. 0 or -1. */
int llm_trainer_leave(struct llm_trainer *t, int *got, struct llm_err *e) LLM_MUST_CHECK;
/* Before a pass without gradients, of which `got` is known so far: if ranks exchange weights or activations in it they agree, so that none takes it
 * alone. t->eval_agreed: they have, on a result other than 0. */
int llm_trainer_agree_on_pass(struct llm_trainer *t, int got, struct llm_err *e) LLM_MUST_CHECK;

/* ---- not_finite.c ---- */
/* The name of the first parameter, in the order of the model, whose master (or gradient) is not finite; NULL: all are. */
const char *llm_trainer_first_bad(const struct llm_trainer *t, bool gradients);
/* Fails with a message that names the first bad tensor of gradients whose norm is not finite; `bad` if no rank has all of them. -1. */
int llm_trainer_norm_not_finite(const struct llm_trainer *t, double norm, const struct llm_param *bad, struct llm_err *e);
/* Fails with a message that names the first bad tensor of rows whose loss is not finite. -1. */
int llm_trainer_not_finite(struct llm_trainer *t, const struct llm_rows *rows, double loss, struct llm_err *e);

#endif
