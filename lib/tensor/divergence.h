/* How far one distribution over the vocabulary is from another: what a student learns of a teacher. */
#ifndef LLM_TENSOR_DIVERGENCE_H
#define LLM_TENSOR_DIVERGENCE_H

#include <stdint.h>

struct llm_divergence {
    double beta;            /* generalised JSD (Agarwal et al. 2024): β KL(t‖m) + (1 - β) KL(s‖m), m = β t + (1 - β) s; its ends are taken as full
                             * divergences: 0 is KL(t‖s), forward, 1 is KL(s‖t), reverse */
    double temperature;     /* both logits are divided by it */
};
/* log Σ exp(x / temperature) over x [n], in double, in the order of elements. */
double llm_log_sum(const float *x, int64_t n, double temperature);
/* The divergence, in nats, of the distributions of logits s (student) and t (teacher) [n]. If grad is not NULL it takes factor times the gradient
 * by s [n]; it may be s or t. Sums are in double, in the order of elements. */
double llm_divergence(const struct llm_divergence *o, const float *s, const float *t, int64_t n, double factor, float *grad);

/* A teacher's distribution of one token of which only the most likely tokens are known. */
struct llm_top {
    int64_t n;                  /* 1 to LLM_TOP_MAX */
    const float *ids;           /* [n] tokens, ascending */
    const float *log_probs;     /* [n] of these tokens */
    double tail;                /* log-probability of all other tokens together; NaN: unknown */
};
enum { LLM_TOP_MAX = 1024 };
/* The divergence where all other tokens are one bucket of both distributions. If the tail is unknown, it is the sum over the known tokens (forward
 * alone: o->beta is 0). The temperature is 1. grad as above. */
double llm_divergence_top(const struct llm_divergence *o, const float *s, const struct llm_top *t, int64_t n, double factor, float *grad);

#endif
