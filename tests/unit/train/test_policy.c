/* Advantages and losses of policy gradients against closed forms: hand-computed groups, finite differences, and the gradients that theory gives the
 * estimators of KL on a policy of four tokens, all of which are enumerated. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <cmocka.h>
#include "tests/unit/near.h"
#include "train/policy.h"

static void test_advantages(void **state)
{
    (void)state;
    const double reward[4] = {1, 0, 0, 3};
    double a[4];
    /* mean 1, deviation √(6/3) = √2 */
    llm_advantage_group(reward, 4, true, a);
    const double scaled[4] = {0, -1, -1, 2};
    for (int i = 0; i < 4; i++) near(a[i], scaled[i] / (sqrt(2) + 1e-4), 0, 1e-12);
    llm_advantage_group(reward, 4, false, a);
    for (int i = 0; i < 4; i++) near(a[i], scaled[i], 0, 1e-12);
    /* 1 - 3/3, 0 - 4/3, 0 - 4/3, 3 - 1/3 */
    llm_advantage_leave_one_out(reward, 4, a);
    const double others[4] = {0, -4. / 3, -4. / 3, 8. / 3};
    for (int i = 0; i < 4; i++) near(a[i], others[i], 0, 1e-12);
    const double equal[3] = {.7, .7, .7};
    llm_advantage_group(equal, 3, true, a);
    for (int i = 0; i < 3; i++) near(a[i], 0, 0, 1e-11);
    llm_advantage_leave_one_out(equal, 3, a);
    for (int i = 0; i < 3; i++) near(a[i], 0, 0, 1e-12);
}

