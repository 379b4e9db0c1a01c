#include "tensor/divergence.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

double llm_log_sum(const float *x, int64_t n, double temperature)
{
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) max = fmax(max, (double)x[i]);
    for (int64_t i = 0; i < n; i++) sum += exp(((double)x[i] - max) / temperature);
    return max / temperature + log(sum);
}

/* log of the mixture m, from the logarithms of its parts. */
static double log_mixture(double beta, double ls, double lt)
{
    double a = log(beta) + lt, b = log1p(-beta) + ls, max = a > b ? a : b;
    return max + log(exp(a - max) + exp(b - max));
}

/* What one token, or bucket, adds to the divergence. *mean takes what it adds to Σ ps · d loss / d ps. */
static double part_of(double beta, double ls, double lt, double *mean)
{
    double ps = exp(ls), pt = exp(lt);
    if (beta <= 0) return pt > 0 ? pt * (lt - ls) : 0;
    if (beta >= 1) {
        double reverse = ps > 0 ? ps * (ls - lt) : 0;
        *mean += reverse;
        return reverse;
    }
    double lm = log_mixture(beta, ls, lt);
    *mean += ps > 0 ? ps * (1 - beta) * (ls - lm) : 0;
    return beta * (pt > 0 ? pt * (lt - lm) : 0) + (1 - beta) * (ps > 0 ? ps * (ls - lm) : 0);
}

/* The gradient by the logit of a token, or bucket. taught: Σ pt. */
static double slope_of(double beta, double ls, double lt, double mean, double taught)
{
    double ps = exp(ls);
    if (beta <= 0) return ps * taught - exp(lt);
    return ps > 0 ? ps * ((beta >= 1 ? ls - lt : (1 - beta) * (ls - log_mixture(beta, ls, lt))) - mean) : 0;
}

double llm_divergence(const struct llm_divergence *o, const float *s, const float *t, int64_t n, double factor, float *grad)
{
    double T = o->temperature, beta = o->beta, zs = llm_log_sum(s, n, T), zt = llm_log_sum(t, n, T), loss = 0, mean = 0;
    for (int64_t i = 0; i < n; i++) loss += part_of(beta, (double)s[i] / T - zs, (double)t[i] / T - zt, &mean);
    for (int64_t i = 0; grad && i < n; i++) {
        grad[i] = (float)(factor * slope_of(beta, (double)s[i] / T - zs, (double)t[i] / T - zt, mean, 1) / T);
    }
    return loss;
}

double llm_divergence_top(const struct llm_divergence *o, const float *s, const struct llm_top *t, int64_t n, double factor, float *grad)
{
    double z = llm_log_sum(s, n, 1), beta = o->beta, loss = 0, mean = 0, taught = 0, rest = 0;
    bool tail = !isnan(t->tail);
    for (int64_t i = 0, k = 0; i < n; i++) { /* not 1 less the known ones: almost all of it may be theirs */
        bool known = k < t->n && t->ids[k] == (float)i;
        k += known;
        rest += known ? 0 : exp((double)s[i] - z);
    }
    double ls_tail = log(rest);
    for (int64_t k = 0; k < t->n; k++) {
        double ls = (double)s[(int64_t)t->ids[k]] - z, lt = (double)t->log_probs[k];
        loss += part_of(beta, ls, lt, &mean);
        taught += exp(lt);
    }
    if (tail) taught += exp(t->tail);
    if (tail && t->n < n) loss += part_of(beta, ls_tail, t->tail, &mean);
    /* Tokens of the tail share its gradient in the proportion of their probabilities. */
    double by_tail = tail && rest > 0 ? slope_of(beta, ls_tail, t->tail, mean, taught) / rest : taught;
    for (int64_t i = 0, k = 0; grad && i < n; i++) {
        bool known = k < t->n && t->ids[k] == (float)i;
        double ls = (double)s[i] - z, d = known ? slope_of(beta, ls, (double)t->log_probs[k], mean, taught) : exp(ls) * by_tail;
        k += known;
        grad[i] = (float)(factor * d);
    }
    return loss;
}
