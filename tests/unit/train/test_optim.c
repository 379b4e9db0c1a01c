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
#include "cpu/half.h"
#include "cpu/pool.h"
#include "train/optim.h"
#include "train/schedule.h"
#include "tests/unit/near.h"

enum { STEPS = 100, N = 3, MATRIX = 15, VECTOR = 7, TALL = 24, MOST = 40 };
static const int64_t shapes[N][2] = {{3, 5}, {VECTOR, 1}, {6, 4}};

/* Two matrices that decay and between them a vector that does not. */
struct three {
    struct llm_param p[N];
    struct llm_trainable t[N];
    float w[N][MOST], g[N][MOST], m[N][MOST], v[N][MOST], work[4 * MOST];
};

static int size_of(int k)
{
    return (int)(shapes[k][0] * shapes[k][1]);
}

static void make(struct three *a, const struct llm_optim *o)
{
    memset(a, 0, sizeof *a);
    for (int k = 0; k < N; k++) {
        bool vector = k == 1;
        a->p[k] = (struct llm_param){.name = vector ? "vector" : "matrix", .n_dims = vector ? 1 : 2, .shape = {shapes[k][0], shapes[k][1]},
                                     .decay = !vector, .role = vector ? LLM_ROLE_VECTOR : LLM_ROLE_HIDDEN};
        a->p[k].weight = (struct llm_weight){.data = a->w[k], .dtype = LLM_F32, .n = shapes[k][0], .k = shapes[k][1]};
        a->p[k].master = a->w[k];
        a->p[k].grad = a->g[k];
        const struct llm_optim *mine = llm_optim_of(o, &a->p[k]);
        a->t[k] = (struct llm_trainable){.p = &a->p[k], .optim = mine, .m = mine->m ? a->m[k] : NULL, .v = mine->v ? a->v[k] : NULL};
        assert_true(llm_optim_work(mine, &a->p[k]) <= sizeof a->work / sizeof *a->work);
        for (int i = 0; i < size_of(k); i++) a->w[k][i] = (float)cos(.9 * i + k);
    }
}

static void gradients(struct three *a, int step)
{
    for (int k = 0; k < N; k++) {
        for (int i = 0; i < size_of(k); i++) a->g[k][i] = (float)(sin(1.3 * i + .7 * step * (1 + i % 3) + k) * (1 + .25 * i));
    }
}

static struct llm_update update_of(struct three *a, const struct llm_optim *o, int step)
{
    return (struct llm_update){.step = {.lr = 1e-2, .clip = 1, .weight_decay = .1, .beta1 = .9, .beta2 = o->beta2, .eps = o->eps,
                                        .momentum = o->momentum, .nesterov = o->nesterov, .correction1 = 1 - pow(.9, step + 1),
                                        .correction2 = 1 - pow(o->beta2, step + 1)},
                               .matrix_lr = 2e-2, .work = a->work};
}

static void update(struct three *a, const struct llm_update *u)
{
    struct llm_err e;
    assert_int_equal(llm_params_update(a->t, N, u, &e), 0);
}

static void test_torch(void **state)
{
    static const struct variant { const char *name, *optim; bool turn_nesterov; enum llm_muon_scale scale; double tolerance; } variants[] = {
        {"adamw", "adamw", false, 0, 5e-6}, {"adam", "adam", false, 0, 5e-6}, {"sgd", "sgd", false, 0, 5e-6},
        {"sgd-nesterov", "sgd", true, 0, 5e-6}, {"adagrad", "adagrad", false, 0, 5e-6}, {"lion", "lion", false, 0, 5e-6},
        {"muon", "muon", false, LLM_MUON_ORIGINAL, 2e-5}, {"muon-plain", "muon", true, LLM_MUON_ORIGINAL, 2e-5},
        {"muon-match", "muon", false, LLM_MUON_MATCH_RMS, 2e-5},
    };
    (void)state;
    FILE *f = fopen("tests/golden/train/optim.tsv", "r");
    char line[200], name[32];
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        const struct variant *v = &variants[i];
        const struct llm_optim *o = llm_optim_find(v->optim);
        struct three a;
        double worst = 0;
        make(&a, o);
        for (int step = 0; step < STEPS; step++) {
            struct llm_update u = update_of(&a, o, step);
            u.step.nesterov = u.step.nesterov != v->turn_nesterov;
            u.muon_scale = v->scale;
            gradients(&a, step);
            update(&a, &u);
            assert_true(a.g[0][3] == 0 && a.g[1][3] == 0 && a.g[2][3] == 0);
        }
        for (int j = 0; j < MATRIX + VECTOR + TALL; j++) {
            int k, at;
            double want;
            assert_int_equal(fscanf(f, "%31s %d %d %lf", name, &k, &at, &want), 4);
            assert_string_equal(name, v->name);
            worst = worse(worst, fabs((double)a.w[k][at] - want) / fmax(fabs(want), 1));
        }
        print_message("  %s: off by %.1e\n", v->name, worst);
        assert_true(worst <= v->tolerance);
    }
    assert_int_equal(fscanf(f, "%31s", name), EOF);
    fclose(f);
}

