/* A small Mixtral with a strong auxiliary loss against transformers in double (tests/oracle/router_loss.py): of one row, each gradient agrees within
 * 2e-5 of its norm, however activations are recomputed, and so does the loss for an even load. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "cpu/pool.h"
#include "io/checkpoint.h"
#include "train/trainer.h"
#include "tests/unit/near.h"

#define GOLDEN "tests/golden/train/mixtral"

static struct llm_trainer make(int64_t checkpoint_every)
{
    struct llm_err e = {0};
    struct llm_train_options o;
    struct llm_train_data none = {0};
    struct llm_trainer t = {.step = 0};
    llm_train_options_default(&o);
    o.batch = 1;
    o.context = 48;
    o.precision = LLM_COMPUTE_F32;
    o.checkpoint_every = checkpoint_every;
    o.seed = 29;
    struct llm_model *m = llm_model_load(GOLDEN, &e);
    if (!m) fail_msg("%s", e.text);
    if (llm_trainer_init(&t, &o, m, &none, &e) < 0) fail_msg("%s", e.text);
    return t;
}

/* The distance to the golden's gradient, as a share of its norm. */
static double error_of(const struct llm_param *p, struct llm_checkpoint *golden)
{
    struct llm_err e;
    const struct llm_entry *entry = llm_header_find(llm_checkpoint_header(golden), p->name);
    int64_t n = llm_param_count(p);
    double sum = 0, norm = 0;
    if (!entry) fail_msg("%s", p->name);
    assert_int_equal(entry->bytes, (uint64_t)n * sizeof(float));
    float *want = malloc((size_t)n * sizeof *want);
    assert_non_null(want);
    if (llm_checkpoint_read(golden, entry, want, &e) < 0) fail_msg("%s", e.text);
    for (int64_t i = 0; i < n; i++) {
        sum += ((double)p->grad[i] - (double)want[i]) * ((double)p->grad[i] - (double)want[i]);
        norm += (double)want[i] * (double)want[i];
    }
    free(want);
    return sqrt(sum / norm);
}

static void check(int64_t checkpoint_every)
{
    struct llm_err e = {0};
    struct llm_step_report r = {.step = 0};
    struct llm_trainer t = make(checkpoint_every);
    struct llm_checkpoint *golden = llm_checkpoint_open(GOLDEN "/gradients.safetensors", &e);
    double worst = 0;
    if (!golden) fail_msg("%s", e.text);
    if (llm_trainer_gradient(&t, &r, &e) != 0) fail_msg("%s", e.text);
    for (size_t i = 0; i < t.n_params; i++) {
        double error = error_of(t.params[i].p, golden);
        if (!(error <= 2e-5)) print_message("  %s: off by %.1e of its norm\n", t.params[i].p->name, error);
        worst = worse(worst, error);
    }
    print_message("  gradients: off by %.1e of a norm\n", worst);
    assert_true(worst <= 2e-5);
    const struct llm_header *h = llm_checkpoint_header(golden);
    assert_true(fabs(r.loss / strtod(llm_header_meta(h, "loss"), NULL) - 1) <= 1e-6);
    assert_true(fabs(r.router_balance / strtod(llm_header_meta(h, "balance"), NULL) - 1) <= 1e-6);
    llm_checkpoint_close(golden);
    llm_trainer_release(&t);
}

static void test_gradients(void **state)
{
    (void)state;
    check(0);
}

static void test_recomputed(void **state)
{
    (void)state;
    check(1);
    check(2);
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients), cmocka_unit_test(test_recomputed)};
    if (llm_pool_start(1, &e) < 0) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
