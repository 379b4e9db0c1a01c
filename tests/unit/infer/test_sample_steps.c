/* DRY, top-n-sigma, XTC, dynamic temperature, Mirostat and adaptive-p against their definitions, computed plainly in double precision. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/buf.h"
#include "base/rng.h"
#include "cpu/pool.h"
#include "infer/sample/dry.h"
#include "infer/sample/sampler.h"

enum { VOCAB = 400, HISTORY = 300 };
static const struct llm_history nothing = {NULL, 0};

static struct llm_rng rng_of(uint32_t seed)
{
    return llm_rng_at(seed, 0, LLM_RNG_TEST, 0, 0, 0);
}

static void random_logits(float *x, uint32_t seed, float spread)
{
    struct llm_rng r = rng_of(seed);
    for (uint32_t i = 0; i < VOCAB; i++) x[i] = spread * llm_rng_normal(&r, i);
}

static struct llm_sampling plain(void)
{
    struct llm_sampling p = llm_sampling_defaults;
    llm_sampling_open(&p);
    return p;
}

/* p[id] = softmax(x), in double. */
static void softmax(const float *x, double *p)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < VOCAB; i++) max = fmax(max, (double)x[i]);
    for (int i = 0; i < VOCAB; i++) sum += p[i] = exp((double)x[i] - max);
    for (int i = 0; i < VOCAB; i++) p[i] /= sum;
}

static bool is_left(const struct llm_sampler *s, int32_t id)
{
    for (size_t i = 0; i < s->c.n; i++)
        if (s->c.v[i].id == id) return true;
    return false;
}

/* The longest repetition that `id` would continue, by trying every place; -1: it stands nowhere behind a token. */
static int64_t repetition(const int32_t *h, int64_t n, const uint8_t *breakers, int32_t id)
{
    int64_t best = -1;
    for (int64_t at = 1; at < n; at++) { /* id stood at `at` */
        int64_t k = 0;
        if (h[at] != id) continue;
        while (k < at && h[at - 1 - k] == h[n - 1 - k] && !breakers[h[n - 1 - k]]) k++;
        best = k > best ? k : best;
    }
    return best;
}

static void test_dry(void **unused)
{
    static float logits[VOCAB], edited[VOCAB];
    int32_t h[HISTORY];
    uint8_t breakers[VOCAB] = {0};
    const struct llm_dry_breakers ends = {.marks = breakers};
    struct llm_sampler s = {0};
    struct llm_err e;
    int changed = 0;
    (void)unused;
    for (uint32_t seed = 0; seed < 60; seed++) {
        struct llm_rng r = rng_of(seed);
        int32_t words = seed % 3 == 0 ? 1 : seed % 3 == 1 ? 2 : 6; /* from endless repetition to little */
        for (uint32_t i = 0; i < HISTORY; i++) h[i] = (int32_t)llm_rng_below(&r, i, (uint64_t)words);
        memset(breakers, 0, sizeof breakers);
        if (seed % 2) breakers[5] = 1;
        struct llm_sampling p = plain();
        p.dry_multiplier = .8;
        p.dry_base = seed % 5 == 4 ? 1 : 1.1;
        p.dry_allowed_length = seed % 4;
        p.dry_penalty_last_n = seed % 7 == 6 ? 100 : -1;
        p.dry_breakers = &ends;
        int64_t n = 1 + (int64_t)llm_rng_below(&r, 1000, HISTORY - 1), from = p.dry_penalty_last_n > 0 && n > 100 ? n - 100 : 0;
        random_logits(logits, seed, 3);
        memcpy(edited, logits, sizeof logits);
        const struct llm_history history = {h, n};
        assert_int_equal(llm_sampler_filter(&s, &p, &history, edited, VOCAB, &e), 0);
        for (int32_t id = 0; id < VOCAB; id++) {
            int64_t length = repetition(h + from, n - from, breakers, id);
            bool loses = length >= p.dry_allowed_length && !breakers[id] && n - from > p.dry_allowed_length;
            double want = logits[id] - (loses ? p.dry_multiplier * pow(p.dry_base, (double)(length - p.dry_allowed_length)) : 0);
            assert_true(fabs(edited[id] - want) <= 1e-5 * fmax(1, fabs(want)));
            changed += loses;
        }
    }
    assert_true(changed > 50);
    llm_sampler_release(&s);
}

