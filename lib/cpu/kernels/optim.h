/* One pass over memory for an optimizer's update: reads the gradient, writes weights and moments. And sums of squares. */
#ifndef LLM_CPU_KERNELS_OPTIM_H
#define LLM_CPU_KERNELS_OPTIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is the same for all elements. g = clip·grad everywhere below. */
struct llm_optim_step {
    double lr, clip;          /* clip: 1, or max_norm / norm */
    double weight_decay;      /* 0 for parameters that do not decay */
    double beta1, beta2, eps;
    double correction1, correction2; /* 1 - beta^t */
    double momentum;          /* SGD */
    bool nesterov;
    bool clear;               /* the gradient is zeroed in the same pass */
};
/* Where. n elements. */
struct llm_optim_span {
    float *master, *grad;
    float *m, *v;             /* NULL where the method has none */
    size_t n;
};

struct llm_optim_kernels {
    /* Loshchilov and Hutter 2019, as torch.optim.AdamW: w -= lr·wd·w; m, v moments; w -= lr·(m/c1)/(sqrt(v/c2) + eps) */
    void (*adamw)(const struct llm_optim_span *s, const struct llm_optim_step *o);
    /* The same with weight decay as L2: g += wd·w (torch.optim.Adam) */
    void (*adam)(const struct llm_optim_span *s, const struct llm_optim_step *o);
    /* g += wd·w; with momentum m = momentum·m + g (m begins as 0: the first m is g), g = nesterov ? g + momentum·m : m; w -= lr·g. m NULL: no
     * momentum. */
    void (*sgd)(const struct llm_optim_span *s, const struct llm_optim_step *o);
    /* g += wd·w; v += g²; w -= lr·g/(sqrt(v) + eps) */
    void (*adagrad)(const struct llm_optim_span *s, const struct llm_optim_step *o);
    /* Chen et al. 2023: w -= lr·wd·w; w -= lr·sign(beta1·m + (1 - beta1)·g); m = beta2·m + (1 - beta2)·g */
    void (*lion)(const struct llm_optim_span *s, const struct llm_optim_step *o);
    /* m = momentum·m + (1 - momentum)·g; the gradient becomes nesterov ? momentum·m + (1 - momentum)·g : m. Weights stay. */
    void (*blend)(const struct llm_optim_span *s, const struct llm_optim_step *o);
    /* w -= lr·wd·w; w -= lr·g */
    void (*decoupled)(const struct llm_optim_span *s, const struct llm_optim_step *o);
    /* y = a·y + b·x */
    void (*combine)(float *y, const float *x, float a, float b, size_t n);
    /* Σ x², runs of 1,024 in FP32 and these in double, in order. */
    double (*sum_squares)(const float *x, size_t n);
};

#endif
