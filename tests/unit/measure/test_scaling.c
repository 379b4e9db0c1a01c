/* Fits of scaling laws: known parameters come back from points that lie on a law, closed forms agree with a search, and intervals of 95% cover. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "cpu/pool.h"
#include "measure/scaling.h"
#include "tests/unit/near.h"

enum { SIZES = 6, POINTS = SIZES * SIZES };
/* Hoffmann et al. */
static const struct { double e, a, alpha, b, beta; } law = {1.69, 406.4, .34, 410.7, .28};

struct points { double n[POINTS], d[POINTS], c[POINTS], y[POINTS]; };

static double normal(uint32_t set, uint32_t i)
{
    struct llm_rng r = llm_rng_at(set, 0, LLM_RNG_TEST, 0, 0, 0);
    return (double)llm_rng_normal(&r, i);
}

/* L(N, D) at a grid of sizes, 1e7 to 3e9 and 2e8 to 6e10, losses off by `noise` of themselves. */
static void on_law(struct points *s, double noise, uint32_t set)
{
    for (int i = 0; i < POINTS; i++) {
        s->n[i] = 1e7 * pow(300, i % SIZES / (SIZES - 1.));
        s->d[i] = 2e8 * pow(300, i / SIZES / (SIZES - 1.));
        s->c[i] = 6 * s->n[i] * s->d[i];
        s->y[i] = (law.e + law.a / pow(s->n[i], law.alpha) + law.b / pow(s->d[i], law.beta)) * (1 + noise * normal(set, (uint32_t)i));
    }
}

static struct llm_scaling_points two(const struct points *s)
{
    return (struct llm_scaling_points){POINTS, {s->n, s->d}, s->y, {"N", "D"}};
}

static struct llm_scaling_points one(const struct points *s)
{
    return (struct llm_scaling_points){POINTS, {s->c, NULL}, s->y, {"C", NULL}};
}

static void fit(struct llm_scaling_fit *f, struct llm_scaling_points p, struct llm_scaling_options o)
{
    struct llm_err e;
    if (!o.replicates) o.replicates = 20;
    if (llm_scaling_fit(f, &p, &o, &e) < 0) fail_msg("%s", e.text);
}

static double coefficient(const struct llm_scaling_fit *f, int j)
{
    return llm_scaling_coefficient(f, f->p, (const double[]){j, 0});
}

static void parameters_come_back(void **state)
{
    static const double zeros[] = {.05, .34, 1.2};
    struct points s;
    struct llm_scaling_fit f;
    double found[2];
    (void)state;
    on_law(&s, 0, 0);
    fit(&f, two(&s), (struct llm_scaling_options){.law = LLM_LAW_ND});
    near(f.p[LLM_LAW_ALPHA], law.alpha, 0, 1e-6);
    near(f.p[LLM_LAW_BETA], law.beta, 0, 1e-6);
    near(f.p[LLM_LAW_E], law.e, 1e-6, 0);
    near(coefficient(&f, 0), law.a, 1e-5, 0);
    near(coefficient(&f, 1), law.b, 1e-5, 0);
    near(f.rms, 0, 0, 1e-9);
    struct llm_err e;
    assert_int_equal(llm_scaling_interval(&f, llm_scaling_parameter, (const double[]){LLM_LAW_ALPHA, 0}, found, &e), 0);
    near(found[0], law.alpha, 0, 1e-6);
    near(found[1], law.alpha, 0, 1e-6);
    llm_scaling_release(&f);
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < POINTS; i++) s.y[i] = 1.5 + 40 * pow(s.c[i], -zeros[k]);
        if (zeros[k] > 1) for (int i = 0; i < POINTS; i++) s.c[i] *= 1e-15, s.y[i] = 1.5 + 4 * pow(s.c[i], -zeros[k]);
        fit(&f, one(&s), (struct llm_scaling_options){.law = LLM_LAW_C});
        near(f.p[LLM_LAW_ALPHA], zeros[k], 0, 1e-6);
        near(f.p[LLM_LAW_E], 1.5, 1e-6, 0);
        llm_scaling_release(&f);
        for (int i = 0; i < POINTS; i++) s.y[i] -= 1.5;
        fit(&f, one(&s), (struct llm_scaling_options){.law = LLM_LAW_C, .zero_floor = true});
        near(f.p[LLM_LAW_ALPHA], zeros[k], 0, 1e-9);
        near(coefficient(&f, 0), zeros[k] > 1 ? 4 : 40, 1e-7, 0);
        assert_true(f.p[LLM_LAW_E] == 0);
        llm_scaling_release(&f);
    }
    for (int i = 0; i < POINTS; i++) s.y[i] = .3118 * pow(s.c[i], -.125); /* the best rate falls */
    fit(&f, one(&s), (struct llm_scaling_options){.law = LLM_LAW_LR});
    near(llm_scaling_rate_exponent(&f, f.p, s.c), -.125, 0, 1e-9);
    near(coefficient(&f, 0), .3118, 1e-7, 0);
    llm_scaling_release(&f);
    for (int i = 0; i < POINTS; i++) s.y[i] = 1e-9 * pow(s.c[i], .25); /* and rises */
    fit(&f, one(&s), (struct llm_scaling_options){.law = LLM_LAW_LR});
    near(llm_scaling_rate_exponent(&f, f.p, s.c), .25, 0, 1e-9);
    llm_scaling_release(&f);
}

