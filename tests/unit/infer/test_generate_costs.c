/* What the generator makes of measured times: parts of prompts that keep a latency, depths of drafts. The passes take times that are told; what is
 * counted are tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include <time.h>
#include "cpu/pool.h"
#include "infer/generate.h"
#include "infer/most.h"
#include "tests/unit/model_of.h"

enum { PROMPTS = 6, LENGTH = 150, BATCH = 128, CONTEXT = 512, PASSES = 4096 };

/* Engines whose passes take `pass` and `row` microseconds more, and what they read. */
static struct costs { struct llm_engine *g; long pass, row; int64_t longest, n_passes; } costs[2];

static struct work { int32_t ids[LENGTH]; int64_t n, left, max_tokens, drafted, accepted, branched, made; int32_t text[CONTEXT]; } work;

static int slow_advance(struct llm_engine *g, const struct llm_feed *feeds, int64_t n, int64_t total, struct llm_reading *r, struct llm_err *e)
{
    struct costs *c = &costs[costs[1].g == g];
    long us = c->pass + c->row * total;
    int64_t prompts = total;
    const struct timespec wait = {us / 1000000, us % 1000000 * 1000};
    for (int64_t i = 0; i < n; i++) prompts -= feeds[i].kv->n >= work.n ? feeds[i].n : 0; /* the others are prompts, the last token of one too */
    nanosleep(&wait, NULL);
    if (prompts < total && c->n_passes++ >= 4 && prompts > c->longest) c->longest = prompts; /* the first four find the part's size */
    return llm_predictor_network.advance(g, feeds, n, total, r, e);
}

static struct llm_predictor slow, second;

/* The most likely token and the second one change places. */
static float *second_logits(struct llm_engine *g, const struct llm_reading *r, const int64_t *rows, int64_t n_rows, struct llm_err *e)
{
    const int64_t vocab = g->model->config.vocab_size;
    float *all = llm_predictor_network.logits(g, r, rows, n_rows, e);
    for (int64_t i = 0; all && i < n_rows; i++) {
        float *x = all + i * vocab, top;
        int32_t two[2];
        llm_most_likely(x, vocab, 2, two);
        top = x[two[0]];
        x[two[0]] = x[two[1]];
        x[two[1]] = top;
    }
    return all;
}

static void open_engine(struct costs *c, struct llm_engine *g, struct llm_model *m)
{
    const struct llm_engine_options o = {.compute = LLM_COMPUTE_F32, .context = CONTEXT, .batch = BATCH};
    struct llm_err e;
    if (llm_engine_init(g, m, &o, &e) < 0) fail_msg("%s", e.text);
    slow = llm_predictor_network;
    slow.advance = slow_advance;
    g->predictor = &slow;
    c->g = g;
}

static int next(void *arg, struct llm_prompt *p, struct llm_err *e)
{
    struct work *w = arg;
    (void)e;
    if (w->left-- == 0) return 0;
    *p = (struct llm_prompt){.ids = w->ids, .n = w->n, .max_tokens = w->max_tokens, .samples = 1, .ignore_eos = true};
    return 1;
}

static int done(void *arg, struct llm_completion *c, struct llm_err *e)
{
    struct work *w = arg;
    (void)e;
    w->drafted += c->drafted;
    w->accepted += c->accepted;
    w->branched += c->branched;
    memcpy(w->text, c->ids, (size_t)c->n * sizeof *c->ids);
    w->made += c->n;
    return 0;
}

static struct llm_model *small_model(void)
{
    return model_of("{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":1,"
                    "\"num_attention_heads\":2,\"max_position_embeddings\":512,\"initializer_range\":0.3}");
}

