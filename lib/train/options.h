/* What of a training run changes its result. Travels in checkpoints; threads, paths of outputs and times do not. */
#ifndef LLM_TRAIN_OPTIONS_H
#define LLM_TRAIN_OPTIONS_H

#include <stdint.h>
#include "base/json.h"
#include "base/pattern.h"
#include "train/objective_options.h"

/* In what the gradients of shards, or the distances of replicas, are added. */
enum llm_gradients {
    LLM_GRADIENTS_F32,          /* in the tree of train/shards.h */
    LLM_GRADIENTS_INT8          /* train/share.h */
};
/* What makes one model of replicas that are trained apart (train/outer.h). */
enum llm_outer_kind { LLM_OUTER_NONE, LLM_OUTER_DILOCO };

struct llm_train_options {
    int64_t steps, batch, context, accumulate; /* a step is batch × accumulate rows of `context` tokens: `accumulate` passes of `batch` rows. Stored
                                                * is their product alone, "rows" */
    int64_t batch_tokens;                      /* > 0: maximum tokens of a step. Of windows the trainer makes `batch` and `accumulate` of it; of
                                                * documents (llm_objective.by_tokens) it is stored, and "rows" is not */
    int64_t grad_shards;                       /* shards of a step's rows in whose tree the gradient is summed (train/shards.h); stored unless 1 */
    int64_t tensor_parts;                      /* slices into which matrices of layers are cut (tensor/slices.h); stored unless 1 */
    int64_t seq_parts;                         /* parts of rows whose gradients are apart (tensor/sequence.h); stored unless 1 */
    int gradients;                             /* enum llm_gradients; stored unless LLM_GRADIENTS_F32 */
    int outer;                                 /* enum llm_outer_kind; it, and the four below, are stored unless there is none */
    int64_t replicas, inner_steps;             /* of the outer optimizer (train/outer.h); 0: its own */
    double outer_lr, outer_momentum;           /* -1: its own */
    double epochs;                             /* > 0: the trainer sets steps to so many passes over the data; not stored */
    double lr, min_lr;
    int64_t warmup;
    double decay_fraction;                     /* schedules with a last part */
    int decay_style;                           /* enum llm_decay_style */
    int schedule, optimizer, objective;        /* rows of llm_schedules, llm_optims, llm_objectives */
    double beta1, beta2, eps, momentum, weight_decay, clip; /* clip 0: none; beta2, eps, momentum -1: the optimizer's own */
    int nesterov;                              /* -1: the optimizer's own */
    double muon_lr;                            /* of the matrices that Muon moves; -1: by its scale */
    int muon_scale;                            /* enum llm_muon_scale */
    int64_t mup_base_width;                    /* learning rates by width, as train/mup.h; 0: no */
    double z_loss;                             /* × logsumexp² of a token's logits, added to its loss */
    double ema;                                /* decay of the average of the weights; 0: none is kept */
    int eval_ema;                              /* validate the average */
    struct llm_objective_values own;           /* of the objectives' own options (train/objective_options.h) */
    int precision;                             /* LLM_COMPUTE_F32, LLM_COMPUTE_BF16 */
    int order;                                 /* enum llm_order_kind */
    int cross_document, overfit_one, stream;   /* stream: one pass over the data as it comes; `order` has no say */
    int carry_state;                           /* rows go on where those of the step before ended; `order` has no say */
    int keep_zeros;                            /* elements of matrices within layers that are 0 stay 0; stored only if set */
    int activations;                           /* enum llm_stored */
    double activations_share;                  /* of LLM_STORED_TOP, within (0, 1]; else 0 */
    int64_t activations_rank;                  /* of LLM_STORED_RANK, at least 1; else 0 */
    double dropout;                            /* -1: the configuration's. Stored unless -1: some families have no key for it */
    int64_t checkpoint_every;                  /* activation checkpointing; does not change the result */
    int64_t eval_every, eval_rows;             /* 0: only at the end; all rows */
    int64_t seed;
    struct llm_patterns train, freeze;         /* of parameters' names: those that are trained (none: all), and of these those that are not. The texts
                                                * are the command line's, or those of the checkpoint that they were read from */
};
/* Names of rows and values by index, NULL after the last: words of the options of the same name (struct llm_words). */
const char *llm_objective_word(int i);
const char *llm_optim_word(int i);
const char *llm_schedule_word(int i);
const char *llm_decay_word(int i);
const char *llm_order_word(int i);
const char *llm_muon_word(int i);
const char *llm_stored_word(int i);
const char *llm_outer_word(int i);
const char *llm_gradients_word(int i);
/* Reads "f32", "bf16", "int8", "top=SHARE" or "rank=R" into the three fields. 0, or -1 (LLM_EX_USAGE). */
int llm_train_options_stored(struct llm_train_options *o, const char *text, struct llm_err *e) LLM_MUST_CHECK;
void llm_train_options_default(struct llm_train_options *o);
/* New reference; NULL and `e` on failure. */
json_t *llm_train_options_to_json(const struct llm_train_options *o, struct llm_err *e) LLM_MUST_CHECK;
/* Keys that are absent keep their values. "rows" without "batch" is divided into passes as llm_train_options_divide does it. */
int llm_train_options_from_json(struct llm_train_options *o, const json_t *j, struct llm_err *e) LLM_MUST_CHECK;
/* The division into passes of a run that goes on, whose rows a step are stored->batch × stored->accumulate: o->batch and o->accumulate, of which 0
 * was not given. Both given: theirs is the number of rows. One given: it must divide the run's rows (else LLM_EX_USAGE). None: as stored. */
int llm_train_options_divide(struct llm_train_options *o, const struct llm_train_options *stored, struct llm_err *e) LLM_MUST_CHECK;
/* What was not given becomes what a run takes for it: the model's context, settings of the optimizer and the outer optimizer, and, with batch_tokens,
 * batch and accumulate, as many rows of the context as it has room for, in passes of at most o->batch rows; unless rows are documents, batch_tokens
 * then becomes 0. 0 or -1 (LLM_EX_USAGE). */
struct llm_config;
int llm_train_options_resolve(struct llm_train_options *o, const struct llm_config *c, struct llm_err *e) LLM_MUST_CHECK;
/* The parts of a step's rows that ranks divide among themselves: replicas, or shards of the gradient. */
int64_t llm_train_options_parts(const struct llm_train_options *o);
/* What no range of a single option says. */
int llm_train_options_check(const struct llm_train_options *o, struct llm_err *e) LLM_MUST_CHECK;

#endif
