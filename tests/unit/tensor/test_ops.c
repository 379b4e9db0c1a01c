/* Properties of single ops that need no other program. Forward and backward against formulas are test_gradcheck.c's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/pool.h"
#include "tensor/ops.h"
#include "tests/unit/tensor/param_of.h"

static void ctx_make(struct llm_ctx *c)
{
    struct llm_err e = {0};
    assert_int_equal(llm_ctx_init(c, (size_t)1 << 30, (size_t)1 << 30, true, &e), 0);
    c->n_rows = 1;
}

static struct llm_tensor *random_tensor(struct llm_ctx *c, int64_t rows, int64_t cols, uint32_t number)
{
    struct llm_tensor *t = llm_tensor_create(c, rows, cols);
    struct llm_rng r = llm_rng_at(21, 0, LLM_RNG_TEST, number, 0, 0);
    for (int64_t i = 0; i < rows * cols; i++) t->data[i] = llm_rng_normal(&r, (uint32_t)i);
    t->needs_grad = true;
    return t;
}

static void test_activation_values(void **state)
{
    static const struct { const char *name; double at_one; } known[] = {
        {"gelu", .8413447}, {"gelu_new", .8411920}, {"gelu_pytorch_tanh", .8411920},
        {"gelu_python", .8413447}, {"gelu_python_tanh", .8411920}, {"gelu_accurate", .8411920}, {"gelu_fast", .8411920},
        {"silu", .7310586}, {"swish", .7310586}, {"sigmoid", .7310586}, {"relu", 1}, {"tanh", .7615942}, {"quick_gelu", 0.8457958}};
    (void)state;
    struct llm_ctx c;
    ctx_make(&c);
    struct llm_tensor *x = llm_tensor_create(&c, 1, 3);
    memcpy(x->data, (const float[3]){1, 0, -30}, 3 * sizeof(float));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        int act = llm_act_find(known[i].name);
        assert_true(act >= 0);
        const float *y = llm_activation(&c, x, (enum llm_act)act)->data;
        assert_true(fabs((double)y[0] - known[i].at_one) < 1e-7);
        assert_true(y[1] == (act == LLM_ACT_SIGMOID ? 0.5f : 0));
        assert_true(act == LLM_ACT_TANH ? y[2] == -1 : fabsf(y[2]) < 1e-11f);
    }
    assert_int_equal(llm_act_find("quicker_gelu"), -1);
    llm_ctx_release(&c);
}

/* dx ⟂ 1 and ⟂ x̂. */
static void test_layernorm_orthogonal(void **state)
{
    (void)state;
    struct llm_ctx c;
    ctx_make(&c);
    float gain[97], bias[97] = {0};
    for (int i = 0; i < 97; i++) gain[i] = 1 + 0.3f * (float)sin(i);
    struct llm_param g = param_of(gain, NULL, 97, 0), b = param_of(bias, NULL, 97, 0);
    struct llm_tensor *x = random_tensor(&c, 5, 97, 1), *dy = random_tensor(&c, 5, 97, 2);
    struct llm_tensor *y = llm_layernorm(&c, x, &g, &b, 1e-12f);
    memcpy(llm_tensor_grad(&c, y), dy->data, 5 * 97 * sizeof(float));
    llm_backward(&c);
    for (int r = 0; r < 5; r++) {
        const float *row = x->data + r * 97, *dx = x->grad + r * 97;
        double one = 0, hat = 0, mean = 0, size = 0;
        for (int i = 0; i < 97; i++) mean += (double)row[i] / 97;
        for (int i = 0; i < 97; i++) {
            one += (double)dx[i];
            hat += (double)dx[i] * ((double)row[i] - mean);
            size += (double)dx[i] * (double)dx[i];
        }
        assert_true(sqrt(size) > 1);
        assert_true(fabs(one) < 1e-5 * sqrt(size) && fabs(hat) < 1e-5 * sqrt(size));
    }
    llm_ctx_release(&c);
}

/* RMSNorm does not see its input's scale as eps → 0. */
static void test_rmsnorm_scale(void **state)
{
    (void)state;
    struct llm_ctx c;
    ctx_make(&c);
    float gain[33];
    for (int i = 0; i < 33; i++) gain[i] = (float)cos(i);
    struct llm_param g = param_of(gain, NULL, 33, 0);
    struct llm_tensor *x = random_tensor(&c, 4, 33, 1);
    struct llm_tensor *y = llm_rmsnorm(&c, x, &g, 1e-30f, 0, 33), *z = llm_rmsnorm(&c, llm_scale(&c, x, 64), &g, 1e-30f, 0, 33);
    assert_memory_equal(y->data, z->data, 4 * 33 * sizeof(float)); /* a power of two: the same bits */
    llm_ctx_release(&c);
}

