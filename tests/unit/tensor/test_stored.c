/* Activations kept in BF16 and in 8 bits: the same output, gradients near those of kept ones, less memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "cpu/pool.h"
#include "tensor/ops.h"
#include "param_of.h"
#include "tests/unit/near.h"

enum { BLOCKS = 4, TOKENS = 67, WIDTH = 48, WIDE = 3 * 48, MATRIX = WIDTH * WIDE };

struct net {
    struct llm_param up[BLOCKS], down[BLOCKS], gain[BLOCKS];
    float w[BLOCKS][2][MATRIX], g[BLOCKS][2][MATRIX], gains[BLOCKS][WIDTH], gain_grads[BLOCKS][WIDTH];
};
struct place { struct net *net; int block; };

static struct llm_tensor *block(struct llm_ctx *c, void *arg, struct llm_tensor *x)
{
    const struct place *p = arg;
    struct llm_tensor *y = llm_rmsnorm(c, x, &p->net->gain[p->block], 1e-6f, 0, WIDTH);
    y = llm_activation(c, llm_linear(c, y, &p->net->up[p->block], NULL), LLM_ACT_SILU);
    struct llm_tensor *half = llm_columns(c, y, WIDTH, WIDTH);
    return llm_add(c, x, llm_add(c, half, llm_linear(c, y, &p->net->down[p->block], NULL)));
}

static struct net *make(void)
{
    struct net *n = calloc(1, sizeof *n);
    assert_non_null(n);
    for (uint32_t b = 0; b < BLOCKS; b++) {
        struct llm_rng r = llm_rng_at(5, 0, LLM_RNG_TEST, b, 0, 0);
        for (uint32_t i = 0; i < 2 * MATRIX; i++) n->w[b][i / MATRIX][i % MATRIX] = .15F * llm_rng_normal(&r, i);
        for (int i = 0; i < WIDTH; i++) n->gains[b][i] = 1 + .1F * (float)i / WIDTH;
        n->up[b] = param_of(n->w[b][0], n->g[b][0], WIDE, WIDTH);
        n->down[b] = param_of(n->w[b][1], n->g[b][1], WIDTH, WIDE);
        n->gain[b] = param_of(n->gains[b], n->gain_grads[b], WIDTH, 0);
    }
    return n;
}

/* Runs the net forth and back; its output goes to y, the input's gradient to dx. Bytes at most in use on acts and store. */
static size_t run(struct net *n, enum llm_stored stored, float *y, float *dx)
{
    struct llm_ctx c;
    struct llm_err e;
    struct place places[BLOCKS];
    assert_int_equal(llm_ctx_init(&c, (size_t)64 << 20, (size_t)64 << 20, true, &e), 0);
    c.stored = stored;
    c.n_rows = 1;
    c.row_len = TOKENS;
    struct llm_rng r = llm_rng_at(6, 0, LLM_RNG_TEST, 0, 0, 0);
    struct llm_tensor *in = llm_tensor_create(&c, TOKENS, WIDTH), *x = in;
    in->needs_grad = true;
    for (uint32_t i = 0; i < TOKENS * WIDTH; i++) in->data[i] = llm_rng_normal(&r, i);
    for (int b = 0; b < BLOCKS; b++) {
        places[b] = (struct place){n, b};
        x = llm_run_block(&c, block, &places[b], x, true);
    }
    memcpy(y, x->data, TOKENS * WIDTH * sizeof *y);
    size_t kept = c.acts.used + c.store.used;
    float *dy = llm_tensor_grad(&c, x);
    for (uint32_t i = 0; i < TOKENS * WIDTH; i++) dy[i] = llm_rng_normal(&r, TOKENS * WIDTH + i);
    llm_backward(&c);
    assert_false(llm_ctx_failed(&c));
    assert_int_equal(c.store.used, 0);
    memcpy(dx, in->grad, TOKENS * WIDTH * sizeof *dx);
    for (int b = 0; b < BLOCKS; b++) {
        llm_weight_release(&n->up[b].weight);
        llm_weight_release(&n->down[b].weight);
    }
    llm_ctx_release(&c);
    return kept;
}

static double apart(const float *a, const float *b, size_t n)
{
    double d = 0, s = 0;
    for (size_t i = 0; i < n; i++) {
        d += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        s += (double)b[i] * (double)b[i];
    }
    return sqrt(d / s);
}

static void test_stored(void **state)
{
    static const struct { enum llm_stored kind; double least, most, memory; } kinds[] = {
        {LLM_STORED_BF16, 1e-6, .01, .66}, {LLM_STORED_INT8, 1e-5, .05, .45}};
    static float y[3][TOKENS * WIDTH], dx[3][TOKENS * WIDTH];
    (void)state;
    struct net *plain = make();
    size_t all = run(plain, LLM_STORED_F32, y[0], dx[0]);
    for (size_t k = 0; k < 2; k++) {
        struct net *n = make();
        size_t kept = run(n, kinds[k].kind, y[1], dx[1]);
        assert_memory_equal(y[0], y[1], sizeof y[0]);
        print_message("  memory %.3f of F32's, the input's gradient off by %.1e\n", (double)kept / (double)all, apart(dx[1], dx[0], TOKENS * WIDTH));
        assert_true((double)kept < kinds[k].memory * (double)all);
        for (int b = 0; b < BLOCKS; b++) {
            double worst = worse(apart(n->g[b][0], plain->g[b][0], MATRIX), apart(n->g[b][1], plain->g[b][1], MATRIX));
            worst = worse(worst, apart(n->gain_grads[b], plain->gain_grads[b], WIDTH));
            assert_true(worst > kinds[k].least && worst < kinds[k].most);
        }
        assert_true(apart(dx[1], dx[0], TOKENS * WIDTH) < kinds[k].most);
        /* and the same bits again */
        struct net *again = make();
        run(again, kinds[k].kind, y[2], dx[2]);
        assert_memory_equal(again->g, n->g, sizeof n->g);
        assert_memory_equal(dx[2], dx[1], sizeof dx[1]);
        free(again);
        free(n);
    }
    free(plain);
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stored)};
    if (llm_pool_start(0, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
