/* Direct contributions: in every family whose layers add to a residual they sum to the logit; the other families are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/pool.h"
#include "infer/attribute.h"
#include "io/checkpoint.h"
#include "tests/unit/model_of.h"

enum { LENGTH = 9 };

/* Random biases and gains, which a new model has as 0 and 1. */
static void disturb(struct llm_model *m)
{
    unsigned state = 1;
    for (size_t i = 0; i < m->n_params; i++) {
        struct llm_weight *w = &m->params[i].weight;
        if (m->params[i].role != LLM_ROLE_VECTOR || w->dtype != LLM_F32) continue;
        float *x = (float *)(uintptr_t)w->data;
        for (int64_t k = 0; k < w->n * w->k; k++) x[k] += .2F * ((float)((state = state * 1103515245U + 12345U) >> 16 & 1023) / 512 - 1);
    }
}

/* The sum of contributions to the logit of `target` after the last token, and that logit; the range of all logits. */
static void check(const struct llm_config *c, const char *name, enum llm_compute compute, double bound)
{
    struct llm_err e = {0};
    struct llm_model *m = llm_model_create(c, 5, &e);
    struct llm_attribution a = {0};
    struct llm_taking t = {0};
    struct llm_engine g = {0};
    struct llm_engine_options o = {.compute = compute, .batch = 64};
    struct llm_watcher *v;
    struct llm_watch watch;
    struct llm_kv kv;
    int32_t ids[LENGTH];
    if (!m) fail_msg("%s: %s", name, e.text);
    disturb(m);
    for (int i = 0; i < LENGTH; i++) ids[i] = (int32_t)((i * 37 + 11) % c->vocab_size);
    if (llm_engine_init(&g, m, &o, &e) < 0 || llm_attribution_begin(&a, m, &e) < 0
        || llm_taking_begin(&t, c, a.places, a.n_places, LENGTH, &e) < 0) fail_msg("%s: %s", name, e.text);
    assert_non_null(v = calloc(a.n_places, sizeof *v));
    for (size_t i = 0; i < a.n_places; i++) v[i] = llm_taking_watcher(&t, i);
    watch = (struct llm_watch){.v = v, .n = a.n_places};
    g.ctx.watch = &watch;
    llm_taking_at(&t, 0, LENGTH);
    llm_kv_init(&kv, &g.pool);
    if (llm_engine_prefill(&g, &kv, ids, LENGTH, c->prefix_lm, false, NULL, NULL, &e) != 0) fail_msg("%s: %s", name, e.text);
    g.ctx.watch = NULL;
    const float *logits = llm_attribution_logits(&a, &g.ctx, &t, LENGTH - 1, &e);
    if (!logits) fail_msg("%s: %s", name, e.text);
    double low = INFINITY, high = -INFINITY, cap = c->final_logit_softcapping;
    for (int64_t i = 0; i < c->vocab_size; i++) {
        low = fmin(low, logits[i]);
        high = fmax(high, logits[i]);
    }
    for (int32_t target = 0; target < 5; target++) {
        double sum = 0, largest = 0;
        if (llm_attribution_read(&a, &g.ctx, &t, LENGTH - 1, target, &e) < 0) fail_msg("%s: %s", name, e.text);
        for (size_t i = 0; i < a.n; i++) {
            sum += a.v[i].value;
            largest = fmax(largest, fabs(a.v[i].value));
        }
        assert_true(a.n > (size_t)c->num_hidden_layers && largest > 0);
        if (!(fabs(sum - logits[target]) <= bound * (high - low))) {
            fail_msg("%s: contributions sum to %.9g, the logit is %.9g, of a range of %g", name, sum, (double)logits[target], high - low);
        }
    }
    /* they are the model's own logits */
    float *copy = malloc((size_t)c->vocab_size * sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, logits, (size_t)c->vocab_size * sizeof *copy);
    assert_int_equal(llm_engine_rewind(&g, &kv, LENGTH - 1, &e), 0);
    struct llm_feed feed = {&kv, ids + LENGTH - 1, 1, false};
    struct llm_tensor *hidden = llm_engine_run(&g, &feed, 1, &e);
    const float *own = hidden ? llm_engine_logits(&g, hidden, (const int64_t[]){0}, 1, &e) : NULL;
    if (!own) fail_msg("%s: %s", name, e.text);
    for (int64_t i = 0; i < c->vocab_size; i++) {
        double want = cap > 0 ? cap * tanh(copy[i] / cap) : copy[i];
        if (!(fabs(own[i] - want) <= 1e-5 * (high - low))) fail_msg("%s: logit %d: expected %g, found %g", name, (int)i, want, (double)own[i]);
    }
    free(copy);
    free(v);
    llm_kv_release(&kv);
    llm_taking_release(&t);
    llm_attribution_release(&a);
    llm_engine_release(&g);
    llm_model_destroy(m);
}

/* FP32: the sum has the rounding of the residual's own sum. BF16: also that of products, whose input the head rounds to 8 bits. */
static void test_families(void **state)
{
    static const char *const others[] = {"bert", "bidirectional", "t5", "rnn", "lstm"};
    int added = 0, refused = 0;
    DIR *d = opendir("tests/golden/families");
    (void)state;
    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d));) {
        struct llm_attribution a = {0};
        struct llm_err e = {0};
        char path[400];
        if (!strstr(entry->d_name, ".safetensors")) continue;
        snprintf(path, sizeof path, "tests/golden/families/%s", entry->d_name);
        struct llm_config c = golden_config(path);
        c.initializer_range = .2;
        struct llm_model *m = llm_model_create(&c, 5, &e);
        if (!m) fail_msg("%s: %s", path, e.text);
        bool adds = llm_attribution_begin(&a, m, &e) == 0;
        llm_attribution_release(&a);
        llm_model_destroy(m);
        bool expected = true;
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) expected &= !strstr(entry->d_name, others[i]);
        if (adds != expected) fail_msg("%s: %s", path, adds ? "expected a refusal" : e.text);
        if (adds) check(&c, path, LLM_COMPUTE_F32, 1e-5);
        if (adds) check(&c, path, LLM_COMPUTE_BF16, 1e-2);
        else assert_int_equal(e.status, EX_UNAVAILABLE);
        added += adds;
        refused += !adds;
    }
    closedir(d);
    assert_true(added >= 30 && refused >= 5);
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families)};
    if (llm_pool_start(0, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
