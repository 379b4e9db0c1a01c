/* Eigenvalues and eigenvectors of symmetric matrices, in double. */
#ifndef LLM_QUANT_EIGEN_H
#define LLM_QUANT_EIGEN_H

#include <stdint.h>
#include "base/err.h"

/* a [n, n]: symmetric in, overwritten; out: row i is the unit eigenvector of values[i]. values [n]: descending. The order of all sums is fixed, so
 * the bits do not depend on the number of threads. 0 or -1 (no memory; EX_DATAERR: elements that are not finite). */
int llm_eigen(double *a, int64_t n, double *values, struct llm_err *e) LLM_MUST_CHECK;

#endif
