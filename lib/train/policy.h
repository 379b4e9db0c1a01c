/* The mathematics of policy gradients on numbers alone: advantages of completions from their rewards, and the loss of a token from its
 * log-probabilities. */
#ifndef LLM_TRAIN_POLICY_H
#define LLM_TRAIN_POLICY_H

#include <stdbool.h>
#include <stdint.h>

/* ---- advantages ---- */
/* Rewards of one group, the completions of one prompt: mean, and deviation by n - 1 (0 for n = 1). */
struct llm_group_stats { double mean, deviation; };
struct llm_group_stats llm_group_stats(const double *reward, int64_t n);
/* GRPO: A = r - mean, divided by deviation + 1e-4 if `scaled` (Shao et al. 2024; without: Liu et al. 2025). */
void llm_advantage_group(const double *reward, int64_t n, bool scaled, double *advantage);
/* RLOO: A = r - the mean of the others of its group (Kool et al. 2019). n ≥ 2. */
void llm_advantage_leave_one_out(const double *reward, int64_t n, double *advantage);

/* ---- the loss of a token ---- */
enum llm_ratio { LLM_RATIO_NONE /* REINFORCE: -A log p */, LLM_RATIO_TOKEN /* PPO, GRPO */, LLM_RATIO_SEQUENCE /* GSPO */ };
enum llm_kl { LLM_KL_K1, LLM_KL_K2, LLM_KL_K3 };
struct llm_policy_loss {
    enum llm_ratio ratio;
    double clip_low, clip_high;     /* the ratio is clipped to [1 - low, 1 + high] */
    double kl_coef;                 /* × the estimator of KL(policy, reference), added to the loss; 0: no reference */
    enum llm_kl kl;
};
struct llm_policy_token {
    double loss;
    double slope;                   /* d loss / d(-log p), what the token's cross-entropy is weighted by */
    float ratio;                    /* p / p_old of the token; exactly 1 if the log-probabilities have equal bits */
    double kl[3];                   /* k1, k2, k3 against the reference, else against the policy that wrote the completion */
    bool clipped;                   /* the clip removes the gradient */
};
/* A token of a completion with advantage `a`. log_p: of the policy now, old: when the token was drawn, ref: of the reference (= old without one).
 * sequence_ratio: of LLM_RATIO_SEQUENCE, exp of the mean of log_p - old over the completion; its derivative by one token's log_p is taken times the
 * completion's length, so that a mean over the completion's tokens has the gradient of the completion's loss. */
struct llm_policy_token llm_policy_token(const struct llm_policy_loss *o, double a, float log_p, float old, float ref, double sequence_ratio);

#endif
