#include "tensor/divergence.h"

#include <math.h>
#include <stddef.h>

/* log Σ exp(x / T). */
static double log_sum(const float *x, int64_t n, double temperature)
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

double llm_divergence(const struct llm_divergence *o, const float *s, const float *t, int64_t n, double factor, float *grad)
{
    double T = o->temperature, beta = o->beta, zs = log_sum(s, n, T), zt = log_sum(t, n, T), loss = 0, mean = 0;
    for (int64_t i = 0; i < n; i++) {
        double ls = (double)s[i] / T - zs, lt = (double)t[i] / T - zt, ps = exp(ls), pt = exp(lt);
        if (beta <= 0) {
            loss += pt > 0 ? pt * (lt - ls) : 0;
        } else if (beta >= 1) {
            loss += ps > 0 ? ps * (ls - lt) : 0;
        } else {
            double lm = log_mixture(beta, ls, lt);
            loss += beta * (pt > 0 ? pt * (lt - lm) : 0) + (1 - beta) * (ps > 0 ? ps * (ls - lm) : 0);
            mean += ps > 0 ? ps * (1 - beta) * (ls - lm) : 0; /* Σ s · d loss / d s */
        }
    }
    if (beta >= 1) mean = loss;
    for (int64_t i = 0; grad && i < n; i++) {
        double ls = (double)s[i] / T - zs, lt = (double)t[i] / T - zt, ps = exp(ls), d;
        if (beta <= 0) d = ps - exp(lt);
        else d = ps > 0 ? ps * ((beta >= 1 ? ls - lt : (1 - beta) * (ls - log_mixture(beta, ls, lt))) - mean) : 0;
        grad[i] = (float)(factor * d / T);
    }
    return loss;
}
