/* Sampling: filters against plain definitions on a full sort, frequencies against the filtered distribution. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/rng.h"
#include "cpu/pool.h"
#include "infer/sample/options.h"
#include "infer/sample/sampler.h"

enum { MAX = 5000 };
static const struct llm_history nothing = {NULL, 0};

static void random_logits(float *x, size_t n, uint32_t seed, float spread)
{
    struct llm_rng r = llm_rng_at(seed, 0, LLM_RNG_TEST, 0, 0, 0);
    for (size_t i = 0; i < n; i++) x[i] = spread * llm_rng_normal(&r, (uint32_t)i);
}

static struct llm_sampling plain(void)
{
    struct llm_sampling p = llm_sampling_defaults;
    p.temperature = p.top_p = 1;
    p.top_k = 0;
    p.min_p = 0;
    return p;
}

static int descending(const void *a, const void *b)
{
    const struct llm_candidate *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* What is left, as the definitions say, by sorting everything: keep[id]. */
static void reference(const struct llm_sampling *p, const float *logits, size_t n, bool *keep)
{
    static struct llm_candidate v[MAX];
    for (size_t i = 0; i < n; i++) v[i] = (struct llm_candidate){logits[i], (int32_t)i};
    qsort(v, n, sizeof *v, descending);
    size_t left = n;
    if (p->top_k > 0 && (size_t)p->top_k < left) left = (size_t)p->top_k;
    if (p->top_p < 1) {
        double sum = 0, all = 0;
        for (size_t i = 0; i < left; i++) all += exp(v[i].logit - v[0].logit);
        for (size_t i = 0; i < left; i++) {
            sum += exp(v[i].logit - v[0].logit) / all;
            if (sum >= p->top_p) {
                left = i + 1;
                break;
            }
        }
    }
    if (p->min_p > 0) {
        while (left > 1 && v[left - 1].logit < v[0].logit + log(p->min_p)) left--;
    }
    memset(keep, 0, n * sizeof *keep);
    for (size_t i = 0; i < left; i++) keep[v[i].id] = true;
}

static void test_filters_keep_what_their_definitions_say(void **state)
{
    (void)state;
    static float logits[MAX], copy[MAX];
    static bool keep[MAX];
    struct llm_sampler s = {0};
    static const size_t sizes[] = {1, 2, 3, 7, 64, 65, 513, MAX};
    static const int64_t top_ks[] = {0, 1, 2, 40, 4999};
    static const double top_ps[] = {1, .95, .5, 0}, min_ps[] = {0, .05, .5, 1};
    for (size_t a = 0; a < 8; a++)
        for (size_t b = 0; b < 5; b++)
            for (size_t c = 0; c < 4; c++)
                for (size_t d = 0; d < 4; d++)
                    for (int ties = 0; ties < 2; ties++) {
                        size_t n = sizes[a], left = 0;
                        random_logits(logits, n, (uint32_t)(a * 100 + b), 3);
                        for (size_t i = 0; ties && i < n; i++) logits[i] = floorf(logits[i]);
                        struct llm_sampling p = plain();
                        p.top_k = top_ks[b], p.top_p = top_ps[c], p.min_p = min_ps[d];
                        memcpy(copy, logits, sizeof copy);
                        reference(&p, logits, n, keep);
                        assert_int_equal(llm_sampler_filter(&s, &p, &nothing, copy, n, NULL), 0);
                        for (size_t i = 0; i < n; i++) left += keep[i];
                        assert_int_equal(s.c.n, left);
                        for (size_t i = 0; i < s.c.n; i++) assert_true(keep[s.c.v[i].id]);
                    }
    llm_sampler_release(&s);
}

static void test_typical_takes_the_nearest_to_the_entropy(void **state)
{
    (void)state;
    /* p = .5 .25 .125 .125: entropy 1.75 bits, surprises 1 2 3 3 bits: nearest is id 1 (.25 away), then 0 (.75), then 2 and 3 (1.25). */
    static const double wanted[][2] = {{.2, 1 << 1}, {.3, 1 << 1 | 1}, {.8, 1 << 1 | 1 | 1 << 2}, {.99, 15}, {0, 1 << 1}};
    struct llm_sampler s = {0};
    for (size_t k = 0; k < 5; k++) {
        float logits[4] = {(float)log(.5), (float)log(.25), (float)log(.125), (float)log(.125)};
        struct llm_sampling p = plain();
        p.typical = wanted[k][0];
        assert_int_equal(llm_sampler_filter(&s, &p, &nothing, logits, 4, NULL), 0);
        int left = 0;
        for (size_t i = 0; i < s.c.n; i++) {
            left |= 1 << s.c.v[i].id;
            assert_float_equal(s.c.v[i].logit, logits[s.c.v[i].id], 0);
        }
        assert_int_equal(left, (int)wanted[k][1]);
    }
    llm_sampler_release(&s);
}