/* What five steps make of singular values: a diagonal of norm 1 stays one, wide or tall, and singular vectors stay. */
static void test_newton_schulz(void **state)
{
    static const double pairs[][2] = {{1, .696436}, {.5, .765439}, {.1, .712120}, {.01, .698917}, {.001, .470544}};
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        for (int tall = 0; tall < 2; tall++) {
            /* Q·diag(s, sqrt(1 - s²)) in two rows or columns of three, Q a turn by .3; its size does not matter */
            double s = pairs[i][0], rest = sqrt(1 - s * s), c = cos(.3), d = sin(.3), u = c, v = d;
            double m[2][3] = {{7 * c * s, -7 * d * rest, 0}, {7 * d * s, 7 * c * rest, 0}};
            float g[6], work[40];
            struct llm_err e;
            for (int r = 0; r < 2; r++) {
                for (int k = 0; k < 3; k++) g[tall ? k * 2 + r : r * 3 + k] = (float)m[r][k];
            }
            assert_int_equal(llm_newton_schulz(g, tall ? 3 : 2, tall ? 2 : 3, LLM_COMPUTE_F32, work, &e), 0);
            /* the first column is s' times the first left singular vector */
            double first = (double)g[0], second = (double)g[tall ? 1 : 3];
            assert_true(fabs(first * u + second * v - pairs[i][1]) < 2e-5);
            assert_true(fabs(second * u - first * v) < 2e-5);
        }
    }
    float zero[6] = {0}, work[40];
    struct llm_err e;
    assert_int_equal(llm_newton_schulz(zero, 2, 3, LLM_COMPUTE_BF16, work, &e), 0);
    for (int i = 0; i < 6; i++) assert_true(zero[i] == 0);
}

/* A matrix that is two, one below the other, is moved as the two would be. Products in BF16. */
static void test_muon_parts(void **state)
{
    (void)state;
    const struct llm_optim *muon = llm_optim_find("muon");
    struct three a, b;
    struct llm_update u;
    struct llm_err e;
    make(&a, muon);
    make(&b, muon);
    u = update_of(&a, muon, 0);
    u.compute = LLM_COMPUTE_BF16;
    gradients(&a, 5);
    gradients(&b, 5);
    a.p[2].parts[0] = 2; /* and the other 4 */
    assert_int_equal(llm_params_update(&a.t[2], 1, &u, &e), 0);
    for (int part = 0; part < 2; part++) { /* rows 0-1, then 2-5 */
        struct llm_param p = b.p[2];
        struct llm_trainable t = b.t[2];
        p.shape[0] = part ? 4 : 2;
        p.master += part * 8;
        p.grad += part * 8;
        t.m += part * 8;
        t.p = &p;
        u.work = b.work;
        assert_int_equal(llm_params_update(&t, 1, &u, &e), 0);
    }
    assert_memory_equal(a.w[2], b.w[2], sizeof a.w[2]);
    assert_memory_equal(a.m[2], b.m[2], sizeof a.m[2]);
}

/* The averages follow the weights; a parameter with a rate of its own moves by it and decays as the others do. */
static void test_ema_and_scale(void **state)
{
    (void)state;
    const struct llm_optim *o = llm_optim_find("adamw");
    struct three a, b;
    float average[MATRIX], want[MATRIX];
    make(&a, o);
    make(&b, o);
    a.t[0].ema = average;
    memcpy(average, a.w[0], sizeof average);
    memcpy(want, average, sizeof want);
    for (int step = 0; step < 5; step++) {
        struct llm_update u = update_of(&a, o, step);
        u.ema = .75;
        gradients(&a, step);
        update(&a, &u);
        for (int i = 0; i < MATRIX; i++) want[i] = .75F * want[i] + .25F * a.w[0][i];
    }
    for (int i = 0; i < MATRIX; i++) assert_true(fabsf(average[i] - want[i]) < 1e-6F);
    struct llm_update u = update_of(&b, o, 0), double_rate = u;
    make(&a, o);
    gradients(&a, 0);
    gradients(&b, 0);
    a.t[0].lr_scale = 2;
    double_rate.step.lr *= 2;
    double_rate.step.weight_decay /= 2;
    update(&a, &u);
    update(&b, &double_rate);
    assert_memory_equal(a.w[0], b.w[0], sizeof a.w[0]);
    assert_true(memcmp(a.w[1], b.w[1], sizeof a.w[1]) != 0);
}

