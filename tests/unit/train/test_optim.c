/* Optimizers against torch.optim in double over 100 steps (tests/oracle/optim.py), and in closed form; schedules;
 * norms of gradients. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/pool.h"
#include "train/optim.h"
#include "train/schedule.h"

enum { STEPS = 100, ROWS = 3, COLS = 5, MATRIX = ROWS * COLS, VECTOR = 7, MOST = 40 };

/* A matrix that decays and a vector that does not. */
struct pair {
    struct llm_param p[2];
    struct llm_trainable t[2];
    float w[2][MOST], g[2][MOST], m[2][MOST], v[2][MOST];
};

static void make(struct pair *a, const struct llm_optim *o)
{
    memset(a, 0, sizeof *a);
    for (int k = 0; k < 2; k++) {
        a->p[k] = (struct llm_param){.name = k ? "vector" : "matrix", .n_dims = k ? 1 : 2, .shape = {k ? VECTOR : ROWS, COLS}, .decay = !k};
        a->p[k].weight = (struct llm_weight){.data = a->w[k], .dtype = LLM_F32, .n = k ? 1 : ROWS, .k = k ? VECTOR : COLS};
        a->p[k].master = a->w[k];
        a->p[k].grad = a->g[k];
        a->t[k] = (struct llm_trainable){.p = &a->p[k], .m = o->m ? a->m[k] : NULL, .v = o->v ? a->v[k] : NULL};
        for (int i = 0; i < (k ? VECTOR : MATRIX); i++) a->w[k][i] = (float)cos(.9 * i + k);
    }
}

static void gradients(struct pair *a, int step)
{
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < (k ? VECTOR : MATRIX); i++) a->g[k][i] = (float)(sin(1.3 * i + .7 * step + k) * (1 + .25 * i));
    }
}

static struct llm_optim_step step_of(int step)
{
    return (struct llm_optim_step){.lr = 1e-2, .clip = 1, .weight_decay = .1, .beta1 = .9, .beta2 = .95, .eps = 1e-8, .momentum = .9,
                                   .correction1 = 1 - pow(.9, step + 1), .correction2 = 1 - pow(.95, step + 1)};
}

static void test_torch(void **state)
{
    (void)state;
    FILE *f = fopen("tests/golden/train/optim.tsv", "r");
    char line[200], name[32];
    int n = 0;
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    for (size_t i = 0; llm_optims[i]; i++) {
        struct pair a;
        double worst = 0;
        make(&a, llm_optims[i]);
        for (int step = 0; step < STEPS; step++) {
            const struct llm_optim_step s = step_of(step);
            gradients(&a, step);
            llm_params_update(llm_optims[i], a.t, 2, &s);
            assert_true(a.g[0][3] == 0 && a.g[1][3] == 0);
        }
        for (int j = 0; j < MATRIX + VECTOR; j++, n++) {
            int k, at;
            double want;
            assert_int_equal(fscanf(f, "%31s %d %d %lf", name, &k, &at, &want), 4);
            assert_string_equal(name, llm_optims[i]->name);
            worst = fmax(worst, fabs((double)a.w[k][at] - want) / fmax(fabs(want), 1));
        }
        print_message("  %s: off by %.1e\n", llm_optims[i]->name, worst);
        assert_true(worst <= 5e-6);
    }
    assert_int_equal(n, 4 * (MATRIX + VECTOR));
    fclose(f);
}