/* Token 3 with tokens 4 and 5 after it, or with 4 alone, is a breaker; so is 6 alone. */
static void test_dry_breakers_of_many_tokens(void **unused)
{
    static float logits[VOCAB], edited[VOCAB];
    uint8_t marks[VOCAB] = {[3] = LLM_DRY_BEGINS, [6] = LLM_DRY_ENDS};
    int32_t both[] = {4, 5}, one[] = {4};
    struct llm_dry_tail tails[] = {{both, 2}, {one, 1}};
    struct llm_dry_sequence sequences[] = {{3, 0}, {3, 1}};
    const struct llm_dry_breakers breakers = {.marks = marks, .v = sequences, .n = 2, .tails = tails, .n_tails = 2};
    /* The text, the token that would go on a repetition, and the length of what is repeated; -1: nothing is. */
    static const struct { int32_t ids[12]; int n, next, length; } cases[] = {
        {{1, 2, 3, 7, 1, 2}, 6, 3, 2},                    /* a head without its tail is a token like others */
        {{1, 2, 3, 4, 7, 1, 2, 3, 4}, 9, 7, -1},          /* ends in a breaker: nothing is repeated behind it */
        {{1, 3, 4, 5, 8, 9, 2, 3, 4, 5, 8}, 11, 9, -1},   /* one token is fewer than two */
        {{3, 4, 8, 9, 7, 3, 4, 8, 9}, 9, 7, 2},           /* of the shorter one */
        {{1, 5, 8, 9, 3, 4, 5, 8}, 8, 9, -1},             /* of the longer one: 5 is its last */
        {{6, 8, 9, 7, 6, 8, 9}, 7, 7, 2},
        {{2, 8, 6, 7, 2, 8}, 6, 6, -1}};                  /* a breaker itself loses nothing */
    struct llm_sampler s = {0};
    struct llm_err e;
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct llm_sampling p = plain();
        const struct llm_history history = {cases[i].ids, cases[i].n};
        p.dry_multiplier = 1;
        p.dry_base = 2;
        p.dry_allowed_length = 2;
        p.dry_breakers = &breakers;
        random_logits(logits, (uint32_t)i, 3);
        memcpy(edited, logits, sizeof logits);
        assert_int_equal(llm_sampler_filter(&s, &p, &history, edited, VOCAB, &e), 0);
        for (int32_t id = 0; id < VOCAB; id++) {
            const bool loses = id == cases[i].next && cases[i].length >= 0;
            assert_true(fabsf(edited[id] - (logits[id] - (loses ? (float)(1 << (cases[i].length - 2)) : 0))) < 1e-5f);
        }
    }
    llm_sampler_release(&s);
}

/* Whether the tokens' text ends in one of the texts. */
static bool ends_in(const struct llm_tokenizer *t, const int32_t *ids, size_t n, const char *const *texts, size_t n_texts)
{
    struct llm_buf part = {0};
    struct llm_err e;
    bool found = false;
    assert_int_equal(llm_decode(t, ids, n, false, &part, &e), 0);
    for (size_t i = 0; i < n_texts; i++) {
        const size_t length = strlen(texts[i]);
        found |= part.n >= length && memcmp(part.p + part.n - length, texts[i], length) == 0;
    }
    llm_buf_release(&part);
    return found;
}

