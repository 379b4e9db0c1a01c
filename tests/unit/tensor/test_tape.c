/* The tape and its memory: checkpointed blocks, inference without a tape, accumulation, threads: the same bits; failures stick. */
#include "network.h"
#include <math.h>

static void ctx_make(struct llm_ctx *c, bool recording)
{
    struct llm_err e = {0};
    assert_int_equal(llm_ctx_init(c, (size_t)1 << 30, (size_t)1 << 30, recording, &e), 0);
}

struct outcome { float *gradients; size_t n; double nll; int64_t tokens; };

/* `rows` rows in steps of `at_once`. */
static struct outcome train(struct network *n, struct llm_ctx *c, int64_t rows, int64_t at_once, int64_t length, bool checkpoint)
{
    struct outcome o = {0};
    network_clear(n);
    for (int64_t first = 0; first < rows; first += at_once) {
        struct llm_loss l = network_step(c, n, first, at_once, length, checkpoint, 1.0 / 64);
        o.nll += l.nll;
        o.tokens += l.tokens;
    }
    if (llm_ctx_failed(c)) fail_msg("%s", c->err.text);
    o.gradients = network_gradients(n, &o.n);
    return o;
}

static void same(const struct outcome *a, const struct outcome *b)
{
    assert_int_equal(a->tokens, b->tokens);
    assert_true(a->nll == b->nll);
    for (size_t i = 0; i < a->n; i++) {
        if (memcmp(a->gradients + i, b->gradients + i, sizeof(float)) != 0)
            fail_msg("gradient %zu: expected %.9g, found %.9g", i, (double)a->gradients[i], (double)b->gradients[i]);
    }
}

static void test_checkpointing(void **state)
{
    struct network *n = *state;
    for (int compute = 0; compute < 2; compute++) {
        struct llm_ctx plain, saving;
        ctx_make(&plain, true);
        ctx_make(&saving, true);
        plain.compute = saving.compute = compute ? LLM_COMPUTE_BF16 : LLM_COMPUTE_F32;
        struct outcome a = train(n, &plain, 2, 2, 100, false), b = train(n, &saving, 2, 2, 100, true);
        same(&a, &b);
        assert_true(saving.acts.peak < plain.acts.peak * 2 / 3);
        double size = 0;
        for (size_t i = 0; i < a.n; i++) size += (double)a.gradients[i] * (double)a.gradients[i];
        assert_true(size > 1e-3 && isfinite(size));
        free(a.gradients);
        free(b.gradients);
        llm_ctx_release(&plain);
        llm_ctx_release(&saving);
    }
}

/* Rows longer than a block of 256 tokens, in one step or in several. */
static void test_accumulation(void **state)
{
    struct network *n = *state;
    for (int compute = 0; compute < 2; compute++) {
        struct llm_ctx c;
        ctx_make(&c, true);
        c.compute = compute ? LLM_COMPUTE_BF16 : LLM_COMPUTE_F32;
        struct outcome all = train(n, &c, 8, 8, 37, false), one = train(n, &c, 8, 1, 37, false), two = train(n, &c, 8, 4, 37, true);
        same(&all, &one);
        assert_int_equal(all.n, two.n);
        assert_memory_equal(all.gradients, two.gradients, all.n * sizeof(float));
        struct outcome whole = train(n, &c, 2, 2, 613, false), each = train(n, &c, 2, 1, 613, false);
        same(&whole, &each);
        struct outcome *outcomes[] = {&all, &one, &two, &whole, &each};
        for (int i = 0; i < 5; i++) free(outcomes[i]->gradients);
        llm_ctx_release(&c);
    }
}

static void test_threads(void **state)
{
    struct network *n = *state;
    struct llm_err e = {0};
    struct outcome first = {0};
    for (int threads = 1; threads <= 8; threads++) {
        struct llm_ctx c;
        llm_pool_stop();
        assert_int_equal(llm_pool_start(threads, &e), 0);
        ctx_make(&c, true);
        struct outcome o = train(n, &c, 3, 3, 300, threads % 2);
        if (threads == 1) {
            first = o;
        } else {
            same(&first, &o);
            free(o.gradients);
        }
        llm_ctx_release(&c);
    }
    free(first.gradients);
    llm_pool_stop();
    assert_int_equal(llm_pool_start(2, &e), 0);
}

/* Without a tape a block leaves its result alone, and the loss is that of training. */
static void test_inference_memory(void **state)
{
    struct network *n = *state;
    struct llm_ctx train_c, c;
    ctx_make(&train_c, true);
    ctx_make(&c, false);
    network_clear(n);
    struct llm_loss a = network_step(&train_c, n, 0, 2, 100, false, 1), b = network_step(&c, n, 0, 2, 100, false, 1);
    assert_true(a.nll == b.nll && a.tokens == b.tokens);
    assert_true(c.acts.peak < train_c.acts.peak * 2 / 3);
    llm_ctx_release(&train_c);
    llm_ctx_release(&c);
}

