/* Scaling laws: how the loss falls with parameters N, tokens D or compute C, and how the best learning rate moves with compute.
 *
 *   L(N, D) = E + A / N^alpha + B / D^beta       (Hoffmann et al., arXiv:2203.15556)
 *   L(C)    = E + A / C^alpha                    and with E = 0 the pure power law
 *   LR(C)   = A / C^alpha                        alpha of any sign; the customary a·C^b has b = -alpha
 *
 * The residual of a point is (law - loss) / loss; of a learning rate, log(law / rate). The fit minimises the sum of Huber's function of the
 * residuals. Starts come from a grid of exponents: for fixed exponents the losses are linear in E, A and B, which are found exactly under the
 * condition that none is negative (variable projection). From the best starts, Gauss-Newton steps over all parameters follow, with Huber's weights
 * renewed at each step and damped if a step would not lower the sum. */
#ifndef LLM_MEASURE_SCALING_H
#define LLM_MEASURE_SCALING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

enum llm_scaling_law { LLM_LAW_ND, LLM_LAW_C, LLM_LAW_LR };
/* The constant, then coefficient and exponent of each term. A coefficient is the logarithm of the term's value at the geometric mean of the points'
 * x: that number has the size of a loss, whereas A itself may not fit a double. */
enum { LLM_LAW_E, LLM_LAW_A, LLM_LAW_ALPHA, LLM_LAW_B, LLM_LAW_BETA, LLM_LAW_PARAMS };

struct llm_scaling_points {
    size_t n;
    const double *x[2]; /* N and D, or C and NULL; above 0 */
    const double *y;    /* losses, or learning rates; above 0 */
    const char *name[2]; /* of x, for messages */
};
struct llm_scaling_options {
    enum llm_scaling_law law;
    bool zero_floor;    /* E is 0 */
    double huber;       /* residual up to which Huber's function is quadratic; 0: 1.345 times the residuals' deviation, estimated from their median */
    int replicates;     /* of the bootstrap */
    uint64_t seed;
};
struct llm_scaling_fit {
    enum llm_scaling_law law;
    int terms;                   /* 2 for L(N, D), else 1 */
    double centre[2];            /* mean of log x */
    double p[LLM_LAW_PARAMS];
    double huber;                /* as used */
    double rms;                  /* of the residuals */
    size_t n;
    int free_params;             /* as many as were fitted */
    int n_replicates;
    double *replicates;          /* [n_replicates][LLM_LAW_PARAMS]; owned */
};
/* Fits the law, and fits it again to each replicate of a bootstrap: the law's values times 1 + a residual drawn with replacement, residuals centred
 * and scaled by sqrt(n / (n - parameters)). The replicates run on the thread pool; the result does not depend on the number of threads.
 * Status 65: too few points, or the points do not determine an exponent. */
int llm_scaling_fit(struct llm_scaling_fit *f, const struct llm_scaling_points *points, const struct llm_scaling_options *o, struct llm_err *e)
    LLM_MUST_CHECK;
void llm_scaling_release(struct llm_scaling_fit *f);

/* What follows from parameters `p` of a fit: its own or those of a replicate. `x`: two numbers that the function needs. */
typedef double (*llm_scaling_value)(const struct llm_scaling_fit *f, const double *p, const double x[2]);
double llm_scaling_at(const struct llm_scaling_fit *f, const double *p, const double x[2]);           /* the law at x */
double llm_scaling_coefficient(const struct llm_scaling_fit *f, const double *p, const double x[2]);  /* A, or B if x[0] is 1 */
double llm_scaling_parameter(const struct llm_scaling_fit *f, const double *p, const double x[2]);    /* p[x[0]] as it is */
/* The split of C = factor · N · D with the lowest L(N, D); x: C, factor. */
double llm_scaling_best_params(const struct llm_scaling_fit *f, const double *p, const double x[2]);
double llm_scaling_best_tokens(const struct llm_scaling_fit *f, const double *p, const double x[2]);
double llm_scaling_best_loss(const struct llm_scaling_fit *f, const double *p, const double x[2]);
/* The exponent b of LR(C) = a·C^b, and of the best N(C): beta / (alpha + beta); that of the best D(C) is the rest to 1. */
double llm_scaling_rate_exponent(const struct llm_scaling_fit *f, const double *p, const double x[2]);
double llm_scaling_params_exponent(const struct llm_scaling_fit *f, const double *p, const double x[2]);
double llm_scaling_tokens_exponent(const struct llm_scaling_fit *f, const double *p, const double x[2]);
/* The bootstrap's interval of 95% of such a value. */
int llm_scaling_interval(const struct llm_scaling_fit *f, llm_scaling_value value, const double x[2], double low_high[2], struct llm_err *e)
    LLM_MUST_CHECK;

#endif