/* Breakers that begin in a text, each of more than one token. */
static void check_breakers(const char *path, const char *text, const char *const *texts, size_t n_texts, int64_t want)
{
    struct llm_err e;
    struct llm_dry_breakers b = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    int64_t found = 0;
    struct llm_tokenizer *t = llm_tokenizer_load(path, NULL, &e);
    assert_non_null(t);
    assert_int_equal(llm_encode(t, text, strlen(text), 0, &ids, &n, &e), 0);
    assert_int_equal(llm_dry_breakers_init(&b, t, llm_tokenizer_vocab_size(t), texts, n_texts, &e), 0);
    for (int64_t at = 0; at < (int64_t)n; at++) {
        const int64_t more = llm_dry_breaker_at(&b, ids, (int64_t)n, at);
        if (more < 0) continue;
        assert_true(more > 0 && ends_in(t, ids + at, (size_t)more + 1, texts, n_texts));
        found++;
    }
    assert_int_equal(found, want);
    llm_dry_breakers_release(&b);
    free(ids);
    llm_tokenizer_destroy(t);
}

/* Texts of several tokens, found from their bytes: the end of a token is the beginning of a text, its rest is tokens, before which a tokenizer that
 * puts a space before texts has put none. */
static void test_dry_breakers_from_texts(void **unused)
{
    (void)unused;
    check_breakers("tests/golden/tiny/tokenizer.json", "the red balls and the cat", (const char *const[]){"xyz", "d balls"}, 2, 1);
    check_breakers("tests/golden/sentencepiece/char.model", "the red balls and the cat", (const char *const[]){"ed", "all"}, 2, 2);
}

static void test_dry_breakers_are_bounded(void **unused)
{
    struct llm_err e;
    struct llm_dry_breakers b = {0};
    (void)unused;
    struct llm_tokenizer *t = llm_tokenizer_load("tests/golden/tiny/tokenizer.json", NULL, &e);
    assert_non_null(t);
    char *text = malloc(1 << 20); /* of which the beginning counts: work and memory do not grow with it */
    assert_non_null(text);
    memset(text, 'a', (1 << 20) - 1);
    text[(1 << 20) - 1] = 0;
    const char *const texts[] = {text}, *const none[] = {"none"};
    assert_int_equal(llm_dry_breakers_init(&b, t, llm_tokenizer_vocab_size(t), texts, 1, &e), 0);
    assert_int_equal(b.n_tails, LLM_DRY_TEXT - 1);
    for (size_t i = 0; i < b.n_tails; i++) assert_true(b.tails[i].n > 0 && b.tails[i].n <= LLM_DRY_TAIL);
    llm_dry_breakers_release(&b);
    free(text);
    assert_int_equal(llm_dry_breakers_init(&b, t, llm_tokenizer_vocab_size(t), none, 1, &e), 0);
    assert_null(b.marks);
    llm_tokenizer_destroy(t);
}

static void test_dry_stays_finite(void **unused)
{
    float logits[VOCAB];
    int32_t h[HISTORY] = {0};
    struct llm_sampler s = {0};
    struct llm_err e;
    struct llm_sampling p = plain();
    const struct llm_history history = {h, HISTORY};
    int32_t id;
    (void)unused;
    p.dry_multiplier = 1;
    p.dry_base = 1e6;
    random_logits(logits, 1, 1);
    assert_int_equal(llm_sampler_choose(&s, &p, &history, logits, VOCAB, 0, 0, &id, &e), 0);
    assert_true(isfinite(logits[0]) && logits[0] < -1e30f);
    llm_sampler_release(&s);
}

