/* Recomputed activations, and sums written over one of their inputs: the bits are those of kept activations, memory is less, and a read that comes
 * too late is an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "cpu/pool.h"
#include "tensor/ops.h"
#include "param_of.h"

enum { BLOCKS = 4, TOKENS = 67, WIDTH = 48, WIDE = 3 * 48, MATRIX = WIDTH * WIDE };

struct net {
    struct llm_param up[BLOCKS], gate[BLOCKS], down[BLOCKS], gain[BLOCKS], bias[BLOCKS];
    float w[BLOCKS][3][MATRIX], g[BLOCKS][3][MATRIX], v[BLOCKS][2][WIDTH], v_g[BLOCKS][2][WIDTH];
};
struct place { struct net *net; int block; bool passes, panels; };

/* A norm, a (gated) inner layer and the sum with what came in; LayerNorm and GELU, or RMSNorm and SwiGLU. */
static struct llm_tensor *block(struct llm_ctx *c, void *arg, struct llm_tensor *x)
{
    const struct place *p = arg;
    struct net *n = p->net;
    int b = p->block;
    if (p->passes) c->recompute = LLM_RECOMPUTE_NORM;
    if (p->panels) llm_panels_for(c, 2, (struct llm_param *[]){&n->up[b], &n->gate[b]});
    struct llm_tensor *y = b % 2 ? llm_rmsnorm(c, x, &n->gain[b], 1e-6f, 0, WIDTH) : llm_layernorm(c, x, &n->gain[b], &n->bias[b], 1e-6f);
    c->recompute = LLM_KEPT;
    c->to_panels = false;
    struct llm_tensor *view = p->panels ? y : llm_columns(c, y, 0, WIDTH);
    struct llm_tensor *up = llm_linear(c, view, &n->up[b], NULL), *gate = b % 2 ? llm_linear(c, y, &n->gate[b], NULL) : NULL;
    if (p->passes) c->recompute = LLM_RECOMPUTE_INNER;
    if (p->panels) llm_panels_for(c, 1, (struct llm_param *[]){&n->down[b]});
    y = gate ? llm_gated(c, gate, up, LLM_ACT_SILU) : llm_activation(c, up, LLM_ACT_GELU);
    c->recompute = LLM_KEPT;
    c->to_panels = false;
    y = llm_linear(c, y, &n->down[b], NULL);
    return p->passes ? llm_add_over(c, x, y) : llm_add(c, x, y);
}

static struct net *make(void)
{
    struct net *n = calloc(1, sizeof *n);
    assert_non_null(n);
    for (uint32_t b = 0; b < BLOCKS; b++) {
        struct llm_rng r = llm_rng_at(5, 0, LLM_RNG_TEST, b, 0, 0);
        for (uint32_t i = 0; i < 3 * MATRIX; i++) n->w[b][i / MATRIX][i % MATRIX] = .15F * llm_rng_normal(&r, i);
        for (uint32_t i = 0; i < 2 * WIDTH; i++) n->v[b][i / WIDTH][i % WIDTH] = 1 + .1F * llm_rng_normal(&r, 3 * MATRIX + i);
        n->up[b] = param_of(n->w[b][0], n->g[b][0], WIDE, WIDTH);
        n->gate[b] = param_of(n->w[b][1], n->g[b][1], WIDE, WIDTH);
        n->down[b] = param_of(n->w[b][2], n->g[b][2], WIDTH, WIDE);
        n->gain[b] = param_of(n->v[b][0], n->v_g[b][0], WIDTH, 0);
        n->bias[b] = param_of(n->v[b][1], n->v_g[b][1], WIDTH, 0);
    }
    return n;
}

static void begin(struct llm_ctx *c)
{
    struct llm_err e;
    assert_int_equal(llm_ctx_init(c, (size_t)64 << 20, (size_t)64 << 20, true, &e), 0);
    c->n_rows = 1;
    c->row_len = TOKENS;
}

static struct llm_tensor *input(struct llm_ctx *c)
{
    struct llm_rng r = llm_rng_at(6, 0, LLM_RNG_TEST, 0, 0, 0);
    struct llm_tensor *x = llm_tensor_create(c, TOKENS, WIDTH);
    x->needs_grad = true;
    for (uint32_t i = 0; i < TOKENS * WIDTH; i++) x->data[i] = llm_rng_normal(&r, i);
    return x;
}

