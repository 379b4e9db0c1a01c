/* What layers keep of a sequence: the same bits by one pass over a row as training makes it, however a prompt is cut into passes, whoever else is in
 * them, token by token, from a copy, after going back, and from a file. Over every family with a state, and hand in hand with attention. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/rng.h"
#include "cpu/kernels.h"
#include "cpu/pool.h"
#include "infer/engine.h"
#include "infer/kvfile.h"
#include "tests/unit/model_of.h"

enum { LENGTH = 83, VOCAB = 61 };

static const char *const configs[] = {
    "{\"model_type\":\"rnn\",\"vocab_size\":61,\"hidden_size\":40,\"num_layers\":2}",
    "{\"model_type\":\"lstm\",\"vocab_size\":61,\"input_size\":24,\"hidden_size\":40,\"num_layers\":2}",
    "{\"model_type\":\"mlp\",\"vocab_size\":61,\"context_window\":4,\"embedding_size\":12,\"intermediate_size\":20,\"direct_connections\":true}",
    "{\"model_type\":\"mlp\",\"vocab_size\":61,\"context_window\":7,\"embedding_size\":8,\"intermediate_size\":20,\"num_hidden_layers\":2}",
    "{\"model_type\":\"mamba\",\"vocab_size\":61,\"hidden_size\":24,\"num_hidden_layers\":2,\"state_size\":5,\"conv_kernel\":4,"
    "\"time_step_rank\":3,\"initializer_range\":0.3}",
    "{\"model_type\":\"mamba\",\"vocab_size\":61,\"hidden_size\":40,\"num_hidden_layers\":2,\"state_size\":16,\"use_bias\":true,"
    "\"initializer_range\":0.3}",
    "{\"model_type\":\"mamba2\",\"vocab_size\":61,\"hidden_size\":24,\"num_hidden_layers\":2,\"state_size\":7,\"num_heads\":6,\"head_dim\":8,"
    "\"n_groups\":2,\"initializer_range\":0.3}",
    "{\"model_type\":\"rwkv\",\"vocab_size\":61,\"hidden_size\":24,\"num_hidden_layers\":2,\"attention_hidden_size\":40,\"initializer_range\":0.3}",
    "{\"model_type\":\"rwkv5\",\"vocab_size\":61,\"hidden_size\":24,\"num_hidden_layers\":2,\"attention_hidden_size\":40,\"head_size\":10,"
    "\"intermediate_size\":48,\"initializer_range\":0.3}",
    "{\"model_type\":\"rwkv6\",\"vocab_size\":61,\"hidden_size\":24,\"num_hidden_layers\":2,\"attention_hidden_size\":40,\"head_size\":10,"
    "\"intermediate_size\":48,\"time_mix_extra_dim\":5,\"time_decay_extra_dim\":3,\"initializer_range\":0.3}",
    "{\"model_type\":\"rwkv7\",\"vocab_size\":61,\"hidden_size\":24,\"num_hidden_layers\":3,\"head_dim\":8,\"intermediate_size\":48,"
    "\"decay_low_rank_dim\":5,\"a_low_rank_dim\":3,\"v_low_rank_dim\":4,\"gate_low_rank_dim\":6,\"initializer_range\":0.3}",
    "{\"model_type\":\"hyenadna\",\"vocab_size\":61,\"pad_vocab_size_multiple\":1,\"d_model\":24,\"n_layer\":2,\"max_seq_len\":400,"
    "\"activation_freq\":10,\"initializer_range\":0.2}",
    "{\"model_type\":\"hyenadna\",\"vocab_size\":61,\"pad_vocab_size_multiple\":1,\"d_model\":40,\"n_layer\":2,\"max_seq_len\":400,"
    "\"hyena_order\":4,\"filter_order\":12,\"num_inner_mlps\":0,\"activation_freq\":10,\"initializer_range\":0.2}",
    "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
    "\"initializer_range\":0.2}",
    "{\"model_type\":\"perceiver\",\"vocab_size\":61,\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":3,\"num_attention_heads\":2,"
    "\"num_latents\":64,\"initializer_range\":0.2}",
};
enum { N_CONFIGS = sizeof configs / sizeof *configs };

struct fixture {
    struct llm_model *model;
    struct llm_engine engine;
    int32_t ids[LENGTH];
    float *want; /* [LENGTH, hidden] */
    int64_t width;
};