static void test_keep_only(void **state)
{
    (void)state;
    struct llm_ctx c;
    ctx_make(&c, false);
    struct llm_tensor *below = llm_tensor_create(&c, 5, 7);
    size_t mark = llm_arena_mark(&c.acts);
    assert_ptr_equal(llm_keep_only(&c, mark, below), below);
    for (int view = 0; view < 3; view++) {
        llm_arena_pop(&c.acts, mark);
        if (view < 2) llm_tensor_create(&c, 3, 100);
        struct llm_tensor *x = view == 2 ? below : llm_tensor_create(&c, 5, 7);
        for (int i = 0; i < 35; i++) x->data[i] = (float)i;
        if (view) x = llm_columns(&c, x, 2, 4);
        int64_t cols = x->cols;
        x = llm_keep_only(&c, mark, x);
        assert_int_equal(x->rows, 5);
        assert_int_equal(x->cols, cols);
        for (int r = 0; r < 5; r++) {
            for (int i = 0; i < cols; i++) assert_true(x->data[r * x->stride + i] == (float)(r * 7 + i + (view ? 2 : 0)));
        }
        assert_true(llm_arena_mark(&c.acts) <= mark + 1024);
    }
    llm_ctx_release(&c);
}

/* Frozen parameters are left alone, and what lies before the first that is not costs nothing. */
static void test_frozen(void **state)
{
    struct network *n = *state;
    struct llm_ctx c;
    ctx_make(&c, true);
    float *kept[N_PARAMS], *lookup = n->p[0].grad_lookup;
    for (int i = 0; i < N_PARAMS; i++) kept[i] = n->p[i].grad;
    struct outcome all = train(n, &c, 2, 2, 50, false);
    free(all.gradients);
    float *expected = malloc(WIDTH * HIDDEN * sizeof *expected);
    int only = GLOBAL + 1 * PER_LAYER + 10;
    memcpy(expected, n->p[only].grad, WIDTH * HIDDEN * sizeof *expected);
    network_clear(n);
    for (int checkpoint = 0; checkpoint < 2; checkpoint++) {
        for (int i = 0; i < N_PARAMS; i++) n->p[i].grad = i == only ? kept[i] : NULL;
        n->p[0].grad_lookup = NULL;
        memset(kept[only], 0, WIDTH * HIDDEN * sizeof(float));
        network_step(&c, n, 0, 2, 50, checkpoint, 1.0 / 64);
        for (int i = 0; i < N_PARAMS; i++) n->p[i].grad = kept[i];
        n->p[0].grad_lookup = lookup;
        assert_memory_equal(kept[only], expected, WIDTH * HIDDEN * sizeof(float));
        for (int64_t i = 0; i < VOCAB * WIDTH; i++) assert_true(kept[0][i] == 0 && lookup[i] == 0);
    }
    free(expected);
    llm_ctx_release(&c);
}

/* Gradients land only where ids and positions occurred. */
static void test_unused_rows(void **state)
{
    struct network *n = *state;
    struct llm_ctx c;
    ctx_make(&c, true);
    struct outcome o = train(n, &c, 2, 2, 60, false);
    for (int64_t i = 31 * WIDTH; i < VOCAB * WIDTH; i++) assert_true(n->p[0].grad_lookup[i] == 0);
    for (int64_t i = 60 * WIDTH; i < POSITIONS * WIDTH; i++) assert_true(n->p[1].grad[i] == 0);
    double size = 0;
    for (int64_t i = 0; i < 60 * WIDTH; i++) size += fabs((double)n->p[1].grad[i]);
    assert_true(size > 0);
    free(o.gradients);
    llm_ctx_release(&c);
}

/* Memory that does not suffice, forward or backward: one message, status 69, no harm. */
static void test_failures_stick(void **state)
{
    struct network *n = *state;
    struct llm_err e = {0};
    for (size_t acts = 2; acts <= 256; acts *= 2) { /* MiB */
        struct llm_ctx c;
        assert_int_equal(llm_ctx_init(&c, acts << 20, (size_t)2 << 20, true, &e), 0);
        network_step(&c, n, 0, 8, 690, acts > 32, 1);
        assert_true(llm_ctx_failed(&c));
        assert_int_equal(c.err.status, EX_UNAVAILABLE);
        assert_non_null(strstr(c.err.text, "expected at most"));
        llm_ctx_release(&c);
    }
    struct llm_ctx c;
    ctx_make(&c, true);
    struct llm_tensor *x = llm_tensor_create(&c, 3, WIDTH + 1);
    assert_ptr_equal(llm_linear(&c, x, &n->p[GLOBAL + 8], NULL), &c.nothing);
    assert_non_null(strstr(c.err.text, "expected inputs [*, 40], found [3, 41]"));
    assert_ptr_equal(llm_columns(&c, x, 5, 100), &c.nothing);
    llm_ctx_release(&c);
}

static int setup(void **state)
{
    *state = network_create();
    return 0;
}

static int teardown(void **state)
{
    network_destroy(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checkpointing), cmocka_unit_test(test_accumulation), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_inference_memory), cmocka_unit_test(test_keep_only), cmocka_unit_test(test_frozen), cmocka_unit_test(test_unused_rows),
        cmocka_unit_test(test_failures_stick)};
    struct llm_err e = {0};
    if (llm_pool_start(2, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, setup, teardown);
}
