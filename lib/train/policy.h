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
/* GRPO: A = r - mean, divided by deviation + 1e-4 if `scaled` (Shao et al. 2024; without: Liu et al. 2025). Returns dA / dr where mean and deviation
 * stay. */
double llm_advantage_group(const double *reward, int64_t n, bool scaled, double *advantage);
/* RLOO: A = r - the mean of the others of its group (Kool et al. 2019). n ≥ 2. */
void llm_advantage_leave_one_out(const double *reward, int64_t n, double *advantage);

/* Adds what is constant to n advantages and divides them: mean 0, deviation 1 (by n - 1, with 1e-8 added to the variance). n = 1: 0. */
void llm_advantage_whiten(double *advantage, int64_t n);
/* Generalised advantage estimation (Schulman et al. 2016) over the n tokens of a completion: δ(t) = reward(t) + γ·value(t + 1) - value(t), where
 * value(n) = 0; advantage(t) = δ(t) + γ·λ·advantage(t + 1). The target of value(t) is advantage(t) + value(t). */
void llm_advantage_gae(const double *reward, const double *value, int64_t n, double gamma, double lambda, double *advantage);

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

/* The estimators k1, k2 and k3 of KL(policy, reference) from a token that the policy drew, x = log p_ref - log p. */
void llm_kl_estimate(double x, double kl[3]);
/* The coefficient of a KL for the next n completions (Ziegler et al. 2019, section 2.2): it grows while kl is above the target, by at most the factor
 * 1 + .2·n / horizon. */
double llm_kl_adapt(double coef, double kl, double target, double horizon, int64_t n);

/* The loss of a token's value: ½·(value - target)². With clip > 0 the larger one of it and of the same of the value clipped to
 * old ± clip, where `old` is the value before the first update (PPO). */
struct llm_value_token {
    double loss;
    double slope;                   /* d loss / d value */
    bool clipped;                   /* the clipped value's loss is the larger one, and has no gradient */
};
struct llm_value_token llm_value_token(double value, double old, double target, double clip);

#endif
