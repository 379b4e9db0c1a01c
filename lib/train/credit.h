/* From rewards to advantages of tokens where that takes more than the rewards of a group: a KL that is subtracted from the rewards, values of states,
 * a baseline that goes from step to step. Works on records of rollouts (train/rollouts.h) whose columns of values and of the reference are filled. */
#ifndef LLM_TRAIN_CREDIT_H
#define LLM_TRAIN_CREDIT_H

#include "data/records.h"
#include "train/policy.h"
#include "train/rollouts.h"

struct llm_credit {
    const struct llm_train_options *o;
    llm_rollout_advantages *advantages; /* of the completions of a prompt, from their rewards; NULL: by values (GAE) */
    double gamma, lambda;               /* of GAE */
    bool whiten;                        /* advantages of all tokens have mean 0 and deviation 1 */
    double kl_coef;                     /* × an estimate of KL(policy, reference), subtracted from the reward of each token; 0: none */
    enum llm_kl kl;
};
struct llm_credit_report {
    int64_t completions;
    double kl;                          /* mean over completions of the sum of k1 over their tokens; 0 without kl_coef */
    double reward;                      /* mean of the completions' rewards less what the KL takes */
};
/* Sets the columns of advantages and of the values' targets. Tokens whose loss mask is 0 are no steps of time: their rewards belong to the token
 * before them that counts, or, where there is none, to the completion's reward alone. 0 or -1. */
int llm_credit_assign(struct llm_records *r, const struct llm_credit *c, struct llm_credit_report *report, struct llm_err *e) LLM_MUST_CHECK;

#endif