/* Two passes, as of one step. keep false: activation checkpointing. Returns the bytes that the second pass kept. */
static double run(struct net *n, bool passes, bool panels, bool keep, enum llm_compute compute, float *y, float *dx)
{
    struct llm_ctx c;
    struct place places[BLOCKS];
    double kept = 0;
    begin(&c);
    c.compute = compute;
    for (int pass = 0; pass < 2; pass++) {
        struct llm_tensor *in = input(&c), *x = in;
        for (int b = 0; b < BLOCKS; b++) {
            places[b] = (struct place){n, b, passes, panels};
            x = llm_run_block(&c, block, &places[b], x, keep);
        }
        memcpy(y, x->data, TOKENS * WIDTH * sizeof *y);
        kept = (double)(c.acts.used + c.shared_arena.used);
        float *dy = llm_tensor_grad(&c, x);
        for (int i = 0; i < TOKENS * WIDTH; i++) dy[i] = y[i];
        llm_backward(&c);
        assert_false(llm_ctx_failed(&c));
        memcpy(dx, in->grad, TOKENS * WIDTH * sizeof *dx);
        llm_ctx_reset(&c);
        assert_int_equal(c.shared_arena.used, 0);
    }
    for (int b = 0; b < BLOCKS; b++) {
        llm_weight_release(&n->up[b].weight);
        llm_weight_release(&n->gate[b].weight);
        llm_weight_release(&n->down[b].weight);
    }
    llm_ctx_release(&c);
    return kept;
}

static void test_same_bits(void **state)
{
    static float y[2][TOKENS * WIDTH], dx[2][TOKENS * WIDTH];
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        struct net *stays = make(), *passes = make();
        double all = run(stays, false, false, keep, LLM_COMPUTE_F32, y[0], dx[0]);
        double few = run(passes, true, false, keep, LLM_COMPUTE_F32, y[1], dx[1]);
        assert_memory_equal(y[0], y[1], sizeof y[0]);
        assert_memory_equal(dx[0], dx[1], sizeof dx[0]);
        assert_memory_equal(stays->g, passes->g, sizeof stays->g);
        assert_memory_equal(stays->v_g, passes->v_g, sizeof stays->v_g);
        if (keep) print_message("  memory %.3f\n", few / all);
        if (keep) assert_true(few < .75 * all);
        free(stays);
        free(passes);
    }
}

/* Norms and activations that are packed for products: the bits and gradients of those that are floats. In instruction sets without panels both are
 * floats. */
static void test_panels(void **state)
{
    static float y[2][TOKENS * WIDTH], dx[2][TOKENS * WIDTH];
    const bool there = llm_panels_bytes(TOKENS, WIDTH) > 0;
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        struct net *floats = make(), *packed = make();
        double all = run(floats, true, false, keep, LLM_COMPUTE_BF16, y[0], dx[0]);
        double few = run(packed, true, true, keep, LLM_COMPUTE_BF16, y[1], dx[1]);
        assert_memory_equal(y[0], y[1], sizeof y[0]);
        assert_memory_equal(dx[0], dx[1], sizeof dx[0]);
        assert_memory_equal(floats->g, packed->g, sizeof floats->g);
        assert_memory_equal(floats->v_g, packed->v_g, sizeof floats->v_g);
        if (there && keep) assert_true(few < all);
        free(floats);
        free(packed);
    }
}

/* Whoever watches the pass, or reads floats, gets floats; an op that reads panels as floats fails. */
static void test_panels_refused(void **state)
{
    struct llm_ctx c;
    struct net *n = make();
    struct llm_adapter adapter = {.a = &n->up[1], .b = &n->down[1]};
    (void)state;
    begin(&c);
    c.compute = LLM_COMPUTE_BF16;
    llm_panels_for(&c, 1, (struct llm_param *[]){&n->up[0]});
    assert_int_equal(c.to_panels, llm_panels_bytes(1, 1) > 0);
    n->up[0].adapter = &adapter;
    llm_panels_for(&c, 1, (struct llm_param *[]){&n->up[0]});
    assert_false(c.to_panels);
    n->up[0].adapter = NULL;
    c.watch = (void *)&c; /* nobody looks into it here */
    llm_panels_for(&c, 1, (struct llm_param *[]){&n->up[0]});
    assert_false(c.to_panels);
    c.watch = NULL;
    c.compute = LLM_COMPUTE_F32;
    llm_panels_for(&c, 1, (struct llm_param *[]){&n->up[0]});
    assert_false(c.to_panels);
    if (llm_panels_bytes(1, 1) > 0) {
        struct llm_tensor *x = input(&c);
        c.recompute = LLM_RECOMPUTE_NORM;
        c.to_panels = true;
        struct llm_tensor *y = llm_rmsnorm(&c, x, &n->gain[0], 1e-6f, 0, WIDTH);
        c.to_panels = false;
        assert_true(y->panels);
        llm_add(&c, x, y);
        assert_true(llm_ctx_failed(&c));
        assert_non_null(strstr(c.err.text, "packed for matrix products"));
    }
    llm_ctx_release(&c);
    free(n);
}

/* Attention with two heads for one key head, and the product that reads it, with panels beside the output or without. all: output, gradients of q, k,
 * v and of the weight. Returns whether there were panels. */