/* RoPE keeps norms, and q·k depends on the distance alone. */
static void test_rope(void **state)
{
    (void)state;
    static const float frequency[8] = {1, .5f, .2f, .1f, .05f, .02f, .01f, .001f};
    struct llm_ctx c;
    ctx_make(&c);
    for (int pairing = 0; pairing < 2; pairing++) {
        struct llm_rope r = {16, 16, pairing ? LLM_ROPE_INTERLEAVED : LLM_ROPE_HALVES, frequency, 1, 0};
        struct llm_tensor *q = random_tensor(&c, 1, 16, 1), *k = random_tensor(&c, 1, 16, 2);
        double dots[3], before = 0, after = 0;
        const int32_t at[3][2] = {{7, 3}, {1007, 1003}, {4, 0}};
        for (int i = 0; i < 3; i++) {
            struct llm_tensor *a = llm_rope(&c, q, &at[i][0], &r), *b = llm_rope(&c, k, &at[i][1], &r);
            dots[i] = before = after = 0;
            for (int j = 0; j < 16; j++) {
                dots[i] += (double)a->data[j] * (double)b->data[j];
                before += (double)q->data[j] * (double)q->data[j];
                after += (double)a->data[j] * (double)a->data[j];
            }
            assert_true(fabs(after / before - 1) < 1e-6);
            assert_true(fabs(dots[i] - dots[0]) < 1e-5 * before);
        }
    }
    llm_ctx_release(&c);
}

static void test_sinusoidal(void **state)
{
    (void)state;
    struct llm_ctx c;
    ctx_make(&c);
    struct llm_tensor *x = llm_tensor_create(&c, 1, 9);
    memset(x->data, 0, 9 * sizeof(float));
    const int32_t zero = 0;
    const float *y = llm_add_sinusoidal(&c, x, &zero)->data;
    for (int i = 0; i < 9; i++) assert_true(y[i] == (float)(i % 2)); /* PE(0) = 0, 1, 0, 1, … */
    llm_ctx_release(&c);
}

/* E[y] = x; p = 0 and evaluation give x itself. */
static void test_dropout(void **state)
{
    (void)state;
    enum { ROWS = 400, COLS = 1000 };
    struct llm_ctx c;
    ctx_make(&c);
    struct llm_tensor *x = llm_tensor_create(&c, ROWS, COLS);
    for (int i = 0; i < ROWS * COLS; i++) x->data[i] = 1;
    assert_ptr_equal(llm_dropout(&c, x, 0.5f, LLM_RNG_DROPOUT_EMBED), x);
    c.training = true;
    assert_ptr_equal(llm_dropout(&c, x, 0, LLM_RNG_DROPOUT_EMBED), x);
    const float *y = llm_dropout(&c, x, 0.2f, LLM_RNG_DROPOUT_EMBED)->data;
    double sum = 0;
    for (int i = 0; i < ROWS * COLS; i++) {
        assert_true(y[i] == 0 || y[i] == 1 / (1 - 0.2f));
        sum += (double)y[i];
    }
    /* the mean's deviation is sqrt(p / (1 - p) / n) = 7.9e-4 */
    assert_true(fabs(sum / (ROWS * COLS) - 1) < 4 * 7.9e-4);
    c.layer = 1;
    const float *z = llm_dropout(&c, x, 0.2f, LLM_RNG_DROPOUT_EMBED)->data;
    assert_memory_not_equal(y, z, ROWS * COLS * sizeof *y);
    llm_ctx_release(&c);
}