/* min(r·A, clip(r)·A) by cases, with bounds that differ (clip-higher). */
static void test_clipped_ratios(void **state)
{
    (void)state;
    const struct llm_policy_loss o = {.ratio = LLM_RATIO_TOKEN, .clip_low = .2, .clip_high = .28};
    static const struct { double a, r, loss; bool clipped; } cases[] = {
        {1, 1.5, -1.28, true}, {1, .5, -.5, false}, {-1, 1.5, 1.5, false}, {-1, .5, .8, true}, {2, 1.1, -2.2, false}, {-2, .9, 1.8, false},
        {0, 3, 0, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float old = -2, log_p = old + (float)log(cases[i].r);
        struct llm_policy_token t = llm_policy_token(&o, cases[i].a, log_p, old, old, 1);
        near(t.loss, cases[i].loss, 0, 1e-6);
        assert_int_equal(t.clipped, cases[i].clipped);
        near(t.slope, cases[i].clipped ? 0 : cases[i].a * cases[i].r, 0, 1e-6);
    }
    struct llm_policy_token same = llm_policy_token(&o, 1, -3.14159f, -3.14159f, -3.14159f, 1);
    assert_true(same.ratio == 1.0f && same.kl[0] == 0 && same.kl[1] == 0 && same.kl[2] == 0);
}

/* A completion's ratio is clipped for all of its tokens; the slope is A·s for each. */
static void test_sequence_ratio(void **state)
{
    (void)state;
    const struct llm_policy_loss o = {.ratio = LLM_RATIO_SEQUENCE, .clip_low = .1, .clip_high = .1};
    struct llm_policy_token t = llm_policy_token(&o, 2, -1, -5, -5, 1.05);
    near(t.loss, -2.1, 0, 1e-12);
    near(t.slope, 2.1, 0, 1e-12);
    t = llm_policy_token(&o, 2, -1, -1, -1, 1.3);
    assert_true(t.clipped && t.slope == 0);
    near(t.loss, -2.2, 0, 1e-12);
}

static void test_slopes_are_derivatives(void **state)
{
    (void)state;
    for (int ratio = LLM_RATIO_NONE; ratio <= LLM_RATIO_TOKEN; ratio++)
        for (int kl = LLM_KL_K1; kl <= LLM_KL_K3; kl++)
            for (int i = 0; i < 20; i++) {
                const struct llm_policy_loss o = {.ratio = (enum llm_ratio)ratio, .clip_low = .9, .clip_high = 9, .kl_coef = .3,
                                                  .kl = (enum llm_kl)kl};
                float log_p = -1 - .125f * (float)i, old = -1.5f, ref = -2, h = 0x1p-9f;
                double a = i % 3 - .7;
                double up = llm_policy_token(&o, a, log_p - h, old, ref, 1).loss, down = llm_policy_token(&o, a, log_p + h, old, ref, 1).loss;
                near(llm_policy_token(&o, a, log_p, old, ref, 1).slope, (up - down) / (2 * (double)h), 0, 3e-5);
            }
}

/* The expectation over the policy's tokens of slope · ∂(-log p)/∂θ: 0 for k1, that of KL(policy, reference) for k2, that of KL(reference, policy)
 * for k3. */
static void test_estimators_have_the_gradients_of_theory(void **state)
{
    (void)state;
    const double theta[4] = {.3, -1, .8, 0}, phi[4] = {-.2, .4, .1, .9};
    double p[4], q[4], zp = 0, zq = 0, kl = 0;
    for (int i = 0; i < 4; i++) zp += exp(theta[i]), zq += exp(phi[i]);
    for (int i = 0; i < 4; i++) p[i] = exp(theta[i]) / zp, q[i] = exp(phi[i]) / zq;
    for (int i = 0; i < 4; i++) kl += p[i] * log(p[i] / q[i]);
    for (int k = LLM_KL_K1; k <= LLM_KL_K3; k++) {
        const struct llm_policy_loss o = {.ratio = LLM_RATIO_NONE, .kl_coef = 1, .kl = (enum llm_kl)k};
        double value = 0;
        for (int j = 0; j < 4; j++) {
            double gradient = 0;
            for (int v = 0; v < 4; v++) {
                float log_p = (float)log(p[v]), log_q = (float)log(q[v]);
                struct llm_policy_token t = llm_policy_token(&o, 0, log_p, log_p, log_q, 1);
                gradient += p[v] * t.slope * (p[j] - (v == j));
                if (j == 0) value += p[v] * t.kl[k];
            }
            near(gradient, k == LLM_KL_K1 ? 0 : k == LLM_KL_K2 ? p[j] * (log(p[j] / q[j]) - kl) : p[j] - q[j], 0, 1e-6);
        }
        if (k != LLM_KL_K2) near(value, kl, 0, 1e-6); /* k1 and k3 are unbiased */
    }
}

/* ---- all completions of two tokens out of three: means over them are exact ---- */

enum { V = 3, THETA = V + V * V, ALL = V * V };

/* log p of token t after `before` (-1: of the first token) under the logits theta. */
static double log_p_of(const double *theta, int before, int t)
{
    const double *logits = theta + (before < 0 ? 0 : V + V * before);
    double sum = 0;
    for (int v = 0; v < V; v++) sum += exp(logits[v]);
    return logits[t] - log(sum);
}

static double reward_of(int i)
{
    static const double reward[ALL] = {1, -.5, 0, 2, .25, -1, 0, 0, .75};
    return reward[i];
}

/* The expected reward less beta times KL(policy, reference) of whole completions. */
static double objective(const double *theta, const double *reference, double beta)
{
    double sum = 0;
    for (int i = 0; i < ALL; i++) {
        int a = i / V, b = i % V;
        double log_p = log_p_of(theta, -1, a) + log_p_of(theta, a, b), log_q = log_p_of(reference, -1, a) + log_p_of(reference, a, b);
        sum += exp(log_p) * (reward_of(i) - beta * (log_p - log_q));
    }
    return sum;
}

/* Adds weight times the gradient of a completion's loss, whose tokens have these advantages. */
static void add_gradient(double gradient[THETA], const double *theta, int i, const double advantage[2], double weight, enum llm_ratio ratio)
{
    const struct llm_policy_loss o = {.ratio = ratio, .clip_low = .2, .clip_high = .2};
    const int token[2] = {i / V, i % V};
    for (int t = 0; t < 2; t++) {
        int before = t == 0 ? -1 : token[0];
        float log_p = (float)log_p_of(theta, before, token[t]);
        double slope = llm_policy_token(&o, advantage[t], log_p, log_p, log_p, 1).slope;
        double *of = gradient + (before < 0 ? 0 : V + V * before);
        for (int v = 0; v < V; v++) of[v] += weight * slope * (exp(log_p_of(theta, before, v)) - (v == token[t]));
    }
}

static const double theta_at[THETA] = {.2, -.4, .1, .5, 0, -.3, -.8, .3, .6, 0, .1, -.2};
static const double theta_reference[THETA] = {-.1, .3, 0, .2, .2, .4, 0, -.5, .1, .3, 0, 0};

static void compare(const double gradient[THETA], double beta)
{
    for (int k = 0; k < THETA; k++) {
        double up[THETA], down[THETA], h = 1e-4;
        for (int j = 0; j < THETA; j++) up[j] = down[j] = theta_at[j];
        up[k] += h;
        down[k] -= h;
        near(gradient[k], -(objective(up, theta_reference, beta) - objective(down, theta_reference, beta)) / (2 * h), 0, 1e-6);
    }
}

static double p_of(int i)
{
    return exp(log_p_of(theta_at, -1, i / V) + log_p_of(theta_at, i / V, i % V));
}

/* The mean over all pairs of completions of RLOO's gradient is that of the expected reward, also with a KL in the reward of each token, for
 * REINFORCE and for clipped ratios on policy. */
static void test_leave_one_out_is_unbiased(void **state)
{
    (void)state;
    for (int ratio = LLM_RATIO_NONE; ratio <= LLM_RATIO_TOKEN; ratio++) {
        for (int with = 0; with < 2; with++) {
            double beta = with ? .3 : 0, gradient[THETA] = {0};
            for (int i = 0; i < ALL; i++) {
                for (int j = 0; j < ALL; j++) {
                    double total[2], advantage[2];
                    for (int s = 0; s < 2; s++) {
                        int at = s == 0 ? i : j, a = at / V, b = at % V;
                        double gap = log_p_of(theta_at, -1, a) - log_p_of(theta_reference, -1, a);
                        gap += log_p_of(theta_at, a, b) - log_p_of(theta_reference, a, b);
                        total[s] = reward_of(at) - beta * gap;
                    }
                    llm_advantage_leave_one_out(total, 2, advantage);
                    const double first[2] = {advantage[0], advantage[0]}, second[2] = {advantage[1], advantage[1]};
                    add_gradient(gradient, theta_at, i, first, p_of(i) * p_of(j) / 2, (enum llm_ratio)ratio);
                    add_gradient(gradient, theta_at, j, second, p_of(i) * p_of(j) / 2, (enum llm_ratio)ratio);
                }
            }
            compare(gradient, beta);
        }
    }
}

/* With lambda = 1 the mean of the gradient with values as baselines is that of the expected reward whatever the values are. */
static void test_values_are_baselines(void **state)
{
    (void)state;
    static const double value[V] = {.7, -2, .1};
    double gradient[THETA] = {0};
    for (int i = 0; i < ALL; i++) {
        const double reward[2] = {0, reward_of(i)}, expected[2] = {3, value[i / V]};
        double advantage[2];
        llm_advantage_gae(reward, expected, 2, 1, 1, advantage);
        add_gradient(gradient, theta_at, i, advantage, p_of(i), LLM_RATIO_TOKEN);
    }
    compare(gradient, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_advantages), cmocka_unit_test(test_clipped_ratios), cmocka_unit_test(test_sequence_ratio),
        cmocka_unit_test(test_slopes_are_derivatives), cmocka_unit_test(test_estimators_have_the_gradients_of_theory),
        cmocka_unit_test(test_leave_one_out_is_unbiased), cmocka_unit_test(test_values_are_baselines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
