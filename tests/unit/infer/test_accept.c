/* Maximal acceptance of drafts: tokens have the model's distribution, by a chi-square test of a million draws, and as many drafts are accepted as can
 * be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "base/rng.h"
#include "cpu/pool.h"
#include "infer/sample/accept.h"

enum { N = 24, DRAWS = 1000000 };
static const struct llm_history nothing = {NULL, 0};

static void logits_of(float *x, uint32_t seed)
{
    struct llm_rng r = llm_rng_at(seed, 0, LLM_RNG_TEST, 0, 0, 0);
    for (uint32_t i = 0; i < N; i++) x[i] = 1.2F * llm_rng_normal(&r, i);
}

/* Probabilities of what filters leave of logits. */
static void distribution(const struct llm_sampling *p, const float *x, double *to)
{
    struct llm_sampler s = {0};
    struct llm_drafted d = {0};
    struct llm_err e;
    float copy[N];
    int32_t id;
    memcpy(copy, x, sizeof copy);
    memset(to, 0, N * sizeof *to);
    assert_int_equal(llm_accept_draft(&s, p, &nothing, copy, N, 0, 0, &d, &id, &e), 0);
    for (size_t i = 0; i < d.n; i++) to[d.v[i].id] = d.v[i].p;
    llm_drafted_release(&d);
    llm_sampler_release(&s);
}

/* Draws with drafts; `always`: a planted error, every draft is accepted. Chi-square of the tokens, and its degrees of freedom; the share of drafts
 * that were accepted, which should be *most. */
static double chi_square(const struct llm_sampling *p, uint32_t seed, bool always, int *freedom, double *accepted, double *most)
{
    struct llm_sampler s = {0};
    struct llm_drafted d = {0};
    struct llm_err e;
    float model[N], draft[N], copy[N];
    double want[N], proposed[N], chi = 0;
    int64_t count[N] = {0}, same = 0;
    logits_of(model, seed);
    logits_of(draft, seed + 100);
    for (int i = 0; i < N; i++) draft[i] = .6F * model[i] + .6F * draft[i];
    distribution(p, model, want);
    distribution(p, draft, proposed);
    *most = 0;
    for (int i = 0; i < N; i++) *most += want[i] < proposed[i] ? want[i] : proposed[i];
    for (uint32_t i = 0; i < DRAWS; i++) {
        int32_t guess, id;
        memcpy(copy, draft, sizeof copy);
        assert_int_equal(llm_accept_draft(&s, p, &nothing, copy, N, i >> 16, i & 0xffff, &d, &guess, &e), 0);
        memcpy(copy, model, sizeof copy);
        assert_int_equal(llm_accept_choose(&s, p, &nothing, copy, N, i >> 16, i & 0xffff, &d, guess, &id, &e), 0);
        same += id == guess;
        count[always ? guess : id]++;
    }
    *freedom = -1;
    for (int i = 0; i < N; i++) {
        if (want[i] == 0) {
            if (!always) assert_int_equal(count[i], 0);
            continue;
        }
        double off = (double)count[i] - DRAWS * want[i];
        chi += off * off / (DRAWS * want[i]);
        ++*freedom;
    }
    *accepted = (double)same / DRAWS;
    llm_drafted_release(&d);
    llm_sampler_release(&s);
    return chi;
}

static void tokens_have_the_models_distribution(void **state)
{
    (void)state;
    const struct { double temperature, top_p; int64_t top_k; } cases[] = {{1, 1, 0}, {.7, .9, 12}, {1.5, 1, 5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct llm_sampling p = llm_sampling_defaults;
        p.temperature = cases[i].temperature;
        p.top_p = cases[i].top_p;
        p.top_k = cases[i].top_k;
        p.min_p = 0;
        int freedom;
        double accepted, most, chi = chi_square(&p, (uint32_t)i + 1, false, &freedom, &accepted, &most);
        printf("chi-square %.1f of %d degrees, %.4f accepted of %.4f\n", chi, freedom, accepted, most);
        assert_true(chi < freedom + 5 * sqrt(2. * freedom)); /* of the right distribution: 1 in 10^5 or less */
        assert_true(fabs(accepted - most) < 5 * sqrt(most * (1 - most) / DRAWS));
        if (i > 0) continue;
        chi = chi_square(&p, (uint32_t)i + 1, true, &freedom, &accepted, &most);
        assert_true(chi > 1000); /* the test sees a wrong distribution */
    }
}

static void filters_that_remember_stay_exact(void **state)
{
    (void)state;
    struct llm_sampling p = llm_sampling_defaults;
    assert_true(llm_accept_possible(&p));
    p.mirostat = 2;
    assert_false(llm_accept_possible(&p));
    p.mirostat = 0;
    p.temperature = 0;
    assert_false(llm_accept_possible(&p));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_have_the_models_distribution),
        cmocka_unit_test(filters_that_remember_stay_exact),
    };
    if (llm_pool_start(1, NULL) < 0) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    llm_pool_stop();
    return failed;
}