/* The final hidden states of the row as training computes them, between other rows. */
static void full_pass(struct fixture *f, enum llm_compute compute)
{
    struct llm_ctx c;
    struct llm_err e;
    int32_t ids[3 * LENGTH], positions[3 * LENGTH];
    for (int r = 0; r < 3; r++) {
        for (int i = 0; i < LENGTH; i++) {
            ids[r * LENGTH + i] = r == 1 ? f->ids[i] : (f->ids[i] + r + 7) % VOCAB;
            positions[r * LENGTH + i] = i;
        }
    }
    assert_int_equal(llm_ctx_init(&c, (size_t)1 << 30, (size_t)1 << 30, true, &e), 0);
    c.compute = compute;
    c.n_rows = 3;
    c.row_len = LENGTH;
    const struct llm_batch b = {.ids = ids, .positions = positions, .n_tokens = 3L * LENGTH};
    struct llm_tensor *y = llm_model_forward(&c, f->model, &b);
    if (llm_ctx_failed(&c)) fail_msg("%s", c.err.text);
    f->width = y->cols;
    f->want = malloc((size_t)(LENGTH * f->width) * sizeof *f->want);
    for (int i = 0; i < LENGTH; i++) memcpy(f->want + i * f->width, y->data + (LENGTH + i) * y->stride, (size_t)f->width * sizeof *f->want);
    llm_ctx_release(&c);
}

static void start(struct fixture *f, const char *config, enum llm_compute compute)
{
    struct llm_err e;
    struct llm_rng r = llm_rng_at(5, 0, LLM_RNG_TEST, 0, 0, 0);
    const struct llm_engine_options options = {.compute = compute, .context = 200, .batch = 128};
    for (int i = 0; i < LENGTH; i++) f->ids[i] = (int32_t)llm_rng_below(&r, (uint32_t)i, VOCAB);
    f->model = model_of(config);
    full_pass(f, compute);
    if (llm_engine_init(&f->engine, f->model, &options, &e) < 0) fail_msg("%s", e.text);
}

static void finish(struct fixture *f)
{
    llm_engine_release(&f->engine);
    llm_model_destroy(f->model);
    free(f->want);
}

static void expect_rows(const struct fixture *f, const struct llm_tensor *y, int64_t row, int64_t token, int64_t n)
{
    for (int64_t i = 0; i < n; i++) assert_memory_equal(y->data + (row + i) * y->stride, f->want + (token + i) * f->width,
                                                        (size_t)f->width * sizeof(float));
}

/* Feeds tokens [from, to) in runs of `step`, beside another sequence when `other`. */
static void feed(struct fixture *f, struct llm_kv *kv, int64_t from, int64_t to, int64_t step, struct llm_kv *other)
{
    struct llm_err e;
    for (int64_t at = from; at < to; at += step) {
        int64_t n = to - at < step ? to - at : step;
        const struct llm_feed feeds[2] = {{other, f->ids + 3, 2, false}, {kv, f->ids + at, n, false}};
        struct llm_tensor *y = llm_engine_run(&f->engine, other ? feeds : feeds + 1, other ? 2 : 1, &e);
        if (!y) fail_msg("%s", e.text);
        expect_rows(f, y, other ? 2 : 0, at, n);
    }
}

static void check_cuts(struct fixture *f)
{
    static const int64_t steps[] = {1, 2, 17, 64, LENGTH};
    struct llm_kv other;
    llm_kv_init(&other, &f->engine.pool);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        struct llm_kv kv;
        llm_kv_init(&kv, &f->engine.pool);
        llm_kv_truncate(&other, 0);
        feed(f, &kv, 0, LENGTH, steps[i], i % 2 ? &other : NULL);
        llm_kv_release(&kv);
    }
    llm_kv_release(&other);
}

static void check_copies(struct fixture *f)
{
    struct llm_err e;
    struct llm_kv a, b;
    llm_kv_init(&a, &f->engine.pool);
    llm_kv_init(&b, &f->engine.pool);
    feed(f, &a, 0, 30, 30, NULL);
    assert_int_equal(llm_kv_fork(&b, &a, &e), 0);
    feed(f, &a, 30, 70, 9, NULL);
    feed(f, &b, 30, LENGTH, 1, &a); /* what the other does meanwhile does not matter */
    assert_int_equal(llm_engine_rewind(&f->engine, &b, 41, &e), 0);
    assert_int_equal(b.n, 41);
    feed(f, &b, 41, LENGTH, 20, NULL);
    assert_int_equal(llm_engine_rewind(&f->engine, &b, 0, &e), 0);
    feed(f, &b, 0, LENGTH, 50, NULL);
    assert_int_equal(llm_kv_can_truncate(&b, 10), !llm_model_is_recurrent(&f->model->config));
    llm_kv_release(&a);
    llm_kv_release(&b);
}

static void check_file(struct fixture *f)
{
    char path[] = "/tmp/llm-states-XXXXXX";
    struct llm_err e;
    struct llm_kv a, b;
    struct llm_kv_file file = {0};
    close(mkstemp(path));
    llm_kv_init(&a, &f->engine.pool);
    llm_kv_init(&b, &f->engine.pool);
    feed(f, &a, 0, 50, 50, NULL);
    struct llm_output *o = llm_output_open(path, true, &e);
    assert_non_null(o);
    if (llm_kv_file_write(&a, f->model, o, &e) < 0 || llm_output_commit(o, &e) < 0) fail_msg("%s", e.text);
    if (llm_kv_file_read(&file, path, &e) < 0) fail_msg("%s", e.text);
    assert_int_equal(file.n, 50);
    if (llm_model_is_recurrent(&f->model->config)) assert_int_equal(llm_kv_file_restore(&file, 49, f->model, &b, &e), -1);
    llm_kv_release(&b);
    if (llm_kv_file_restore(&file, 50, f->model, &b, &e) < 0) fail_msg("%s", e.text);
    feed(f, &b, 50, LENGTH, 33, NULL);
    llm_kv_file_release(&file);
    llm_kv_release(&a);
    llm_kv_release(&b);
    unlink(path);
}