static void test_penalties_count_the_last_tokens(void **state)
{
    (void)state;
    static const int32_t ids[] = {3, 0, 1, 1, 2, 1};
    struct llm_history h = {ids, 6};
    struct llm_sampler s = {0};
    struct llm_sampling p = plain();
    p.repeat_penalty = 2, p.presence_penalty = .5, p.frequency_penalty = .25, p.repeat_last_n = 5;
    float logits[5] = {4, 2, -1, 1, 7};
    assert_int_equal(llm_sampler_filter(&s, &p, &h, logits, 5, NULL), 0);
    assert_float_equal(logits[0], 2 - .5 - .25, 1e-6);
    assert_float_equal(logits[1], 1 - .5 - .75, 1e-6);
    assert_float_equal(logits[2], -2 - .5 - .25, 1e-6);
    assert_float_equal(logits[3], 1, 0); /* six back */
    assert_float_equal(logits[4], 7, 0);
    p.repeat_last_n = -1;
    assert_int_equal(llm_sampler_filter(&s, &p, &h, logits, 5, NULL), 0);
    assert_float_equal(logits[3], .5 - .5 - .25, 1e-6);
    llm_sampler_release(&s);
}

static void test_bias_bans_and_forces(void **state)
{
    (void)state;
    struct llm_logit_bias bias[] = {{1, -INFINITY}, {2, 3}};
    struct llm_sampler s = {0};
    struct llm_sampling p = plain();
    p.bias = bias, p.n_bias = 2, p.temperature = 0;
    float logits[3] = {4, 9, 2};
    int32_t id;
    assert_int_equal(llm_sampler_choose(&s, &p, &nothing, logits, 3, 0, 0, &id, NULL), 0);
    assert_int_equal(id, 2);
    p.temperature = 1;
    for (uint32_t i = 0; i < 200; i++) {
        float again[3] = {4, 9, 2};
        assert_int_equal(llm_sampler_choose(&s, &p, &nothing, again, 3, 0, i, &id, NULL), 0);
        assert_int_not_equal(id, 1);
    }
    bias[0].id = 3;
    struct llm_err e = {0};
    assert_int_equal(llm_sampling_check(&p, 3, &e), -1);
    assert_int_equal(e.status, LLM_EX_USAGE);
    llm_sampler_release(&s);
}

static void test_temperature_zero_takes_the_lowest_of_equals(void **state)
{
    (void)state;
    struct llm_sampler s = {0};
    struct llm_sampling p = plain();
    p.temperature = 0;
    float logits[6] = {1, 5, -2, 5, 5, 0};
    int32_t id;
    assert_int_equal(llm_sampler_choose(&s, &p, &nothing, logits, 6, 0, 0, &id, NULL), 0);
    assert_int_equal(id, 1);
    llm_sampler_release(&s);
}

static void test_logits_that_are_not_finite_fail(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY};
    struct llm_sampler s = {0};
    int32_t id;
    for (int t = 0; t < 2; t++)
        for (int k = 0; k < 2; k++) {
            struct llm_sampling p = plain();
            p.temperature = t;
            float logits[3] = {0, bad[k], 1};
            struct llm_err e = {0};
            assert_int_equal(llm_sampler_choose(&s, &p, &nothing, logits, 3, 0, 0, &id, &e), -1);
            assert_int_equal(e.status, LLM_EX_FAILURE);
        }
    llm_sampler_release(&s);
}