/* Adam's first step is -lr·sign(g); AdamW with no gradient multiplies by 1 - lr·wd, and leaves alone what does not decay. */
static void test_closed(void **state)
{
    (void)state;
    struct three a, before;
    const struct llm_optim *adam = llm_optim_find("adam"), *adamw = llm_optim_find("adamw"), *lion = llm_optim_find("lion");
    struct llm_update u = update_of(&a, adam, 0);
    u.step.eps = u.step.weight_decay = 0;
    make(&a, adam);
    before = a;
    gradients(&a, 1);
    gradients(&before, 1);
    update(&a, &u);
    for (int i = 0; i < MATRIX; i++) assert_true(fabsf(a.w[0][i] - (before.w[0][i] - .01F * copysignf(1, before.g[0][i]))) < 1e-6F);
    make(&a, adamw);
    u = update_of(&a, adamw, 0);
    update(&a, &u);
    for (int i = 0; i < MATRIX; i++) assert_true(fabsf(a.w[0][i] - before.w[0][i] * .999F) < 1e-7F);
    assert_memory_equal(a.w[1], before.w[1], sizeof a.w[1]);
    make(&a, lion); /* where there is no gradient there is no sign */
    u = update_of(&a, lion, 0);
    update(&a, &u);
    assert_memory_equal(a.w[1], before.w[1], sizeof a.w[1]);
    assert_null(llm_optim_find("lamb"));
}

/* Running statistics go a tenth of the way to the mean over the passes, have no part in the norm, and their sums begin again. */
static void test_running(void **state)
{
    (void)state;
    struct three a;
    const struct llm_param *bad;
    make(&a, llm_optim_find("adamw"));
    struct llm_update u = update_of(&a, llm_optim_find("adamw"), 0);
    u.passes = 2;
    a.p[1].running = true;
    for (int i = 0; i < VECTOR; i++) {
        a.w[1][i] = 1;
        a.g[1][i] = (float)(2 * i); /* of both passes */
    }
    assert_true(llm_grad_norm(a.t, N, &bad) == 0);
    update(&a, &u);
    for (int i = 0; i < VECTOR; i++) assert_true(fabs((double)a.w[1][i] - (.9 + .1 * i)) < 1e-6 && a.g[1][i] == 0);
}

/* Rows that have a place are added and become zero, the others are not looked at, and then none has one. */
static void test_lookup_places(struct three *a, float *lookup)
{
    struct llm_param *p = &a->p[0];
    int64_t rows = p->shape[0], cols = llm_param_count(p) / rows;
    int32_t *place = malloc((size_t)rows * sizeof *place);
    for (int64_t i = 0; i < rows * cols; i++) {
        p->grad[i] = 1;
        lookup[i] = (float)(2 + i / cols);
    }
    for (int64_t r = 0; r < rows; r++) place[r] = r == 1 ? 1 : r == rows - 1 ? 0 : -1;
    p->lookup_place = place;
    p->lookup_rows = 2;
    llm_grad_join(p);
    for (int64_t i = 0; i < rows * cols; i++) {
        int64_t row = i / cols;
        assert_true(p->grad[i] == (row == 1 ? 4 : row == rows - 1 ? 3 : 1));
        assert_true(lookup[i] == (row < 2 ? 0 : (float)(2 + row)));
    }
    for (int64_t r = 0; r < rows; r++) assert_int_equal(place[r], -1);
    assert_int_equal(p->lookup_rows, 0);
    p->lookup_place = NULL;
    free(place);
}