static void test_states(void **state)
{
    (void)state;
    for (int i = 0; i < N_CONFIGS; i++) {
        for (int bf16 = 0; bf16 < 2; bf16++) {
            struct fixture f;
            start(&f, configs[i], bf16 ? LLM_COMPUTE_BF16 : LLM_COMPUTE_F32);
            check_cuts(&f);
            check_copies(&f);
            check_file(&f);
            finish(&f);
        }
    }
}

/* In training nothing of one document is seen in the next. */
static void test_documents(void **state)
{
    (void)state;
    for (int i = 0; i < N_CONFIGS; i++) {
        struct fixture f;
        struct llm_ctx c;
        struct llm_err e;
        int32_t positions[LENGTH], starts[LENGTH], ids[LENGTH];
        start(&f, configs[i], LLM_COMPUTE_F32);
        for (int t = 0; t < LENGTH; t++) {
            starts[t] = t < 20 ? 0 : 20;
            positions[t] = t - starts[t];
            ids[t] = f.ids[positions[t]];
        }
        assert_int_equal(llm_ctx_init(&c, (size_t)1 << 30, 64, false, &e), 0);
        c.n_rows = 1;
        c.row_len = LENGTH;
        const struct llm_batch b = {.ids = ids, .positions = positions, .n_tokens = LENGTH, .doc_start = starts};
        struct llm_tensor *y = llm_model_forward(&c, f.model, &b);
        if (llm_ctx_failed(&c)) fail_msg("%s", c.err.text);
        expect_rows(&f, y, 0, 0, 20);
        expect_rows(&f, y, 20, 0, LENGTH - 20);
        llm_ctx_release(&c);
        finish(&f);
    }
}

/* Numbers that went through kernels of recurrences, on any thread. */
static struct llm_kernels real;
static _Atomic int64_t work;

static void count_scan(const struct llm_scan_run *r)
{
    work += (int64_t)(r->tokens * r->channels * r->states);
    real.scan.forward(r);
}

static void count_conv(float *y, const float *const *taps, const float *w, size_t ldw, const float *bias, size_t k, size_t n,
                       bool silu)
{
    work += (int64_t)(k * n);
    real.scan.conv(y, taps, w, ldw, bias, k, n, silu);
}

static void count_lstm(const struct llm_lstm_step *s, size_t n)
{
    work += (int64_t)n;
    real.recurrent.lstm(s, n);
}

static void count_tanh(float *h, const float *x, const float *r, size_t n)
{
    work += (int64_t)n;
    real.recurrent.tanh(h, x, r, n);
}

/* What a token takes behind `n` others: the recurrences' work, bytes of activations, pages of caches. */
struct effort { int64_t work, bytes, pages; };

static struct effort token_behind(struct fixture *f, int64_t n)
{
    struct llm_err e;
    struct llm_kv kv;
    int32_t ids[400];
    for (int i = 0; i < 400; i++) ids[i] = f->ids[i % LENGTH];
    llm_kv_init(&kv, &f->engine.pool);
    for (int64_t at = 0; at <= n; at++) {
        const struct llm_feed feed = {&kv, ids + at, 1, false};
        work = 0;
        f->engine.ctx.acts.peak = 0;
        if (!llm_engine_run(&f->engine, &feed, 1, &e)) fail_msg("%s", e.text);
    }
    struct effort all = {work, (int64_t)f->engine.ctx.acts.peak, kv.n_pages};
    llm_kv_release(&kv);
    return all;
}

/* Decoding takes as long at any depth where no layer keeps keys: nothing that a token does grows with what stands before it. */
static void test_constant_effort(void **state)
{
    (void)state;
    real = llm_k;
    llm_k.scan.forward = count_scan;
    llm_k.scan.conv = count_conv;
    llm_k.recurrent.lstm = count_lstm;
    llm_k.recurrent.tanh = count_tanh;
    for (int i = 0; i < N_CONFIGS; i++) {
        struct fixture f;
        start(&f, configs[i], LLM_COMPUTE_BF16);
        f.engine.context = 400;
        struct effort near = token_behind(&f, 3), far = token_behind(&f, 399);
        if (f.engine.pool.page_bytes == 0) {
            assert_int_equal(near.work, far.work);
            assert_int_equal(near.bytes, far.bytes);
            assert_int_equal(far.pages, 0);
        } else {
            assert_true(far.pages > near.pages);
        }
        finish(&f);
    }
    llm_k = real;
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_states), cmocka_unit_test(test_documents), cmocka_unit_test(test_constant_effort)};
    if (llm_pool_start(0, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