static void test_top_n_sigma(void **unused)
{
    float logits[VOCAB], copy[VOCAB];
    struct llm_sampler s = {0};
    struct llm_err e;
    (void)unused;
    for (uint32_t seed = 0; seed < 20; seed++) {
        struct llm_sampling p = plain();
        double mean = 0, variance = 0, max = -INFINITY;
        size_t want = 0;
        p.top_n_sigma = .25 * (1 + seed % 8);
        if (seed % 2) p.top_k = 7; /* after it */
        random_logits(logits, seed, 2);
        for (int i = 0; i < VOCAB; i++) mean += (double)logits[i] / VOCAB;
        for (int i = 0; i < VOCAB; i++) variance += (logits[i] - mean) * (logits[i] - mean) / VOCAB;
        for (int i = 0; i < VOCAB; i++) max = fmax(max, (double)logits[i]);
        for (int i = 0; i < VOCAB; i++) want += logits[i] >= max - p.top_n_sigma * sqrt(variance);
        memcpy(copy, logits, sizeof logits);
        assert_int_equal(llm_sampler_filter(&s, &p, &nothing, copy, VOCAB, &e), 0);
        assert_int_equal(s.c.n, seed % 2 && want > 7 ? 7 : want);
        for (size_t i = 0; i < s.c.n; i++) assert_true(s.c.v[i].logit >= max - p.top_n_sigma * sqrt(variance));
    }
    llm_sampler_release(&s);
}

static void test_xtc(void **unused)
{
    float logits[VOCAB], copy[VOCAB];
    double q[VOCAB];
    struct llm_sampler s = {0};
    struct llm_err e;
    int cut = 0, draws = 4000;
    (void)unused;
    random_logits(logits, 3, 1);
    for (int i = 0; i < 5; i++) logits[50 * i] = 5.5f + (float)i * .2f;
    softmax(logits, q);
    int above = 0;
    for (int i = 0; i < VOCAB; i++) above += q[i] >= .1;
    assert_true(above >= 3);
    int32_t least = -1;
    for (int i = 0; i < VOCAB; i++)
        if (q[i] >= .1 && (least < 0 || q[i] < q[least])) least = i;
    for (int k = 0; k < draws; k++) {
        struct llm_sampling p = plain();
        int32_t id;
        p.xtc_probability = .3;
        p.seed = 9;
        memcpy(copy, logits, sizeof logits);
        assert_int_equal(llm_sampler_choose(&s, &p, &nothing, copy, VOCAB, 0, (uint32_t)k, &id, &e), 0);
        bool excluded = s.c.n < VOCAB;
        cut += excluded;
        assert_int_equal(s.c.n, excluded ? VOCAB - above + 1 : VOCAB);
        for (int32_t i = 0; i < VOCAB && excluded; i++) assert_int_equal(is_left(&s, i), q[i] < .1 || i == least);
    }
    assert_true(fabs((double)cut / draws - .3) < 4 * sqrt(.3 * .7 / draws));
    llm_sampler_release(&s);
}

static void test_dynamic_temperature(void **unused)
{
    float logits[VOCAB], copy[VOCAB];
    double q[VOCAB];
    struct llm_sampler s = {0};
    struct llm_err e;
    (void)unused;
    for (uint32_t seed = 0; seed < 12; seed++) {
        struct llm_sampling p = plain();
        double entropy = 0, max = -INFINITY;
        p.temperature = .9;
        p.dynatemp_range = seed % 2 ? .5 : 2;
        p.dynatemp_exp = 1 + seed % 3;
        random_logits(logits, seed, (float)(seed + 1) * .4f);
        softmax(logits, q);
        for (int i = 0; i < VOCAB; i++) entropy -= q[i] > 0 ? q[i] * log(q[i]) : 0;
        for (int i = 0; i < VOCAB; i++) max = fmax(max, (double)logits[i]);
        double low = fmax(0, p.temperature - p.dynatemp_range), high = p.temperature + p.dynatemp_range;
        double t = low + (high - low) * pow(entropy / log(VOCAB), p.dynatemp_exp);
        memcpy(copy, logits, sizeof logits);
        assert_int_equal(llm_sampler_filter(&s, &p, &nothing, copy, VOCAB, &e), 0);
        assert_int_equal(s.c.n, VOCAB);
        for (size_t i = 0; i < s.c.n; i++) {
            double want = (logits[s.c.v[i].id] - max) / t;
            assert_true(fabs(s.c.v[i].logit - want) < 1e-4 * fmax(1, fabs(want)));
        }
    }
    llm_sampler_release(&s);
}