/* Pearson's statistic of n draws against the softmax of what the filters left; its expectation is the degrees of freedom. */
static void test_frequencies_follow_the_filtered_distribution(void **state)
{
    (void)state;
    enum { V = 60, DRAWS = 40000 };
    static const struct { int64_t k; double p, min_p, typical, t; } cases[] = {
        {0, 1, 0, 1, 1}, {12, 1, 0, 1, 1}, {0, .8, 0, 1, 1}, {0, 1, .1, 1, 1}, {0, 1, 0, .7, 1}, {20, .9, .05, .9, .7}, {0, 1, 0, 1, 2.5}};
    struct llm_sampler s = {0};
    float logits[V], copy[V];
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        random_logits(logits, V, 7 + (uint32_t)c, 1.5f);
        struct llm_sampling p = plain();
        p.top_k = cases[c].k, p.top_p = cases[c].p, p.min_p = cases[c].min_p, p.typical = cases[c].typical, p.temperature = cases[c].t;
        p.seed = 99;
        double expected[V] = {0}, sum = 0, chi2 = 0;
        int counts[V] = {0}, freedom = -1;
        memcpy(copy, logits, sizeof copy);
        assert_int_equal(llm_sampler_filter(&s, &p, &nothing, copy, V, NULL), 0);
        for (size_t i = 0; i < s.c.n; i++) sum += expected[s.c.v[i].id] = exp(logits[s.c.v[i].id] / cases[c].t);
        for (int i = 0; i < DRAWS; i++) {
            int32_t id;
            memcpy(copy, logits, sizeof copy);
            assert_int_equal(llm_sampler_choose(&s, &p, &nothing, copy, V, (uint32_t)i & 7, (uint32_t)i >> 3, &id, NULL), 0);
            counts[id]++;
        }
        for (int i = 0; i < V; i++) {
            double e = expected[i] / sum * DRAWS;
            if (e == 0) {
                assert_int_equal(counts[i], 0);
                continue;
            }
            chi2 += (counts[i] - e) * (counts[i] - e) / e;
            freedom++;
        }
        /* Wilson and Hilferty: the cube root is near normal; 4 deviations. */
        double z = (cbrt(chi2 / freedom) - (1 - 2. / (9 * freedom))) / sqrt(2. / (9 * freedom));
        assert_true(freedom > 2);
        if (fabs(z) > 4) fail_msg("case %zu: chi2 %.1f with %d degrees of freedom", c, chi2, freedom);
    }
    llm_sampler_release(&s);
}

/* Changes one part of the key of the noise. */
static void change_key(struct llm_sampling *p, uint32_t *sample, uint32_t *position, int part)
{
    switch (part) {
    case 0: p->seed++; break;
    case 1: p->policy_step++; break;
    case 2: p->prompt++; break;
    case 3: (*sample)++; break;
    case 4: *position += 1000; break;
    }
}

static void test_draws_depend_on_their_key_alone(void **state)
{
    (void)state;
    float logits[50], copy[50];
    random_logits(logits, 50, 3, .1f);
    struct llm_sampler s = {0}, other = {0};
    int32_t a, b;
    int differ[5] = {0};
    for (uint32_t i = 0; i < 100; i++) {
        struct llm_sampling p = plain();
        memcpy(copy, logits, sizeof copy);
        assert_int_equal(llm_sampler_choose(&s, &p, &nothing, copy, 50, 2, i, &a, NULL), 0);
        memcpy(copy, logits, sizeof copy);
        assert_int_equal(llm_sampler_choose(&other, &p, &nothing, copy, 50, 2, i, &b, NULL), 0);
        assert_int_equal(a, b);
        for (int k = 0; k < 5; k++) {
            struct llm_sampling changed = p;
            uint32_t sample = 2, position = i;
            change_key(&changed, &sample, &position, k);
            memcpy(copy, logits, sizeof copy);
            assert_int_equal(llm_sampler_choose(&s, &changed, &nothing, copy, 50, sample, position, &b, NULL), 0);
            differ[k] += a != b;
        }
    }
    for (int k = 0; k < 5; k++) assert_true(differ[k] > 80);
    llm_sampler_release(&s);
    llm_sampler_release(&other);
}