/* Zero weights: loss exactly ln V, for vocabularies small and large. */
static void test_uniform_loss(void **state)
{
    (void)state;
    static const int64_t vocab[] = {65, 50257};
    struct llm_ctx c;
    ctx_make(&c);
    for (int i = 0; i < 2; i++) {
        struct llm_tensor *x = random_tensor(&c, 3, 8, 1);
        float *w = calloc((size_t)vocab[i] * 8, sizeof *w), token_nll[3];
        struct llm_param p = param_of(w, NULL, vocab[i], 8);
        struct llm_cross_entropy a = {.targets = (const int32_t[3]){0, 64, 7}, .logit_scale = 1, .grad_scale = 1, .token_nll = token_nll};
        struct llm_loss l = llm_cross_entropy(&c, x, &p, &a);
        double exact = log((double)vocab[i]);
        assert_true(l.nll == exact + exact + exact && l.tokens == 3);
        for (int t = 0; t < 3; t++) assert_true(token_nll[t] == (float)exact);
        llm_weight_release(&p.weight);
        free(w);
    }
    llm_ctx_release(&c);
}

/* The gradient of each logit row sums to 0, so with x = 1 in one channel, dw of that channel sums to 0 over the vocabulary; also over chunks: rows of
 * 1,300 tokens by 20,011 words are five chunks and more. Ignored tokens have no gradient at all. */
static void test_loss_gradient(void **state)
{
    (void)state;
    enum { TOKENS = 1300, WIDTH = 4, VOCAB = 20011 };
    struct llm_ctx c;
    ctx_make(&c);
    struct llm_tensor *x = random_tensor(&c, TOKENS, WIDTH, 1);
    float *w = malloc(VOCAB * WIDTH * sizeof *w), *grad = calloc(VOCAB * WIDTH, sizeof *grad);
    int32_t *targets = malloc(TOKENS * sizeof *targets);
    struct llm_rng r = llm_rng_at(22, 0, LLM_RNG_TEST, 0, 0, 0);
    for (int i = 0; i < VOCAB * WIDTH; i++) w[i] = llm_rng_normal(&r, (uint32_t)i);
    for (int t = 0; t < TOKENS; t++) {
        targets[t] = t % 5 ? (int32_t)llm_rng_below(&r, (uint32_t)t, VOCAB) : -1;
        x->data[t * WIDTH] = 1;
    }
    struct llm_param p = param_of(w, grad, VOCAB, WIDTH);
    struct llm_cross_entropy a = {.targets = targets, .logit_scale = 1, .grad_scale = 1};
    struct llm_loss l = llm_cross_entropy(&c, x, &p, &a);
    assert_false(llm_ctx_failed(&c));
    assert_int_equal(l.tokens, TOKENS - TOKENS / 5);
    double sum = 0, size = 0;
    for (int v = 0; v < VOCAB; v++) {
        sum += (double)grad[v * WIDTH];
        size += fabs((double)grad[v * WIDTH]);
    }
    assert_true(size > 100 && fabs(sum) < 1e-5 * size);
    for (int t = 0; t < TOKENS; t++) {
        for (int i = 0; i < WIDTH; i++) assert_true((x->grad[t * WIDTH + i] == 0) == (t % 5 == 0));
    }
    /* the last token alone, checked by the formula */
    double total = 0, own = 0;
    for (int v = 0; v < VOCAB; v++) {
        double logit = 0;
        for (int i = 0; i < WIDTH; i++) logit += (double)x->data[(TOKENS - 1) * WIDTH + i] * (double)w[v * WIDTH + i];
        total += exp(logit);
        if (v == targets[TOKENS - 1]) own = logit;
    }
    float token_nll[TOKENS];
    a.token_nll = token_nll;
    llm_cross_entropy(&c, x, &p, &a);
    assert_true(fabs((double)token_nll[TOKENS - 1] - (log(total) - own)) < 2e-6 * (log(total) - own));
    a.targets = (const int32_t[1]){VOCAB};
    x->rows = 1;
    llm_cross_entropy(&c, x, &p, &a);
    assert_int_equal(c.err.status, EX_DATAERR);
    llm_weight_release(&p.weight);
    free(w);
    free(grad);
    free(targets);
    llm_ctx_release(&c);
}