static int descending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* How many of the tokens, whose probabilities are q in descending order, Mirostat keeps. */
static size_t mirostat_keeps(int version, const double *q, double mu)
{
    size_t n = 0;
    double tb = 0, tt = 0;
    if (version == 2) {
        while (n < VOCAB && -log2(q[n]) <= mu) n++;
        return n > 0 ? n : 1;
    }
    for (int i = 0; i < 99; i++) {
        double t = log((i + 2.) / (i + 1)), b = log(q[i] / q[i + 1]);
        tb += t * b;
        tt += t * t;
    }
    double s = tb / tt, rest = s - 1, k = pow(rest * exp2(mu) / (1 - pow(VOCAB, -rest)), 1 / s);
    return k < 1 ? 1 : k > VOCAB ? VOCAB : (size_t)k;
}

static void test_mirostat(void **unused)
{
    float logits[VOCAB];
    double q[VOCAB], sorted[VOCAB];
    struct llm_err e;
    (void)unused;
    for (int version = 1; version <= 2; version++) {
        struct llm_sampler s = {0};
        struct llm_sampling p = plain();
        p.mirostat = version;
        p.mirostat_ent = 3;
        p.mirostat_lr = .2;
        p.top_k = 3; /* is off */
        double mu = 6, all = 0;
        for (uint32_t k = 0; k < 400; k++) {
            int32_t id;
            double mass = 0;
            random_logits(logits, 100 + k, 2);
            softmax(logits, q);
            memcpy(sorted, q, sizeof q);
            qsort(sorted, VOCAB, sizeof *sorted, descending);
            assert_int_equal(llm_sampler_choose(&s, &p, &nothing, logits, VOCAB, 0, k, &id, &e), 0);
            assert_int_equal(s.c.n, mirostat_keeps(version, sorted, mu));
            for (size_t i = 0; i < s.c.n; i++) mass += q[s.c.v[i].id];
            double surprise = -log2(q[id] / mass);
            mu -= .2 * (surprise - 3);
            all += surprise;
            assert_true(fabs(s.state.mu - mu) < 1e-3);
            mu = s.state.mu;
        }
        assert_true(fabs(all / 400 - 3) < .15); /* what it is for */
        llm_sampler_release(&s);
    }
}

static void test_adaptive_p(void **unused)
{
    float logits[VOCAB];
    double q[VOCAB];
    struct llm_sampler s = {0};
    struct llm_err e;
    struct llm_sampling p = plain();
    double weighted = .3 / .1, weight = 1 / .1;
    (void)unused;
    p.adaptive_target = .3;
    for (uint32_t k = 0; k < 200; k++) {
        int32_t id;
        random_logits(logits, 100 + k, 3);
        softmax(logits, q);
        assert_int_equal(llm_sampler_choose(&s, &p, &nothing, logits, VOCAB, 0, k, &id, &e), 0);
        double target = fmin(fmax(.6 - weighted / weight, 0), 1);
        for (size_t i = 0; i < s.c.n; i++) {
            double d = fabs(q[s.c.v[i].id] - target) / .3;
            assert_true(fabs(s.c.v[i].logit - (5 - 10 * d * d / (1 + d))) < 1e-4);
        }
        weighted = q[id] + .9 * weighted;
        weight = 1 + .9 * weight;
        assert_true(fabs(s.state.weighted - weighted) < 1e-4 && fabs(s.state.weight - weight) < 1e-9);
    }
    llm_sampler_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dry), cmocka_unit_test(test_dry_breakers_of_many_tokens),
                                       cmocka_unit_test(test_dry_breakers_from_texts), cmocka_unit_test(test_dry_breakers_are_bounded),
                                       cmocka_unit_test(test_dry_stays_finite), cmocka_unit_test(test_top_n_sigma),
                                       cmocka_unit_test(test_xtc), cmocka_unit_test(test_dynamic_temperature), cmocka_unit_test(test_mirostat),
                                       cmocka_unit_test(test_adaptive_p)};
    if (llm_pool_start(1, NULL) < 0) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    llm_pool_stop();
    return failed;
}
