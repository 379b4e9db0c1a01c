#include "train/policy.h"

#include <math.h>

struct llm_group_stats llm_group_stats(const double *reward, int64_t n)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += reward[i];
    double mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (reward[i] - mean) * (reward[i] - mean);
    return (struct llm_group_stats){mean, n > 1 ? sqrt(squares / (double)(n - 1)) : 0};
}

double llm_advantage_group(const double *reward, int64_t n, bool scaled, double *advantage)
{
    struct llm_group_stats s = llm_group_stats(reward, n);
    const double unit = scaled ? s.deviation + 1e-4 : 1;
    for (int64_t i = 0; i < n; i++) advantage[i] = (reward[i] - s.mean) / unit;
    return 1 / unit;
}

void llm_advantage_leave_one_out(const double *reward, int64_t n, double *advantage)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += reward[i];
    for (int64_t i = 0; i < n; i++) advantage[i] = reward[i] - (sum - reward[i]) / (double)(n - 1);
}

void llm_advantage_whiten(double *advantage, int64_t n)
{
    struct llm_group_stats s = llm_group_stats(advantage, n);
    double scale = 1 / sqrt(s.deviation * s.deviation + 1e-8);
    for (int64_t i = 0; i < n; i++) advantage[i] = (advantage[i] - s.mean) * scale;
}

void llm_advantage_gae(const double *reward, const double *value, int64_t n, double gamma, double lambda, double *advantage)
{
    double next_value = 0, next = 0;
    for (int64_t t = n - 1; t >= 0; t--) {
        next = advantage[t] = reward[t] + gamma * next_value - value[t] + gamma * lambda * next;
        next_value = value[t];
    }
}

/* Schulman 2020, "Approximating KL divergence". */
void llm_kl_estimate(double x, double kl[3])
{
    kl[LLM_KL_K1] = -x;
    kl[LLM_KL_K2] = x * x / 2;
    kl[LLM_KL_K3] = expm1(x) - x;
}

/* The derivative of an estimator by -log p. */
static double estimator_slope(enum llm_kl kl, double x)
{
    return kl == LLM_KL_K1 ? -1 : kl == LLM_KL_K2 ? x : expm1(x);
}

struct llm_policy_token llm_policy_token(const struct llm_policy_loss *o, double a, float log_p, float old, float ref, double sequence_ratio)
{
    struct llm_policy_token t = {.ratio = expf(log_p - old)};
    double x = (double)ref - (double)log_p, r = o->ratio == LLM_RATIO_SEQUENCE ? sequence_ratio : (double)t.ratio;
    llm_kl_estimate(x, t.kl);
    if (o->ratio == LLM_RATIO_NONE) {
        t.loss = -a * (double)log_p;
        t.slope = a;
    } else {
        double clipped = fmin(fmax(r, 1 - o->clip_low), 1 + o->clip_high);
        t.clipped = a * clipped < a * r;
        t.loss = -fmin(a * r, a * clipped);
        t.slope = t.clipped ? 0 : a * r;
    }
    if (o->kl_coef > 0) {
        t.loss += o->kl_coef * t.kl[o->kl];
        t.slope += o->kl_coef * estimator_slope(o->kl, x);
    }
    return t;
}

double llm_kl_adapt(double coef, double kl, double target, double horizon, int64_t n)
{
    return coef * (1 + fmin(fmax(kl / target - 1, -.2), .2) * (double)n / horizon);
}

struct llm_value_token llm_value_token(double value, double old, double target, double clip)
{
    double gap = value - target, bounded = clip > 0 ? fmin(fmax(value, old - clip), old + clip) : value, other = bounded - target;
    bool clipped = other * other > gap * gap;
    return (struct llm_value_token){.loss = clipped ? other * other / 2 : gap * gap / 2, .slope = clipped ? 0 : gap, .clipped = clipped};
}
