/* Gradients by shard: which rows a shard has, how many buffers the tree takes, and that the gradient of a step has the bits of shards that are
 * computed one by one and added by hand in the order that train/shards.h says, of a model with tied embeddings, of a mixture whose router counts
 * tokens, and of one that looks its table up more than once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/pool.h"
#include "train/shards.h"
#include "train/trainer.h"
#include "tests/unit/model_of.h"

enum { ROWS = 12, LENGTH = 16 };
static const int64_t sizes[] = {1, 2, 3, 4, 6, 12, 5, 8};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static void test_rows(void **state)
{
    (void)state;
    for (int64_t rows = 1; rows <= 40; rows++) {
        for (int64_t n = 1; n <= rows; n++) {
            assert_int_equal(llm_shard_first(n, n, rows), rows);
            for (int64_t s = 0; s < n; s++) {
                assert_true(llm_shard_first(s, n, rows) < llm_shard_first(s + 1, n, rows));
                for (int64_t i = llm_shard_first(s, n, rows); i < llm_shard_first(s + 1, n, rows); i++) assert_int_equal(i * n / rows, s);
            }
        }
    }
}

static void test_buffers(void **state)
{
    (void)state;
    assert_int_equal(llm_shard_buffers(llm_shard_run(0, 1, 1)), 0);
    assert_int_equal(llm_shard_buffers(llm_shard_run(0, 1, 2)), 1);
    assert_int_equal(llm_shard_buffers(llm_shard_run(0, 1, 3)), 1);
    assert_int_equal(llm_shard_buffers(llm_shard_run(0, 1, 12)), 3);
    for (int64_t n = 1; n < 5000; n++) {
        int64_t log = 0;
        while ((int64_t)1 << log < n) log++;
        assert_true(1 + llm_shard_buffers(llm_shard_run(0, 1, n)) <= log + 2);
    }
}

/* Adds neighbours that the tree adds until none are left, as train/share.c does. */
static size_t joined(struct llm_tree_node *nodes, size_t n, int64_t n_shards)
{
    size_t depth = 0;
    for (size_t k = 0; k < n; k++) {
        nodes[depth++] = nodes[k];
        while (depth > 1 && llm_tree_joins(nodes[depth - 2], nodes[depth - 1], n_shards)) {
            nodes[depth - 2].end = nodes[depth - 1].end;
            depth--;
        }
    }
    return depth;
}

static void test_runs(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 70; n++) {
        for (int ranks = 1; ranks <= n; ranks++) {
            struct llm_tree_node all[80], own[80], leaves[80];
            size_t total = 0;
            for (int q = 0; q < ranks; q++) {
                struct llm_shard_run run = llm_shard_run(q, ranks, n);
                assert_int_equal(run.first, q == 0 ? 0 : llm_shard_run(q - 1, ranks, n).end);
                assert_true(run.end > run.first);
                size_t k = (size_t)llm_tree_nodes(run.first, run.end, run.n, own);
                for (int64_t s = run.first; s < run.end; s++) leaves[s - run.first] = (struct llm_tree_node){s, s + 1};
                assert_int_equal(joined(leaves, (size_t)(run.end - run.first), n), k); /* what a run adds by itself are its nodes */
                assert_memory_equal(leaves, own, k * sizeof *own);
                assert_true(llm_shard_buffers(run) >= (int64_t)k - 1);
                memcpy(all + total, own, k * sizeof *own);
                total += k;
            }
            assert_int_equal(all[total - 1].end, n);
            assert_int_equal(joined(all, total, n), 1);
        }
    }
}

static struct llm_trainer make(const char *config, int64_t batch, int64_t shards, enum llm_gradients gradients)
{
    struct llm_err e = {0};
    struct llm_train_options o;
    struct llm_train_data none = {0};
    struct llm_trainer t = {.step = 0};
    llm_train_options_default(&o);
    o.batch = batch;
    o.accumulate = ROWS / batch;
    o.context = LENGTH;
    o.grad_shards = shards;
    o.gradients = gradients;
    if (llm_trainer_init(&t, &o, model_of(config), &none, &e) < 0) fail_msg("%s", e.text);
    return t;
}