/* Adam's first step is -lr·sign(g); AdamW with no gradient multiplies by 1 - lr·wd, and leaves alone what does not decay. */
static void test_closed(void **state)
{
    (void)state;
    struct pair a, before;
    struct llm_optim_step s = step_of(0);
    s.eps = 0;
    make(&a, llm_optim_find("adam"));
    before = a;
    gradients(&a, 1);
    s.weight_decay = 0;
    llm_params_update(llm_optim_find("adam"), a.t, 2, &s);
    gradients(&before, 1);
    for (int i = 0; i < MATRIX; i++) assert_true(fabsf(a.w[0][i] - (before.w[0][i] - .01F * copysignf(1, before.g[0][i]))) < 1e-6F);
    make(&a, llm_optim_find("adamw"));
    s = step_of(0);
    llm_params_update(llm_optim_find("adamw"), a.t, 2, &s);
    for (int i = 0; i < MATRIX; i++) assert_true(fabsf(a.w[0][i] - before.w[0][i] * .999F) < 1e-7F);
    assert_memory_equal(a.w[1], before.w[1], sizeof a.w[1]);
    assert_null(llm_optim_find("lion"));
}

static void test_norm(void **state)
{
    (void)state;
    struct pair a;
    const struct llm_param *bad;
    double want = 0;
    float lookup[MOST];
    make(&a, llm_optim_find("sgd"));
    gradients(&a, 2);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < (k ? VECTOR : MATRIX); i++) want += (double)a.g[k][i] * (double)a.g[k][i];
    }
    assert_true(fabs(llm_grad_norm(a.t, 2, &bad) / sqrt(want) - 1) < 1e-6);
    assert_null(bad);
    /* the lookup's gradient of a tied embedding joins the head's */
    for (int i = 0; i < MATRIX; i++) lookup[i] = -a.g[0][i];
    a.p[0].grad_lookup = lookup;
    want = 0;
    for (int i = 0; i < VECTOR; i++) want += (double)a.g[1][i] * (double)a.g[1][i];
    assert_true(fabs(llm_grad_norm(a.t, 2, &bad) / sqrt(want) - 1) < 1e-6);
    assert_true(lookup[3] == 0);
    a.p[0].grad_lookup = NULL;
    a.g[1][4] = INFINITY;
    assert_false(isfinite(llm_grad_norm(a.t, 2, &bad)));
    assert_ptr_equal(bad, &a.p[1]);
    a.g[0][4] = NAN;
    assert_false(isfinite(llm_grad_norm(a.t, 2, &bad)));
    assert_ptr_equal(bad, &a.p[0]);
}

static void near(double got, double want)
{
    assert_true(fabs(got / want - 1) < 1e-9);
}

static void test_schedules(void **state)
{
    (void)state;
    const struct llm_schedule *cosine = llm_schedule_find("cosine"), *linear = llm_schedule_find("linear"), *constant = llm_schedule_find("constant");
    near(llm_schedule_lr(cosine, 0, 5000, 100, 1e-3, 1e-4), 1e-3 / 101); /* 9.901e-6 */
    near(llm_schedule_lr(cosine, 99, 5000, 100, 1e-3, 1e-4), 1e-3 * 100 / 101);
    near(llm_schedule_lr(cosine, 100, 5000, 100, 1e-3, 1e-4), 1e-3);
    near(llm_schedule_lr(cosine, 2550, 5000, 100, 1e-3, 1e-4), 5.5e-4);
    near(llm_schedule_lr(cosine, 5000, 5000, 100, 1e-3, 1e-4), 1e-4);
    near(llm_schedule_lr(cosine, 9000, 5000, 100, 1e-3, 1e-4), 1e-4);
    near(llm_schedule_lr(linear, 1325, 5000, 100, 1e-3, 1e-4), 7.75e-4);
    near(llm_schedule_lr(constant, 4999, 5000, 100, 1e-3, 1e-4), 1e-3);
    near(llm_schedule_lr(cosine, 0, 1, 0, 1e-3, 1e-4), 1e-3);
    near(llm_schedule_lr(cosine, 5, 5, 5, 1e-3, 1e-4), 1e-3); /* nothing but warm-up */
    assert_null(llm_schedule_find("step"));
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_torch), cmocka_unit_test(test_closed), cmocka_unit_test(test_norm),
                                       cmocka_unit_test(test_schedules)};
    if (llm_pool_start(0, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
