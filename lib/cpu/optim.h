/* Whole parameters through the kernels of cpu/kernels/optim.h, over all threads, in blocks of 64 Ki elements. */
#ifndef LLM_CPU_OPTIM_H
#define LLM_CPU_OPTIM_H

#include "cpu/kernels/optim.h"

enum { LLM_OPTIM_BLOCK = 64 << 10 };

/* Updates s->n elements with one of llm_k.optim's methods. */
void llm_optim_update(void (*method)(const struct llm_optim_span *s, const struct llm_optim_step *o), const struct llm_optim_span *s,
                      const struct llm_optim_step *o);
/* y = a·y + b·x */
void llm_combine(float *y, const float *x, double a, double b, size_t n);
/* Σ x²: each block's in double, blocks added in order. The canonical order of gradient norms. */
double llm_sum_squares(const float *x, size_t n);

#endif
