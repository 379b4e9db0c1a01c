/* The curvature of the model's own predictions by each of its matrices: what a small change of the matrix adds to KL(before ‖ after). */
#ifndef LLM_QUANT_CURVATURE_H
#define LLM_QUANT_CURVATURE_H

#include "quant/moments.h"

/* Runs the model over ids[0..n) in windows of `context` tokens (as llm_moments_gather) forward and backward. The target of each token is drawn from
 * what the model predicts, so the mean of products of gradients is the Hessian of the KL (the Fisher matrix), of which each matrix gets a pair of
 * factors (struct llm_kronecker): m->kronecker. Embeddings and the head have the columns' factor alone, `out` being NULL. Matrices of more than
 * LLM_CURVATURE_ROWS rows or columns, those of experts, and others that are not multiplied by llm_linear have none. The sums do not depend on the
 * number of threads. 0; 1 if a signal was caught; -1. EX_UNAVAILABLE: a model that predicts no next token, or no memory. */
enum { LLM_CURVATURE_ROWS = 8192 };
int llm_curvature_gather(struct llm_moments *m, struct llm_model *model, const int32_t *ids, size_t n, int64_t context, struct llm_err *e)
    LLM_MUST_CHECK;
/* What the difference delta [n, k] of a matrix that has both factors is predicted to add to the KL, in nats per token: ½·tr(out·delta·in·deltaᵀ),
 * scaled to the trace that the sum over `tokens` tokens of (g·gᵀ)⊗(x·xᵀ) has. NaN: no memory. */
double llm_curvature_harm(const struct llm_kronecker *f, double tokens, int64_t n, int64_t k, const float *delta, struct llm_err *e);

#endif