static size_t size_of(const struct llm_trainer *t)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n_params; i++) n += (size_t)llm_param_count(t->params[i].p);
    return n;
}

static void copy_gradient(const struct llm_trainer *t, float *out)
{
    for (size_t i = 0; i < t->n_params; i++) {
        size_t n = (size_t)llm_param_count(t->params[i].p);
        memcpy(out, t->params[i].p->grad, n * sizeof *out);
        out += n;
    }
}

/* The sum of rows [from, to) of a trainer whose rows are there, from nothing, divided by all counted targets. */
static void gradient_of(struct llm_trainer *t, int64_t from, int64_t to, float *out)
{
    struct llm_err e = {0};
    int64_t counted = llm_rows_part(&t->rows, 0, ROWS).counted;
    llm_trainer_forget(t);
    struct llm_rows part = llm_rows_part(&t->rows, from, to - from);
    t->ctx.step = 0;
    t->ctx.first_row = from;
    t->ctx.token_weight = 1.0 / (ROWS * LENGTH);
    if (t->objective->run(&t->ctx, &t->task, &part, 1.0 / (double)counted, t->token_loss, &e) < 0) fail_msg("%s", e.text);
    llm_backward(&t->ctx);
    assert_false(llm_ctx_failed(&t->ctx));
    llm_ctx_reset(&t->ctx);
    for (size_t i = 0; i < t->n_params; i++) llm_grad_join(t->params[i].p);
    copy_gradient(t, out);
}

static void add(float *to, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] += x[i];
}

/* The tree by hand, over shards[n][size]: halves are added while the number is even, what remains from left to right. */
static void sum_by_hand(float *shards, int64_t n, size_t size)
{
    while (n % 2 == 0) {
        n /= 2;
        for (int64_t i = 0; i < n; i++) {
            float *left = shards + (size_t)(2 * i) * size;
            add(left, left + size, size);
            memmove(shards + (size_t)i * size, left, size * sizeof *shards);
        }
    }
    for (int64_t i = 1; i < n; i++) add(shards, shards + (size_t)i * size, size);
}

static void check_model(const char *config)
{
    struct llm_err e = {0};
    struct llm_step_report r;
    struct llm_trainer whole = make(config, ROWS, 1, LLM_GRADIENTS_F32);
    size_t size = size_of(&whole), differ = 0;
    float *want = malloc(ROWS * size * sizeof *want), *got = malloc(size * sizeof *got), *first = malloc(size * sizeof *first);
    if (llm_trainer_gradient(&whole, &r, &e) != 0) fail_msg("%s", e.text);
    copy_gradient(&whole, first);
    for (int s = 0; s < N_SIZES; s++) {
        int64_t n = sizes[s];
        for (int64_t i = 0; i < n; i++) {
            gradient_of(&whole, llm_shard_first(i, n, ROWS), llm_shard_first(i + 1, n, ROWS), want + (size_t)i * size);
        }
        sum_by_hand(want, n, size);
        differ += memcmp(want, first, size * sizeof *want) != 0;
        for (int64_t batch = 1; batch <= ROWS; batch += batch == 1 ? 3 : 8) { /* 1, 4 and 12 rows a pass */
            struct llm_trainer t = make(config, batch, n, LLM_GRADIENTS_F32);
            if (llm_trainer_gradient(&t, &r, &e) != 0) fail_msg("%s", e.text);
            copy_gradient(&t, got);
            assert_memory_equal(got, want, size * sizeof *want);
            llm_trainer_release(&t);
        }
    }
    assert_true(differ >= N_SIZES / 2); /* the shards do matter */
    free(want);
    free(got);
    free(first);
    llm_trainer_release(&whole);
}