static void noise_of_a_thousandth(void **state)
{
    struct points s;
    struct llm_scaling_fit f;
    (void)state;
    for (uint32_t set = 1; set <= 40; set++) {
        on_law(&s, 1e-3, set);
        fit(&f, two(&s), (struct llm_scaling_options){.law = LLM_LAW_ND});
        near(f.p[LLM_LAW_ALPHA], law.alpha, 0, .01);
        near(f.p[LLM_LAW_BETA], law.beta, 0, .01);
        near(f.rms, 1e-3, .5, 0);
        llm_scaling_release(&f);
    }
}

/* Points that failed do not move the fit: three of 36, as far off as 20%. */
static void outliers(void **state)
{
    struct points s;
    struct llm_scaling_fit f;
    (void)state;
    on_law(&s, 1e-3, 7);
    s.y[3] *= 1.2, s.y[17] *= 1.1, s.y[30] *= 1.15;
    fit(&f, two(&s), (struct llm_scaling_options){.law = LLM_LAW_ND});
    near(f.p[LLM_LAW_ALPHA], law.alpha, 0, .02);
    near(f.p[LLM_LAW_BETA], law.beta, 0, .02);
    llm_scaling_release(&f);
    fit(&f, two(&s), (struct llm_scaling_options){.law = LLM_LAW_ND, .huber = 10}); /* least squares does move */
    assert_true(fabs(f.p[LLM_LAW_ALPHA] - law.alpha) > .03 || fabs(f.p[LLM_LAW_BETA] - law.beta) > .03);
    llm_scaling_release(&f);
    on_law(&s, 1e-4, 7);
    for (int i = 0; i < POINTS; i++) s.y[i] += 10;
    s.y[8] *= 3, s.y[20] *= 3, s.y[29] *= 3; /* the mean square of the residuals is more than what a term has of a loss */
    fit(&f, two(&s), (struct llm_scaling_options){.law = LLM_LAW_ND});
    near(f.p[LLM_LAW_ALPHA], law.alpha, 0, .02);
    near(f.p[LLM_LAW_BETA], law.beta, 0, .02);
    llm_scaling_release(&f);
}

/* The optimum against a search over N by golden section, and against the exponents of N(C) and D(C). */
static void the_best_split_of_a_budget(void **state)
{
    struct points s;
    struct llm_scaling_fit f;
    const double golden = (sqrt(5) - 1) / 2, x[2] = {5.76e23, 6}, ten[2] = {5.76e24, 6};
    (void)state;
    on_law(&s, 0, 0);
    fit(&f, two(&s), (struct llm_scaling_options){.law = LLM_LAW_ND});
    double low = log(1e8), high = log(1e13);
    while (high - low > 1e-9) {
        double a = high - golden * (high - low), b = low + golden * (high - low);
        const double at_a[2] = {exp(a), x[0] / x[1] / exp(a)}, at_b[2] = {exp(b), x[0] / x[1] / exp(b)};
        if (llm_scaling_at(&f, f.p, at_a) < llm_scaling_at(&f, f.p, at_b)) high = b;
        else low = a;
    }
    double n = llm_scaling_best_params(&f, f.p, x), d = llm_scaling_best_tokens(&f, f.p, x);
    near(n, exp(low), 1e-6, 0); /* a search finds a minimum to the root of the precision */
    near(6 * n * d, x[0], 1e-12, 0);
    near(llm_scaling_best_loss(&f, f.p, x), law.e + law.a / pow(n, law.alpha) + law.b / pow(d, law.beta), 1e-6, 0);
    near(llm_scaling_best_params(&f, f.p, ten) / n, pow(10, law.beta / (law.alpha + law.beta)), 1e-5, 0);
    near(llm_scaling_params_exponent(&f, f.p, x), law.beta / (law.alpha + law.beta), 0, 1e-6);
    near(llm_scaling_tokens_exponent(&f, f.p, x), law.alpha / (law.alpha + law.beta), 0, 1e-6);
    llm_scaling_release(&f);
}

static void threads_and_seeds(void **state)
{
    struct points s;
    struct llm_scaling_fit f, g, h;
    struct llm_err e;
    const size_t bytes = 50 * sizeof(double) * LLM_LAW_PARAMS;
    (void)state;
    on_law(&s, 1e-2, 3);
    fit(&f, two(&s), (struct llm_scaling_options){.law = LLM_LAW_ND, .replicates = 50});
    assert_int_equal(llm_pool_start(3, &e), 0);
    fit(&g, two(&s), (struct llm_scaling_options){.law = LLM_LAW_ND, .replicates = 50});
    fit(&h, two(&s), (struct llm_scaling_options){.law = LLM_LAW_ND, .replicates = 50, .seed = 1});
    llm_pool_stop();
    assert_memory_equal(f.replicates, g.replicates, bytes);
    assert_memory_equal(f.p, h.p, sizeof f.p);
    assert_true(memcmp(f.replicates, h.replicates, bytes) != 0);
    llm_scaling_release(&f);
    llm_scaling_release(&g);
    llm_scaling_release(&h);
}