static void test_norm(void **state)
{
    (void)state;
    struct three a;
    const struct llm_param *bad;
    double want = 0;
    float lookup[MOST];
    make(&a, llm_optim_find("sgd"));
    gradients(&a, 2);
    for (int k = 0; k < N; k++) {
        for (int i = 0; i < size_of(k); i++) want += (double)a.g[k][i] * (double)a.g[k][i];
    }
    assert_true(fabs(llm_grad_norm(a.t, N, &bad) / sqrt(want) - 1) < 1e-6);
    assert_null(bad);
    /* the lookup's gradient of a tied embedding joins the head's */
    for (int i = 0; i < MATRIX; i++) lookup[i] = -a.g[0][i];
    a.p[0].grad_lookup = lookup;
    want = 0;
    for (int k = 1; k < N; k++) {
        for (int i = 0; i < size_of(k); i++) want += (double)a.g[k][i] * (double)a.g[k][i];
    }
    llm_grad_join(&a.p[0]);
    assert_true(fabs(llm_grad_norm(a.t, N, &bad) / sqrt(want) - 1) < 1e-6);
    assert_true(lookup[3] == 0);
    test_lookup_places(&a, lookup);
    a.p[0].grad_lookup = NULL;
    a.g[1][4] = INFINITY;
    assert_false(isfinite(llm_grad_norm(a.t, N, &bad)));
    assert_ptr_equal(bad, &a.p[1]);
    a.g[0][4] = NAN;
    assert_false(isfinite(llm_grad_norm(a.t, N, &bad)));
    assert_ptr_equal(bad, &a.p[0]);
}

static void test_schedules(void **state)
{
    (void)state;
    const struct llm_schedule *cosine = llm_schedule_find("cosine"), *linear = llm_schedule_find("linear"), *constant = llm_schedule_find("constant"),
                              *wsd = llm_schedule_find("wsd");
    struct llm_schedule_options o = {.steps = 5000, .warmup = 100, .lr = 1e-3, .min_lr = 1e-4, .decay_fraction = .2};
    near(llm_schedule_lr(cosine, 0, &o), 1e-3 / 101, 1e-9, 0); /* 9.901e-6 */
    near(llm_schedule_lr(cosine, 99, &o), 1e-3 * 100 / 101, 1e-9, 0);
    near(llm_schedule_lr(cosine, 100, &o), 1e-3, 1e-9, 0);
    near(llm_schedule_lr(cosine, 2550, &o), 5.5e-4, 1e-9, 0);
    near(llm_schedule_lr(cosine, 5000, &o), 1e-4, 1e-9, 0);
    near(llm_schedule_lr(cosine, 9000, &o), 1e-4, 1e-9, 0);
    near(llm_schedule_lr(linear, 1325, &o), 7.75e-4, 1e-9, 0);
    near(llm_schedule_lr(constant, 4999, &o), 1e-3, 1e-9, 0);
    near(llm_schedule_lr(wsd, 50, &o), 1e-3 * 51 / 101, 1e-9, 0);
    near(llm_schedule_lr(wsd, 100, &o), 1e-3, 1e-9, 0);
    near(llm_schedule_lr(wsd, 4000, &o), 1e-3, 1e-9, 0);
    near(llm_schedule_lr(wsd, 4250, &o), 1e-4 + .75 * 9e-4, 1e-9, 0);
    near(llm_schedule_lr(wsd, 5000, &o), 1e-4, 1e-9, 0);
    o.decay_style = LLM_DECAY_COSINE;
    near(llm_schedule_lr(wsd, 4500, &o), 5.5e-4, 1e-9, 0);
    near(llm_schedule_lr(wsd, 4250, &o), 1e-4 + .5 * (1 + sqrt(.5)) * 9e-4, 1e-9, 0);
    o.decay_style = LLM_DECAY_MINUS_SQRT;
    near(llm_schedule_lr(wsd, 4250, &o), 5.5e-4, 1e-9, 0);
    o.decay_fraction = 0; /* never */
    near(llm_schedule_lr(wsd, 5000, &o), 1e-3, 1e-9, 0);
    o.steps = 1;
    o.warmup = 0;
    near(llm_schedule_lr(cosine, 0, &o), 1e-3, 1e-9, 0);
    o.steps = o.warmup = 5;
    near(llm_schedule_lr(cosine, 5, &o), 1e-3, 1e-9, 0); /* nothing but warm-up */
    assert_null(llm_schedule_find("step"));
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_torch), cmocka_unit_test(test_closed), cmocka_unit_test(test_norm),
                                       cmocka_unit_test(test_running),
                                       cmocka_unit_test(test_newton_schulz), cmocka_unit_test(test_muon_parts),
                                       cmocka_unit_test(test_ema_and_scale), cmocka_unit_test(test_schedules)};
    if (llm_pool_start(0, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