/* The winner is the maximum of logit + noise over all tokens, each with its noise alone: a filter that removes other tokens does not change it. */
static void test_a_draw_survives_filters_that_keep_it(void **state)
{
    (void)state;
    enum { V = 300 };
    static float logits[V], copy[V];
    struct llm_sampler s = {0};
    int kept = 0;
    for (uint32_t i = 0; i < 400; i++) {
        struct llm_sampling p = plain();
        int32_t a, b;
        random_logits(logits, V, 40 + i, 2);
        memcpy(copy, logits, sizeof copy);
        assert_int_equal(llm_sampler_choose(&s, &p, &nothing, copy, V, 0, i, &a, NULL), 0);
        p.top_k = 20;
        memcpy(copy, logits, sizeof copy);
        assert_int_equal(llm_sampler_choose(&s, &p, &nothing, copy, V, 0, i, &b, NULL), 0);
        bool stays = false;
        for (size_t k = 0; k < s.c.n; k++) stays |= s.c.v[k].id == a;
        if (stays) assert_int_equal(a, b);
        kept += stays;
    }
    assert_true(kept > 100 && kept < 400);
    llm_sampler_release(&s);
}

static int ascending(const void *a, const void *b)
{
    const struct llm_candidate *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* Both samplers keep the same candidates, with the same logits, and draw the same token. */
static void check_plain(struct llm_sampler *quick, struct llm_sampler *slow, const struct llm_sampling *p, const float *logits, size_t n, uint32_t i)
{
    static float a[60000], b[60000];
    int32_t x, y;
    memcpy(a, logits, n * sizeof *a);
    memcpy(b, logits, n * sizeof *b);
    assert_int_equal(llm_sampler_filter(quick, p, &nothing, a, n, NULL), 0);
    assert_int_equal(llm_sampler_filter(slow, p, &nothing, b, n, NULL), 0);
    assert_int_equal(quick->c.n, slow->c.n);
    qsort(quick->c.v, quick->c.n, sizeof *quick->c.v, ascending);
    qsort(slow->c.v, slow->c.n, sizeof *slow->c.v, ascending);
    assert_memory_equal(quick->c.v, slow->c.v, quick->c.n * sizeof *quick->c.v);
    assert_int_equal(llm_sampler_choose(quick, p, &nothing, a, n, 0, i, &x, NULL), 0);
    assert_int_equal(llm_sampler_choose(slow, p, &nothing, b, n, 0, i, &y, NULL), 0);
    assert_int_equal(x, y);
}

static void test_filters_on_blocks_keep_what_filters_on_all_keep(void **state)
{
    (void)state;
    static float logits[60000];
    static const size_t sizes[] = {1, 63, 64, 65, 700, 5000, 60000};
    static const int64_t top_ks[] = {0, 1, 5, 40, 77, 5000};
    static const double top_ps[] = {1, .95, .5, .1, 0}, min_ps[] = {0, .05, .9, 1}, temperatures[] = {1, .7, 1e-3};
    struct llm_sampler quick = {0}, slow = {.plain = true};
    for (uint32_t i = 0; i < 1500; i++) {
        struct llm_rng r = llm_rng_at(11, i, LLM_RNG_TEST, 0, 0, 0);
        size_t n = sizes[llm_rng_below(&r, 0, i % 20 ? 6 : 7)];
        struct llm_sampling p = plain();
        p.top_k = top_ks[llm_rng_below(&r, 1, 6)], p.top_p = top_ps[llm_rng_below(&r, 2, 5)], p.min_p = min_ps[llm_rng_below(&r, 3, 4)];
        p.temperature = temperatures[llm_rng_below(&r, 4, 3)];
        if (llm_rng_below(&r, 5, 8) == 0) p.typical = .8;
        random_logits(logits, n, i, (float)(1 + llm_rng_below(&r, 6, 6)));
        uint64_t kind = llm_rng_below(&r, 7, 5); /* of logits: as they are, with ties, all equal, with many that are banned */
        for (size_t k = 0; k < n; k++) {
            if (kind == 1) logits[k] = floorf(logits[k]);
            else if (kind == 2) logits[k] = 2;
            else if (kind == 3 && k % 3) logits[k] = -INFINITY;
        }
        check_plain(&quick, &slow, &p, logits, n, i);
    }
    llm_sampler_release(&quick);
    llm_sampler_release(&slow);
}

/* The log-probability of a draw, against the definition on what the filters left. */
static void test_log_probabilities_are_of_the_distribution_drawn_from(void **state)
{
    (void)state;
    enum { V = 200 };
    static const struct { int64_t k; double p, t; } cases[] = {{0, 1, 1}, {0, 1, .7}, {10, 1, 1}, {0, .8, 1.5}, {5, .9, .3}};
    float logits[V], copy[V];
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct llm_sampler s = {0}, filtered = {0};
        struct llm_sampling p = plain();
        p.top_k = cases[c].k, p.top_p = cases[c].p, p.temperature = cases[c].t;
        for (uint32_t i = 0; i < 50; i++) {
            int32_t id;
            double sum = 0;
            random_logits(logits, V, 70 + i, 2);
            memcpy(copy, logits, sizeof copy);
            assert_int_equal(llm_sampler_filter(&filtered, &p, &nothing, copy, V, NULL), 0);
            for (size_t k = 0; k < filtered.c.n; k++) sum += exp(logits[filtered.c.v[k].id] / cases[c].t);
            memcpy(copy, logits, sizeof copy);
            assert_int_equal(llm_sampler_choose(&s, &p, &nothing, copy, V, 0, i, &id, NULL), 0);
            float found = llm_sampler_log_prob(&s, &p, copy, V, id);
            assert_true(fabs((double)found - (logits[id] / cases[c].t - log(sum))) < 3e-6);
        }
        llm_sampler_release(&s);
        llm_sampler_release(&filtered);
    }
}