/* The sum of shards[n] of one parameter as integers, in blocks of 256 elements: 127 is the largest magnitude in any shard. */
static void sum_integers_by_hand(const float *shards, int64_t n, size_t stride, size_t count, float *out)
{
    for (size_t i = 0; i < count; i++) {
        float most = 0;
        int sum = 0;
        for (int64_t k = 0; k < n; k++) {
            for (size_t j = i / 256 * 256; j < count && j < (i / 256 + 1) * 256; j++) most = fmaxf(most, fabsf(shards[(size_t)k * stride + j]));
        }
        const float unit = most / 127;
        for (int64_t k = 0; k < n && most > 0; k++) sum += (int)rint((double)(shards[(size_t)k * stride + i] / unit));
        out[i] = (float)sum * unit;
    }
}

static void check_integers(const char *config, int64_t n)
{
    struct llm_err e = {0};
    struct llm_step_report r;
    struct llm_trainer whole = make(config, ROWS, 1, LLM_GRADIENTS_F32), t = make(config, 4, n, LLM_GRADIENTS_INT8);
    const size_t size = size_of(&whole);
    float *shards = malloc((size_t)n * size * sizeof *shards), *want = malloc(size * sizeof *want), *got = malloc(size * sizeof *got);
    if (llm_trainer_rows(&whole, &e) != 0) fail_msg("%s", e.text);
    for (int64_t i = 0; i < n; i++) gradient_of(&whole, llm_shard_first(i, n, ROWS), llm_shard_first(i + 1, n, ROWS), shards + (size_t)i * size);
    for (size_t i = 0, at = 0; i < whole.n_params; at += (size_t)llm_param_count(whole.params[i++].p)) {
        sum_integers_by_hand(shards + at, n, size, (size_t)llm_param_count(whole.params[i].p), want + at);
    }
    if (llm_trainer_gradient(&t, &r, &e) != 0) fail_msg("%s", e.text);
    copy_gradient(&t, got);
    assert_memory_equal(got, want, size * sizeof *want);
    free(shards);
    free(want);
    free(got);
    llm_trainer_release(&whole);
    llm_trainer_release(&t);
}

#define SMALL "{\"model_type\": \"gpt2\", \"vocab_size\": 97, \"n_positions\": 16, \"n_embd\": 32, \"n_layer\": 2, \"n_head\": 2}"

static void test_tied(void **state)
{
    (void)state;
    check_model(SMALL);
}

static void test_integers(void **state)
{
    (void)state;
    check_integers(SMALL, 1);
    check_integers(SMALL, 3);
    check_integers(SMALL, 12);
}

static void test_mixture(void **state)
{
    (void)state;
    check_model("{\"model_type\": \"mixtral\", \"vocab_size\": 97, \"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 2,"
                " \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"max_position_embeddings\": 16, \"tie_word_embeddings\": true,"
                " \"num_local_experts\": 5, \"num_experts_per_tok\": 2, \"router_aux_loss_coef\": 0.05, \"router_bias\": true}");
}

static void test_further(void **state)
{
    (void)state;
    check_model("{\"model_type\": \"llama\", \"vocab_size\": 97, \"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 2,"
                " \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"max_position_embeddings\": 16, \"tie_word_embeddings\": true,"
                " \"num_nextn_predict_layers\": 1}");
}

/* A step of fewer rows than shards. */
static void test_refused(void **state)
{
    (void)state;
    struct llm_err e = {0};
    struct llm_train_options o;
    struct llm_train_data none = {0};
    struct llm_trainer t = {.step = 0};
    llm_train_options_default(&o);
    o.batch = 3;
    o.context = LENGTH;
    o.grad_shards = 4;
    struct llm_model *m = model_of(SMALL);
    assert_int_equal(llm_trainer_init(&t, &o, m, &none, &e), -1);
    assert_string_equal(e.text, "--grad-shards: expected at most 3 (rows of a step), found 4");
    llm_trainer_release(&t);
}

int main(void)
{
    struct llm_err e = {0};
    if (llm_pool_start(2, &e) < 0) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_buffers), cmocka_unit_test(test_runs),
                                       cmocka_unit_test(test_tied), cmocka_unit_test(test_integers),
                                       cmocka_unit_test(test_mixture), cmocka_unit_test(test_further), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