static void refused(struct llm_scaling_points p, struct llm_scaling_options o, const char *text)
{
    struct llm_scaling_fit f;
    struct llm_err e;
    o.replicates = 10;
    if (llm_scaling_fit(&f, &p, &o, &e) == 0) fail_msg("expected '%s', found alpha %g, beta %g", text, f.p[LLM_LAW_ALPHA], f.p[LLM_LAW_BETA]);
    assert_int_equal(e.status, EX_DATAERR);
    if (!strstr(e.text, text)) fail_msg("expected '%s', found '%s'", text, e.text);
    llm_scaling_release(&f);
}

static void points_that_determine_nothing(void **state)
{
    struct points s;
    (void)state;
    on_law(&s, 0, 0);
    struct llm_scaling_points few = two(&s);
    few.n = 5;
    refused(few, (struct llm_scaling_options){.law = LLM_LAW_ND}, "expected at least 6 points (the law has 5 parameters), found 5");
    for (int i = 0; i < POINTS; i++) s.n[i] = 1e8;
    refused(two(&s), (struct llm_scaling_options){.law = LLM_LAW_ND},
            "N: expected at least 3 different values, which determine the exponent alpha; found 1");
    on_law(&s, 0, 0);
    for (int i = 0; i < POINTS; i++) s.d[i] = i % 2 ? 1e9 : 1e10;
    refused(two(&s), (struct llm_scaling_options){.law = LLM_LAW_ND}, "exponent beta; found 2");
    on_law(&s, 0, 0);
    for (int i = 0; i < POINTS; i++) s.y[i] = 2 + 100 * pow(s.n[i], -.3); /* D changes nothing */
    refused(two(&s), (struct llm_scaling_options){.law = LLM_LAW_ND}, "do not determine the exponents");
    for (int i = 0; i < POINTS; i++) s.y[i] = 2 + 100 * pow(s.n[i] = 1e7 * (i + 1), -.3) + 100 * pow(s.d[i] = 2e8 * (i + 1), -.3);
    refused(two(&s), (struct llm_scaling_options){.law = LLM_LAW_ND}, "N and D must change independently");
}

/* Of `sets` data sets with noise, how many intervals hold the true alpha, beta and best loss of a budget. Independent sets: their number varies by
 * sqrt(sets · .95 · .05), and the test allows 3.5 of these and the 2% that an interval may be off. LLM_SCALING_SETS asks for more. */
static void intervals_cover(void **state)
{
    const char *more = getenv("LLM_SCALING_SETS");
    const int sets = more ? atoi(more) : 100;
    const double budget[2] = {1e22, 6};
    int hits[4] = {0};
    (void)state;
    struct llm_err e;
    assert_int_equal(llm_pool_start(0, &e), 0);
    for (int set = 0; set < sets; set++) {
        struct points s;
        struct llm_scaling_fit f;
        on_law(&s, 1e-3, 1000 + (uint32_t)set);
        fit(&f, two(&s), (struct llm_scaling_options){.law = LLM_LAW_ND, .replicates = 400, .seed = (uint64_t)set});
        double g = pow(law.alpha * law.a / law.beta / law.b, 1 / (law.alpha + law.beta));
        double n = g * pow(budget[0] / 6, law.beta / (law.alpha + law.beta)), d = budget[0] / 6 / n;
        const struct { llm_scaling_value value; double x[2], truth; } of[] = {
            {llm_scaling_parameter, {LLM_LAW_ALPHA, 0}, law.alpha}, {llm_scaling_parameter, {LLM_LAW_BETA, 0}, law.beta},
            {llm_scaling_best_params, {1e22, 6}, n},
            {llm_scaling_best_loss, {1e22, 6}, law.e + law.a / pow(n, law.alpha) + law.b / pow(d, law.beta)}};
        for (int i = 0; i < 4; i++) {
            double interval[2];
            assert_int_equal(llm_scaling_interval(&f, of[i].value, of[i].x, interval, &e), 0);
            hits[i] += interval[0] <= of[i].truth && of[i].truth <= interval[1];
        }
        llm_scaling_release(&f);
    }
    llm_pool_stop();
    for (int i = 0; i < 4; i++) {
        printf("# %d of %d intervals cover\n", hits[i], sets);
        near((double)hits[i] / sets, .95, 0, .02 + 3.5 * sqrt(.95 * .05 / sets));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parameters_come_back), cmocka_unit_test(noise_of_a_thousandth), cmocka_unit_test(outliers),
                                       cmocka_unit_test(the_best_split_of_a_budget), cmocka_unit_test(threads_and_seeds),
                                       cmocka_unit_test(points_that_determine_nothing), cmocka_unit_test(intervals_cover)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
