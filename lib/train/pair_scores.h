/* The log-probabilities of the two texts of each row, by the policy and by a fixed reference, and a pass that learns from them: what objectives over
 * preferences share (train/objective/dpo.c, kto.c). */
#ifndef LLM_TRAIN_PAIR_SCORES_H
#define LLM_TRAIN_PAIR_SCORES_H

#include "train/objective.h"
#include "train/pairs.h"
#include "train/preference.h"

struct llm_pair_scores {
    struct llm_model *reference;    /* NULL: none was asked for, or the data have its log-probabilities. The task's */
    struct llm_ctx ctx;             /* of the reference's passes */
    struct llm_preference_pair *pairs; /* [n_pairs], those of the last pass */
    int64_t n_pairs;
};
/* The first columns of an objective: the reference's log-probabilities of the first and the second text, optional, and what floats leave out of
 * them. Number LLM_PAIR_COLUMNS_N is the next one. */
#define LLM_PAIR_COLUMNS(first, second) {first, LLM_PER_ROW, true}, {second, LLM_PER_ROW, true}, {first LLM_PAIRS_LOW, LLM_PER_ROW, true}, \
    {second LLM_PAIRS_LOW, LLM_PER_ROW, true}
enum { LLM_PAIR_COLUMNS_N = 4 };

/* Rows of llm_objective.options that these objectives share. */
#define LLM_PAIR_BETA_OPTION                                                                                                                        \
    {.name = "beta", .arg = "X", .help = "strength of the reference in --objective dpo, kto: larger stays closer to it [0.1]", .type = LLM_REAL,    \
     .max = 1e6, .fallback = .1}
#define LLM_PAIR_REFERENCE_OPTION                                                                                                                   \
    {.name = "reference", .arg = "MODEL", .help = "fixed model of dpo, kto [that of --init], or of --kl-coef", .type = LLM_INPUT}
/* Checks the options that these objectives share. 0, or -1 (LLM_EX_USAGE). */
int llm_pair_scores_check_options(const struct llm_train_options *o, struct llm_err *e);

/* Loads the reference at `path`. Zero-initialise; release either way. 0 or -1. */
int llm_pair_scores_init(struct llm_pair_scores *s, struct llm_task *t, const char *path, struct llm_err *e) LLM_MUST_CHECK;
void llm_pair_scores_release(struct llm_pair_scores *s);

/* Losses of the pairs of a pass: token_loss [n_rows / 2, row_len], zeros before, takes each pair's loss at the beginning of its row; weights
 * [n_rows, row_len], zeros before, takes the weight of each token in the gradient, d loss / d (-log p). `rows`: the two texts of each pair. */
typedef void llm_pair_judge(struct llm_task *t, const struct llm_rows *pairs, const struct llm_rows *rows, float *weights, float *token_loss);
/* llm_objective.run: computes the log-probabilities, those of the reference if `refers`, calls `judge`, and computes the gradient. */
int llm_pair_scores_run(struct llm_pair_scores *s, struct llm_ctx *c, struct llm_task *t, const struct llm_rows *pairs, double grad_scale,
                        bool refers, llm_pair_judge *judge, float *token_loss, struct llm_err *e);

#endif
