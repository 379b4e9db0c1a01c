/* Learning rates by width (Tensor Programs V, table 8), and widened configurations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>
#include "model/config/config.h"
#include "train/mup.h"

static void test_rates(void **state)
{
    static const struct { const char *optim; double vector, table, hidden, head; } rows[] = {
        {"adamw", 1, 1, .25, 1}, {"adam", 1, 1, .25, 1}, {"lion", 1, 1, .25, 1}, {"adagrad", 1, 1, .25, 1}, {"sgd", 4, 4, 1, 4}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct llm_optim *o = llm_optim_find(rows[i].optim);
        const double want[] = {[LLM_ROLE_VECTOR] = rows[i].vector, [LLM_ROLE_TABLE] = rows[i].table, [LLM_ROLE_HIDDEN] = rows[i].hidden,
                               [LLM_ROLE_HEAD] = rows[i].head};
        for (int role = LLM_ROLE_VECTOR; role <= LLM_ROLE_HEAD; role++) {
            const struct llm_param p = {.role = (enum llm_role)role};
            assert_true(llm_mup_rate(o, &p, 4, LLM_MUON_ORIGINAL) == want[role]);
        }
    }
    const struct llm_param hidden = {.role = LLM_ROLE_HIDDEN};
    assert_true(llm_mup_rate(llm_optim_find("muon"), &hidden, 4, LLM_MUON_ORIGINAL) == 1);
    assert_true(llm_mup_rate(llm_optim_find("muon"), &hidden, 4, LLM_MUON_MATCH_RMS) == .5);
}

static void test_config(void **state)
{
    struct llm_config c, wide;
    struct llm_err e;
    const char *const sets[] = {"n_embd=64", "n_head=4", "vocab_size=65"};
    (void)state;
    assert_int_equal(llm_config_load(&c, "nano", sets, 3, &e), 0);
    wide = c;
    assert_int_equal(llm_config_widen(&wide, 256, &e), 0);
    assert_true(wide.hidden_size == 256 && wide.num_attention_heads == 16 && wide.num_key_value_heads == 16 && wide.head_dim == 16
                && wide.intermediate_size == 1024);
    llm_config_mup(&wide, 64, 0);
    assert_true(wide.logit_scale == .25);
    assert_true(llm_config_attention_scale(&wide, 0) == llm_config_attention_scale(&c, 0)); /* heads are as wide */
    wide = c;
    llm_config_mup(&wide, 64, 4); /* 1/d: sqrt(4)/16 */
    assert_true(wide.logit_scale == 1 && fabs(llm_config_attention_scale(&wide, 0) - 2.0 / 16) < 1e-15);
    assert_int_equal(llm_config_widen(&c, 72, &e), -1);
    assert_int_equal(e.status, LLM_EX_USAGE);
    assert_int_equal(llm_config_widen(&c, 0, &e), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rates), cmocka_unit_test(test_config)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
