/* The triangular factor by which columns of a matrix make up for each other's errors: GPTQ (gptq.h) and SparseGPT (prune.h). */
#ifndef LLM_QUANT_FACTOR_H
#define LLM_QUANT_FACTOR_H

#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

/* A symmetric matrix of sums of products [k, k], its rows and columns taken in the order of `order` (NULL: as they stand). */
struct llm_products { const float *of; const int64_t *order; int64_t k; };
enum { LLM_FACTOR_PANEL = 32 };
/* R in place of the upper half of h [k, k], R·Rᵀ = h; false if h is not positive definite. The same for any number of threads. pack: room for
 * k · LLM_FACTOR_PANEL numbers. */
bool llm_upper_root(double *h, int64_t k, double *pack);
/* The share of the diagonal's mean that is added to the diagonal of products of inputs. */
#define LLM_DAMPING 0.01
/* U [k, k] with H⁻¹ = Uᵀ·U, U upper triangular, H being the products with *damping times the mean of their diagonal added to the diagonal.
 * *damping is `least` > 0, and ten times as much after each failure. Channels that were always 0 get the mean of the diagonal. An error e of
 * column j, divided by U[j, j], is made up for by taking e·U[j, m] from each later column m. malloced; the same for any number of threads.
 * NULL: see `e` (EX_DATAERR: products that are not finite). */
float *llm_inverse_factor(const struct llm_products *p, double least, double *damping, struct llm_err *e) LLM_MUST_CHECK;
/* y[m] += Σ_j e[j]·u[j·ld + m], m < cols: four rows of u at a time. */
void llm_add_rows(float *restrict y, const float *e, const float *u, int64_t ld, int64_t rows, int64_t cols);

#endif