enum { HEAD = 32, OUT = 24 };
struct attended { float y[TOKENS * OUT], dq[TOKENS * 2 * HEAD], dk[TOKENS * HEAD], dv[TOKENS * HEAD], dw[OUT * 2 * HEAD]; };
static bool attend(bool panels, bool tape, int64_t width, struct attended *all)
{
    struct llm_ctx c;
    static float values[OUT * 2 * HEAD];
    struct llm_tensor *x[3];
    struct llm_rng r = llm_rng_at(7, 0, LLM_RNG_TEST, 0, 0, 0);
    struct llm_param w = param_of(values, all->dw, OUT, 2 * width);
    const struct llm_attn a = {.n_heads = 2, .n_kv_heads = 1, .d_k = width, .d_v = width, .scale = .2F, .causal = true};
    begin(&c);
    struct llm_tape *recording = c.tape;
    if (!tape) c.tape = NULL;
    c.compute = LLM_COMPUTE_BF16;
    for (uint32_t i = 0; i < OUT * 2 * HEAD; i++) values[i] = llm_rng_normal(&r, i);
    for (int i = 0; i < 3; i++) {
        x[i] = llm_tensor_create(&c, TOKENS, i ? width : 2 * width);
        x[i]->needs_grad = tape;
        for (int64_t j = 0; j < x[i]->rows * x[i]->cols; j++) x[i]->data[j] = llm_rng_normal(&r, 4096 * (uint32_t)(i + 1) + (uint32_t)j);
    }
    if (panels) llm_panels_for(&c, 1, (struct llm_param *[]){&w});
    struct llm_tensor *heads = llm_attention(&c, x[0], x[1], x[2], &a, NULL);
    c.to_panels = false;
    bool packed = heads->packed != NULL;
    struct llm_tensor *y = llm_linear(&c, heads, &w, NULL);
    memcpy(all->y, y->data, sizeof all->y);
    if (tape) {
        memcpy(llm_tensor_grad(&c, y), y->data, sizeof all->y);
        llm_backward(&c);
        float *to[] = {all->dq, all->dk, all->dv};
        for (int i = 0; i < 3; i++) memcpy(to[i], x[i]->grad, (size_t)(x[i]->rows * x[i]->cols) * sizeof(float));
    }
    assert_false(llm_ctx_failed(&c));
    c.tape = recording;
    llm_ctx_release(&c);
    return packed;
}

/* Panels that attention writes beside its output: the bits of the output alone. Heads that are not whole units of panels have none. */
static void test_panels_beside(void **state)
{
    static struct attended floats, packed, zero;
    (void)state;
    for (int tape = 0; tape < 2; tape++)
        for (int64_t width = HEAD - 1; width <= HEAD; width++) {
            floats = packed = zero;
            assert_false(attend(false, tape, width, &floats));
            assert_int_equal(attend(true, tape, width, &packed), width == HEAD && llm_panels_bytes(1, 1) > 0);
            assert_memory_equal(&floats, &packed, sizeof floats);
            assert_memory_not_equal(floats.y, zero.y, sizeof zero.y);
        }
}

/* The norm's output is read after another norm has taken its place. */
static void test_too_late(void **state)
{
    struct llm_ctx c;
    struct net *n = make();
    (void)state;
    begin(&c);
    struct llm_tensor *x = input(&c);
    c.recompute = LLM_RECOMPUTE_NORM;
    struct llm_tensor *first = llm_rmsnorm(&c, x, &n->gain[0], 1e-6f, 0, WIDTH), *second = llm_rmsnorm(&c, x, &n->gain[1], 1e-6f, 0, WIDTH);
    c.recompute = LLM_KEPT;
    llm_linear(&c, second, &n->up[0], NULL);
    assert_false(llm_ctx_failed(&c));
    llm_linear(&c, llm_columns(&c, first, 0, WIDTH), &n->up[1], NULL);
    assert_true(llm_ctx_failed(&c));
    assert_non_null(strstr(c.err.text, "values of a recomputed activation"));
    llm_ctx_release(&c);
    free(n);
}

/* An op whose backward pass reads its output keeps it: llm_add_over does not write there, nor into a shared buffer. */
static void test_keeps(void **state)
{
    struct llm_ctx c;
    struct net *n = make();
    (void)state;
    begin(&c);
    struct llm_tensor *x = input(&c), *y = llm_softmax(&c, x);
    assert_ptr_not_equal(llm_add_over(&c, x, y)->data, y->data);
    y = llm_linear(&c, x, &n->up[0], NULL);
    struct llm_tensor *half = llm_columns(&c, y, 0, WIDTH);
    assert_ptr_not_equal(llm_add_over(&c, x, half)->data, half->data);
    c.recompute = LLM_RECOMPUTE_NORM;
    y = llm_rmsnorm(&c, x, &n->gain[0], 1e-6f, 0, WIDTH);
    struct llm_tensor *again = llm_rmsnorm(&c, y, &n->gain[1], 1e-6f, 0, WIDTH);
    c.recompute = LLM_KEPT;
    assert_non_null(y->shared);
    assert_null(again->shared);
    assert_ptr_not_equal(llm_add_over(&c, x, y)->data, y->data);
    assert_ptr_equal(llm_add_over(&c, x, again)->data, again->data);
    assert_false(llm_ctx_failed(&c));
    llm_ctx_release(&c);
    free(n);
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits), cmocka_unit_test(test_panels), cmocka_unit_test(test_panels_refused),
                                       cmocka_unit_test(test_panels_beside),
                                       cmocka_unit_test(test_too_late), cmocka_unit_test(test_keeps)};
    if (llm_pool_start(0, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