static void test_a_tiny_temperature_is_the_maximum(void **state)
{
    (void)state;
    struct llm_sampler s = {0};
    struct llm_sampling p = plain();
    p.temperature = 1e-300;
    int32_t id;
    for (uint32_t i = 0; i < 50; i++) {
        float logits[3] = {1, 30, 2};
        assert_int_equal(llm_sampler_choose(&s, &p, &nothing, logits, 3, 0, i, &id, NULL), 0);
        assert_int_equal(id, 1);
    }
    llm_sampler_release(&s);
}

/* The table of options: each row's default in [brackets] is that of llm_sampling_defaults. */
static void test_options_say_their_defaults(void **state)
{
    struct args { struct llm_sampling sampling; };
    static const struct llm_opt rows[] = {LLM_SAMPLING_OPTIONS(struct args, sampling)};
    const struct args defaults = {llm_sampling_defaults};
    char names[300] = "";
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const void *field = (const char *)&defaults + rows[i].offset;
        const char *bracket = strchr(rows[i].help, '[');
        assert_non_null(bracket);
        double value = rows[i].type == LLM_INT ? (double)*(const int64_t *)field : *(const double *)field;
        assert_true(strtod(bracket + 1, NULL) == value);
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s|", rows[i].name);
    }
    assert_string_equal(names, LLM_SAMPLING_NAMES);
}

static void test_biases_are_parsed_strictly(void **state)
{
    static const char *const bad[] = {"", "+1", "1", "1+", "1+x", "x+1", "-1+2", "1+nan", "1+inf", "99999999999+1", "2147483648+1", "1 +1", "1*2"};
    struct llm_logit_bias b;
    (void)state;
    assert_int_equal(llm_logit_bias_parse("42+1.5", &b), 0);
    assert_true(b.id == 42 && b.bias == 1.5f);
    assert_int_equal(llm_logit_bias_parse("0-3", &b), 0);
    assert_true(b.id == 0 && b.bias == -3);
    assert_int_equal(llm_logit_bias_parse("7-inf", &b), 0);
    assert_true(b.id == 7 && isinf(b.bias) && b.bias < 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_int_equal(llm_logit_bias_parse(bad[i], &b), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_filters_keep_what_their_definitions_say),
        cmocka_unit_test(test_typical_takes_the_nearest_to_the_entropy),
        cmocka_unit_test(test_penalties_count_the_last_tokens),
        cmocka_unit_test(test_bias_bans_and_forces),
        cmocka_unit_test(test_temperature_zero_takes_the_lowest_of_equals),
        cmocka_unit_test(test_logits_that_are_not_finite_fail),
        cmocka_unit_test(test_frequencies_follow_the_filtered_distribution),
        cmocka_unit_test(test_draws_depend_on_their_key_alone),
        cmocka_unit_test(test_a_draw_survives_filters_that_keep_it),
        cmocka_unit_test(test_filters_on_blocks_keep_what_filters_on_all_keep),
        cmocka_unit_test(test_log_probabilities_are_of_the_distribution_drawn_from),
        cmocka_unit_test(test_a_tiny_temperature_is_the_maximum),
        cmocka_unit_test(test_options_say_their_defaults),
        cmocka_unit_test(test_biases_are_parsed_strictly),
    };
    if (llm_pool_start(1, NULL) < 0) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    llm_pool_stop();
    return failed;
}