/* Tokens of prompts in the longest pass beside running completions. */
static int64_t longest_part(double latency)
{
    struct llm_engine g = {0};
    struct llm_model *m = small_model();
    struct llm_generate how = {.engine = &g, .parallel = 3, .next = next, .done = done, .arg = &work, .latency = latency};
    struct llm_err e;
    work = (struct work){.n = LENGTH, .left = PROMPTS, .max_tokens = 30};
    for (int i = 0; i < LENGTH; i++) work.ids[i] = i * 7 % 61;
    costs[0] = (struct costs){.row = 1000};
    open_engine(&costs[0], &g, m);
    if (llm_generate(&how, &e) != 0) fail_msg("%s", e.text);
    assert_int_equal(work.made, PROMPTS * 30);
    llm_engine_release(&g);
    llm_model_destroy(m);
    return costs[0].longest;
}

static void test_latency(void **state)
{
    (void)state;
    assert_true(longest_part(0) > 100);
    int64_t n = longest_part(.02); /* 20 rows of 1 ms */
    if (n > 25 || n < 1) fail_msg("%lld", (long long)n);
}

/* How many tokens are drafted for 400 by the same model, whose drafts are all right, without those of branches. */
static int64_t drafted(long pass, long draft)
{
    struct llm_engine g = {0}, drafter = {0};
    struct llm_model *m = small_model();
    struct llm_generate how = {.engine = &g, .parallel = 1, .next = next, .done = done, .arg = &work, .drafter = &drafter, .drafts = 8};
    struct llm_err e;
    work = (struct work){.n = 5, .left = 1, .max_tokens = 400, .ids = {1, 2, 3, 4, 5}};
    costs[0] = (struct costs){.pass = pass};
    costs[1] = (struct costs){.pass = draft};
    open_engine(&costs[0], &g, m);
    open_engine(&costs[1], &drafter, m);
    if (llm_generate(&how, &e) != 0) fail_msg("%s", e.text);
    assert_int_equal(work.made, 400);
    assert_in_range(work.drafted - work.accepted, 0, work.made - work.accepted); /* a pass has one token of a branch, at most */
    llm_engine_release(&g);
    llm_engine_release(&drafter);
    llm_model_destroy(m);
    return work.accepted;
}

static void test_depth(void **state)
{
    (void)state;
    int64_t cheap = drafted(5000, 0), dear = drafted(1000, 3000);
    if (cheap < 300) fail_msg("of a cheap model %lld", (long long)cheap);
    if (dear > 120) fail_msg("of a dear model %lld", (long long)dear); /* passes of 8 before the times are known */
}

/* A drafting model whose second choice is the model's first: drafts are never right, branches always are, and the text is the one without drafts. */
static void test_branches(void **state)
{
    int32_t plain[CONTEXT];
    (void)state;
    for (int with = 0; with < 2; with++) {
        struct llm_engine g = {0}, drafter = {0};
        struct llm_model *m = small_model();
        struct llm_generate how = {.engine = &g, .parallel = 1, .next = next, .done = done, .arg = &work, .drafter = with ? &drafter : NULL,
                                   .drafts = with ? 3 : 0};
        struct llm_err e;
        work = (struct work){.n = 70, .left = 1, .max_tokens = 300};
        for (int i = 0; i < LENGTH; i++) work.ids[i] = i * 7 % 61;
        costs[0] = (struct costs){.pass = 1000};
        costs[1] = (struct costs){0};
        open_engine(&costs[0], &g, m);
        open_engine(&costs[1], &drafter, m);
        second = slow;
        second.logits = second_logits;
        drafter.predictor = &second;
        if (llm_generate(&how, &e) != 0) fail_msg("%s", e.text);
        assert_int_equal(work.made, 300);
        if (with == 0) memcpy(plain, work.text, sizeof plain);
        else assert_memory_equal(plain, work.text, 300 * sizeof *plain);
        llm_engine_release(&g);
        llm_engine_release(&drafter);
        llm_model_destroy(m);
    }
    if (work.branched < 8) fail_msg("%lld", (long long)work.branched); /* so many passes have one before times decide */
    assert_in_range(work.accepted, work.branched, work.branched + 60); /* where an end token is passed over, the second token is the draft */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_latency), cmocka_unit_test(test_depth), cmocka_unit_test(test_branches)};
    struct llm_err e;
    if (llm_pool_start(1, &e) < 0) return llm_report(&e);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    llm_pool_stop();
    return failed;
}