/* Tokens that do not count are left out where the head is frozen. It changes no bit of the loss and of the gradient, which two losses share. */
static void test_frozen_head(void **state)
{
    enum { ROWS = 3, ROW = 41, TOKENS = ROWS * ROW, WIDTH = 64, VOCAB = 333 };
    static const char *const patterns[] = {"1", "0", "10", "0000000000000000000000000000000000000000011", "1111111111111111110"};
    float w[VOCAB * WIDTH], grad[VOCAB * WIDTH] = {0};
    struct llm_rng r = llm_rng_at(23, 0, LLM_RNG_TEST, 0, 0, 0);
    (void)state;
    for (uint32_t i = 0; i < VOCAB * WIDTH; i++) w[i] = 0.2f * llm_rng_normal(&r, i);
    for (size_t pattern = 0; pattern < sizeof patterns / sizeof *patterns; pattern++) {
        for (int compute = 0; compute < 2; compute++) {
            float dx[2][TOKENS * WIDTH];
            struct llm_loss losses[2];
            uint8_t mask[TOKENS];
            int32_t targets[TOKENS];
            for (int t = 0; t < TOKENS; t++) {
                mask[t] = patterns[pattern][(size_t)t % strlen(patterns[pattern])] == '1';
                targets[t] = t % 7 ? (int32_t)llm_rng_below(&r, (uint32_t)t, VOCAB) : -1;
            }
            const struct llm_cross_entropy a = {.targets = targets, .mask = mask, .logit_scale = 1, .grad_scale = .5};
            for (int frozen = 0; frozen < 2; frozen++) {
                struct llm_ctx c;
                ctx_make(&c);
                c.n_rows = ROWS;
                c.row_len = ROW;
                c.compute = compute ? LLM_COMPUTE_BF16 : LLM_COMPUTE_F32;
                struct llm_param p = param_of(w, frozen ? NULL : grad, VOCAB, WIDTH);
                struct llm_tensor *x = random_tensor(&c, TOKENS, WIDTH, 2);
                llm_cross_entropy(&c, x, &p, &a);
                losses[frozen] = llm_cross_entropy(&c, x, &p, &a);
                assert_false(llm_ctx_failed(&c));
                for (int t = 0; t < TOKENS; t++) memcpy(dx[frozen] + t * WIDTH, x->grad + t * x->grad_stride, WIDTH * sizeof(float));
                llm_weight_release(&p.weight);
                llm_ctx_release(&c);
            }
            assert_memory_equal(dx[0], dx[1], sizeof dx[0]);
            assert_true(losses[0].nll == losses[1].nll && losses[0].tokens == losses[1].tokens);
        }
    }
}

/* Tables of any float type. */
static void test_embedding_dtypes(void **state)
{
    (void)state;
    static const enum llm_dtype dtypes[] = {LLM_F32, LLM_F16, LLM_BF16, LLM_Q8_0};
    enum { COLS = 64, ROWS = 5 };
    const int32_t ids[3] = {4, 0, 2};
    struct llm_ctx c;
    ctx_make(&c);
    struct llm_tensor *values = random_tensor(&c, ROWS, COLS, 1);
    for (int d = 0; d < 4; d++) {
        const struct llm_dtype_row *row = &llm_dtypes[dtypes[d]];
        float decoded[ROWS * COLS];
        void *table = malloc(llm_dtype_bytes(dtypes[d], ROWS * COLS));
        row->encode(values->data, table, ROWS * COLS);
        row->decode(table, decoded, ROWS * COLS);
        struct llm_param p = {
            .name = "table", .n_dims = 2, .shape = {ROWS, COLS}, .weight = {.data = table, .dtype = dtypes[d], .n = ROWS, .k = COLS}};
        const float *y = llm_embedding(&c, ids, 3, &p, 1)->data;
        for (int t = 0; t < 3; t++) assert_memory_equal(y + t * COLS, decoded + ids[t] * COLS, COLS * sizeof *y);
        if (dtypes[d] == LLM_BF16) { /* the same of F32 data that stand for it */
            p.weight = (struct llm_weight){.data = values->data, .dtype = LLM_F32, .rounded = true, .n = ROWS, .k = COLS};
            y = llm_embedding(&c, ids, 3, &p, 1)->data;
            for (int t = 0; t < 3; t++) assert_memory_equal(y + t * COLS, decoded + ids[t] * COLS, COLS * sizeof *y);
        }
        free(table);
    }
    llm_ctx_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_activation_values), cmocka_unit_test(test_layernorm_orthogonal), cmocka_unit_test(test_rmsnorm_scale),
        cmocka_unit_test(test_rope), cmocka_unit_test(test_sinusoidal), cmocka_unit_test(test_dropout), cmocka_unit_test(test_uniform_loss),
        cmocka_unit_test(test_loss_gradient), cmocka_unit_test(test_frozen_head), cmocka_unit_test(test_embedding_dtypes)};
    struct llm_err e = {0};
    if (llm_pool_start(2, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
