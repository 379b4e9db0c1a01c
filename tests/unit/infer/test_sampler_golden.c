/* Every filter, penalty and the temperature, alone and in chains, against transformers' own in double precision (tests/oracle/sampling.py): what is
 * left, and with what probability; and that draws come with these probabilities. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/json.h"
#include "cpu/pool.h"
#include "infer/sample/sampler.h"

enum { VOCAB = 24, HISTORY = 100, MAX_BIASES = 4, DRAWS = 20000 };

struct golden {
    struct llm_sampling sampling;
    struct llm_logit_bias bias[MAX_BIASES];
    int32_t ids[HISTORY];
    struct llm_history history;
    float logits[VOCAB];
    double p[VOCAB];
};

static double real(const json_t *o, const char *key, double otherwise)
{
    const json_t *v = json_object_get(o, key);
    return v ? json_number_value(v) : otherwise;
}

static void read_golden(const json_t *o, struct golden *g)
{
    const json_t *options = json_object_get(o, "options"), *bias = json_object_get(options, "bias"), *history = json_object_get(o, "history");
    assert_int_equal(json_array_size(json_object_get(o, "logits")), VOCAB);
    assert_int_equal(json_array_size(json_object_get(o, "p")), VOCAB);
    assert_true(json_array_size(bias) <= MAX_BIASES && json_array_size(history) <= HISTORY);
    g->sampling = (struct llm_sampling){
        .temperature = real(options, "temperature", 1), .top_k = (int64_t)real(options, "top_k", 0), .top_p = real(options, "top_p", 1),
        .min_p = real(options, "min_p", 0), .typical = real(options, "typical", 1), .repeat_penalty = real(options, "repeat_penalty", 1),
        .presence_penalty = real(options, "presence_penalty", 0), .frequency_penalty = real(options, "frequency_penalty", 0),
        .repeat_last_n = (int64_t)real(options, "repeat_last_n", 64), .bias = g->bias, .n_bias = json_array_size(bias), .seed = 7};
    for (size_t i = 0; i < json_array_size(bias); i++) {
        const json_t *pair = json_array_get(bias, i);
        g->bias[i] = (struct llm_logit_bias){(int32_t)json_integer_value(json_array_get(pair, 0)), (float)json_number_value(json_array_get(pair, 1))};
    }
    g->history = (struct llm_history){g->ids, (int64_t)json_array_size(history)};
    for (size_t i = 0; i < json_array_size(history); i++) g->ids[i] = (int32_t)json_integer_value(json_array_get(history, i));
    for (size_t i = 0; i < VOCAB; i++) {
        g->logits[i] = (float)json_number_value(json_array_get(json_object_get(o, "logits"), i));
        g->p[i] = json_number_value(json_array_get(json_object_get(o, "p"), i));
    }
}

static void check_filter(const struct golden *g, size_t number)
{
    struct llm_sampler s = {0};
    struct llm_err e = {0};
    float logits[VOCAB];
    double found[VOCAB] = {0};
    memcpy(logits, g->logits, sizeof logits);
    assert_int_equal(llm_sampler_filter(&s, &g->sampling, &g->history, logits, VOCAB, &e), 0);
    double max = llm_candidates_max(&s.c), mass = llm_candidates_mass(&s.c);
    for (size_t i = 0; i < s.c.n; i++) found[s.c.v[i].id] = exp(s.c.v[i].logit - max) / mass;
    for (size_t i = 0; i < VOCAB; i++) {
        /* what is filtered out has no probability at all; FP32 logits of size 25 are good for 2e-6 */
        if (g->p[i] == 0 ? found[i] > 1e-290 : fabs(found[i] - g->p[i]) > 1e-5 * g->p[i]) {
            fail_msg("case %zu, token %zu: expected %.9g, found %.9g", number, i, g->p[i], found[i]);
        }
    }
    llm_sampler_release(&s);
}

/* Pearson's statistic of draws at so many positions; the bound is passed by chance once in a million. */
static void check_draws(const struct golden *g, size_t number)
{
    struct llm_sampler s = {0};
    struct llm_err e = {0};
    int64_t counts[VOCAB] = {0};
    double chi2 = 0, rest = 0, rest_count = 0;
    int degrees = -1;
    for (uint32_t position = 0; position < DRAWS; position++) {
        float logits[VOCAB];
        int32_t id;
        memcpy(logits, g->logits, sizeof logits);
        assert_int_equal(llm_sampler_choose(&s, &g->sampling, &g->history, logits, VOCAB, (uint32_t)number, position, &id, &e), 0);
        assert_true(id >= 0 && id < VOCAB && g->p[id] > 0);
        counts[id]++;
    }
    llm_sampler_release(&s);
    for (size_t i = 0; i < VOCAB; i++) {
        double want = g->p[i] * DRAWS, d = (double)counts[i] - want;
        if (want < 10) { /* rare ones count together */
            rest += want;
            rest_count += (double)counts[i];
            continue;
        }
        chi2 += d * d / want;
        degrees++;
    }
    if (rest >= 10) {
        chi2 += (rest_count - rest) * (rest_count - rest) / rest;
        degrees++;
    }
    /* Wilson and Hilferty: the cube root of chi2 / degrees is nearly normal */
    double v = degrees > 0 ? 2. / (9. * degrees) : 1, z = degrees > 0 ? (cbrt(chi2 / degrees) - (1 - v)) / sqrt(v) : 0;
    if (z > 4.75) fail_msg("case %zu: chi2 %.1f at %d degrees of freedom", number, chi2, degrees);
}

static void each(void (*check)(const struct golden *g, size_t number))
{
    struct llm_err e = {0};
    struct golden g;
    json_t *all = llm_json_load("tests/golden/sampling.json", 1 << 20, &e);
    assert_non_null(all);
    assert_true(json_array_size(all) >= 60);
    for (size_t i = 0; i < json_array_size(all); i++) {
        read_golden(json_array_get(all, i), &g);
        check(&g, i);
    }
    json_decref(all);
}

static void test_what_is_left_is_what_transformers_leave(void **state)
{
    (void)state;
    each(check_filter);
}

static void test_draws_follow_it(void **state)
{
    (void)state;
    each(check_draws);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_left_is_what_transformers_leave),
        cmocka_unit_test(test_draws_follow_it),
    };
    if (llm_pool_start(1, NULL) < 0) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    llm_pool_stop();
    return failed;
}
