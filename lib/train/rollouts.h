/* Rollouts (formats/rollouts.md) as training data: completions with rewards become records of tokens, advantages and the log-probabilities that the
 * policy gave when it wrote them. */
#ifndef LLM_TRAIN_ROLLOUTS_H
#define LLM_TRAIN_ROLLOUTS_H

#include "train/lines.h"

/* Columns of the records, in this order. */
enum llm_rollout_column {
    LLM_ROLLOUT_ADVANTAGE,      /* of each token */
    LLM_ROLLOUT_LOG_PROB,       /* when it was drawn */
    LLM_ROLLOUT_REWARD, LLM_ROLLOUT_DEVIATION, LLM_ROLLOUT_CUT, /* of completions: its reward; that of all rewards; 1 if it was truncated */
    LLM_ROLLOUT_TOKEN_REWARD,   /* of each token; the last one has the reward of the whole, penalties included */
    LLM_ROLLOUT_REFERENCE,      /* log-probability by the reference, once all documents were looked at; until then that of LLM_ROLLOUT_LOG_PROB */
    LLM_ROLLOUT_VALUE, LLM_ROLLOUT_RETURN, /* the value before the first update, of which the same is true, and its target; 0 */
    LLM_ROLLOUT_GROUP           /* of completions: neighbours with the same number are of one prompt */
};
extern const struct llm_column llm_rollout_columns[];

/* Advantages of one group: the completions of one prompt. *scale: how much of an advantage a reward of 1 is. 0 or -1. */
typedef int llm_rollout_advantages(const struct llm_train_options *o, const double *reward, int64_t n, double mean_of_all, double *advantage,
                                   double *scale, struct llm_err *e);
/* llm_objective.record: keeps a line until all of its group is there. */
int llm_rollouts_record(struct llm_lines *l, const json_t *line, struct llm_err *e);
/* llm_objective.recorded: refuses an input in which completions are missing. Adds a record for each completion, in the order of groups and
 * samples. */
int llm_rollouts_recorded(struct llm_lines *l, llm_rollout_advantages *advantages, struct llm_err *e, bool failed);
/* The rows of the options that objectives over rollouts share (struct llm_objective_option). */
#define LLM_ROLLOUT_OPTIONS                                                                                                                         \
    {.name = "truncated", .arg = "WHAT", .help = "completions cut by -n or the context: learn, or mask (no token counts) [learn]",                  \
     .type = LLM_CHOICE, .choices = "learn|mask"},                                                                                                  \
    {.name = "truncated-penalty", .arg = "X", .help = "subtract X from the reward of a completion cut by -n or the context [0]", .type = LLM_REAL,  \
     .min = 0, .max = 1e9},                                                                                                                         \
    {.name = "ratio-temp", .arg = "T",                                                                                                              \
     .help = "learn the distribution of logits divided by T, from rollouts sampled with --temp T without filters [1]", .type = LLM_REAL,            \
     .min = 1e-3, .max = 1e6, .fallback = 1},                                                                                                       \
    {.name = "off-policy", .help = "also learn from rollouts of another model, precision or instruction set: ratios are then not 1 at first",       \
     .type = LLM_FLAG}

#endif
