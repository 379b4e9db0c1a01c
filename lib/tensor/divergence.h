/* How far one distribution over the vocabulary is from another: what a student learns of a teacher. */
#ifndef LLM_TENSOR_DIVERGENCE_H
#define LLM_TENSOR_DIVERGENCE_H

#include <stdint.h>

struct llm_divergence {
    double beta;            /* generalised JSD (Agarwal et al. 2024): β KL(t‖m) + (1 - β) KL(s‖m), m = β t + (1 - β) s; its ends are taken as full
                             * divergences: 0 is KL(t‖s), forward, 1 is KL(s‖t), reverse */
    double temperature;     /* both logits are divided by it */
};
/* The divergence, in nats, of the distributions of logits s (student) and t (teacher) [n]. If grad is not NULL it takes factor times the gradient
 * by s [n]; it may be s or t. Sums are in double, in the order of elements. */
double llm_divergence(const struct llm_divergence *o, const float *s, const float *t, int64_t n, double factor, float *grad);

#endif
