/* How fast causal attention is, forward and backward. */
#ifndef LLM_MEASURE_ATTENTION_H
#define LLM_MEASURE_ATTENTION_H

#include "cpu/matmul.h"

struct llm_attention_job {
    int64_t tokens, n_heads, head_dim; /* one row; as many KV heads */
    enum llm_compute compute;
    bool backward;                     /* both ways */
};
struct llm_attention_speed {
    double median, best; /* operations a second: those of the pairs that causal masking leaves, 4·heads·head_dim for each, thrice that both ways */
    size_t bytes;        /* of inputs, outputs, gradients and what lies between, at most at once; without the threads' scratch */
};
double llm_attention_flops(const struct llm_attention_job *job);
/* Median of runs over about `seconds`, at least three. 0 or -1. */
int llm_attention_speed(const struct llm_attention_job *job, double seconds, struct llm_attention_speed *out, struct llm_err *e) LLM_MUST_CHECK;

#endif
