#include "train/preference.h"

#include <math.h>

double llm_minus_log_sigmoid(double x)
{
    return x > 0 ? log1p(exp(-x)) : log1p(exp(x)) - x;
}

double llm_minus_log_sigmoid_slope(double x)
{
    return x > 0 ? -exp(-x) / (1 + exp(-x)) : -1 / (1 + exp(x));
}

bool llm_preference_refers(enum llm_preference_kind kind)
{
    return kind != LLM_PREFERENCE_SIMPO && kind != LLM_PREFERENCE_ORPO;
}

/* Loss and slope of x, the difference of the two replies. */
struct slope { double loss, by_x; };

/* -log σ(x) of pairs whose order is wrong with the probability of label smoothing. */
static struct slope smoothed(double x, double smoothing)
{
    return (struct slope){(1 - smoothing) * llm_minus_log_sigmoid(x) + smoothing * llm_minus_log_sigmoid(-x),
                          (1 - smoothing) * llm_minus_log_sigmoid_slope(x) - smoothing * llm_minus_log_sigmoid_slope(-x)};
}

/* The loss whose expectation over pairs in wrong order is that of the right order. */
static struct slope robust(double x, double smoothing)
{
    double scale = 1 / (1 - 2 * smoothing);
    return (struct slope){scale * ((1 - smoothing) * llm_minus_log_sigmoid(x) - smoothing * llm_minus_log_sigmoid(-x)),
                          scale * ((1 - smoothing) * llm_minus_log_sigmoid_slope(x) + smoothing * llm_minus_log_sigmoid_slope(-x))};
}

/* log(1 - e^x) for x < 0. */
static double log1mexp(double x)
{
    return x > -.6931471805599453 ? log(-expm1(x)) : log1p(-exp(x));
}

static struct llm_preference_loss orpo(const struct llm_preference *o, const double mean[2], const double n[2])
{
    double odds[2], by[2];
    for (int i = 0; i < 2; i++) {
        double x = mean[i] < -1e-12 ? mean[i] : -1e-12; /* a probability of 1 has no odds */
        odds[i] = x - log1mexp(x);
        by[i] = -1 / expm1(x); /* d odds / d mean = 1 / (1 - e^x) */
    }
    double x = odds[LLM_CHOSEN] - odds[LLM_REJECTED], slope = o->beta * llm_minus_log_sigmoid_slope(x);
    return (struct llm_preference_loss){.loss = o->beta * llm_minus_log_sigmoid(x) - mean[LLM_CHOSEN],
                                        .slope = {(slope * by[LLM_CHOSEN] - 1) / n[LLM_CHOSEN], -slope * by[LLM_REJECTED] / n[LLM_REJECTED]},
                                        .reward = {o->beta * mean[LLM_CHOSEN], o->beta * mean[LLM_REJECTED]}};
}

struct llm_preference_loss llm_preference_loss(const struct llm_preference *o, const struct llm_preference_pair *p)
{
    bool mean = o->kind == LLM_PREFERENCE_IPO || !llm_preference_refers(o->kind);
    double n[2], score[2];
    for (int i = 0; i < 2; i++) {
        n[i] = mean && p->n[i] > 0 ? (double)p->n[i] : 1;
        score[i] = (p->policy[i] - (llm_preference_refers(o->kind) ? p->reference[i] : 0)) / n[i];
    }
    if (o->kind == LLM_PREFERENCE_ORPO) return orpo(o, score, n);
    double h = score[LLM_CHOSEN] - score[LLM_REJECTED], beta = o->beta;
    struct slope s = {0};
    switch (o->kind) {
    case LLM_PREFERENCE_IPO:
        s = (struct slope){(h - 1 / (2 * beta)) * (h - 1 / (2 * beta)), 2 * (h - 1 / (2 * beta))};
        break;
    case LLM_PREFERENCE_HINGE:
        s = (struct slope){1 - beta * h > 0 ? 1 - beta * h : 0, 1 - beta * h > 0 ? -beta : 0};
        break;
    case LLM_PREFERENCE_ROBUST:
        s = robust(beta * h, o->label_smoothing);
        s.by_x *= beta;
        break;
    default:
        s = smoothed(beta * h - (o->kind == LLM_PREFERENCE_SIMPO ? o->target_margin : 0), o->label_smoothing);
        s.by_x *= beta;
    }
    return (struct llm_preference_loss){.loss = s.loss, .slope = {s.by_x / n[LLM_CHOSEN], -s.by_x / n[LLM_REJECTED]},
                                        .reward = {beta * score[LLM_CHOSEN], beta * score[LLM_REJECTED]}};
}

double llm_kto_loss(double beta, double weight, bool desirable, double ratio, double kl, double *slope)
{
    double sign = desirable ? 1 : -1, x = sign * beta * (ratio - kl), missing = -llm_minus_log_sigmoid_slope(x); /* 1 - σ(x) */
    *slope = -sign * weight * beta * missing * -llm_minus_log_sigmoid_slope(-x);
    return weight * missing;
}
