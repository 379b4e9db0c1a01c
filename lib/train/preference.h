/* Losses over pairs of replies, one preferred to the other, as functions of the replies' log-probabilities. Formulas as in TRL (DPOTrainer,
 * CPOTrainer, ORPOTrainer). */
#ifndef LLM_TRAIN_PREFERENCE_H
#define LLM_TRAIN_PREFERENCE_H

#include <stdbool.h>
#include <stdint.h>

enum llm_preference_kind {      /* the words of --loss */
    LLM_PREFERENCE_SIGMOID,     /* DPO (Rafailov et al. 2023), with label smoothing: conservative DPO */
    LLM_PREFERENCE_IPO,         /* (Azar et al. 2023), of mean log-probabilities per token */
    LLM_PREFERENCE_HINGE,       /* SLiC (Zhao et al. 2023) */
    LLM_PREFERENCE_ROBUST,      /* (Chowdhury et al. 2024) */
    LLM_PREFERENCE_SIMPO,       /* (Meng et al. 2024), of mean log-probabilities, without a reference */
    LLM_PREFERENCE_ORPO         /* (Hong et al. 2024), odds of mean probabilities and the chosen reply's own loss, without a reference */
};
#define LLM_PREFERENCE_WORDS "sigmoid|ipo|hinge|robust|simpo|orpo"

struct llm_preference {
    enum llm_preference_kind kind;
    double beta;
    double label_smoothing;     /* sigmoid, robust, simpo: the share of pairs whose order is wrong */
    double target_margin;       /* simpo: γ */
};
enum { LLM_CHOSEN, LLM_REJECTED };
/* Sums of log-probabilities over the tokens of each reply, by the policy and by the reference, and how many tokens they are of. */
struct llm_preference_pair { double policy[2], reference[2]; int64_t n[2]; };
struct llm_preference_loss {
    double loss;
    double slope[2];            /* d loss / d policy[i] */
    double reward[2];           /* the implicit rewards: beta times what the policy gives a reply more than the reference; of losses without a
                                 * reference, beta times the mean log-probability */
};
/* Whether the loss compares the policy with a reference. */
bool llm_preference_refers(enum llm_preference_kind kind);
struct llm_preference_loss llm_preference_loss(const struct llm_preference *o, const struct llm_preference_pair *p);

/* KTO (Ethayarajh et al. 2024, equation 7; TRL's KTOTrainer) of one reply: weight · (1 - σ(beta · (ratio - kl))) if it is desirable, else weight ·
 * (1 - σ(beta · (kl - ratio))). ratio: its log-probability by the policy less that by the reference. kl: the estimate of the policy's divergence from
 * the reference, a constant. *slope: d loss / d ratio. */
double llm_kto_loss(double beta, double weight, bool desirable, double ratio, double kl, double *slope);

/* -log σ(x), without overflow, and its slope. */
double llm_minus_log_sigmoid(double x);
double llm_minus_log_sigmoid_slope(double x);

#endif
