/* What objectives declare: options with one meaning for each name, columns that data must have, weights of tokens, models that are loaded once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cpu/pool.h"
#include "train/trainer.h"
#include "tests/unit/model_of.h"

enum { ROWS = 4, LENGTH = 16 };

static void test_options(void **state)
{
    const struct llm_objective_option *a;
    struct llm_train_options o;
    (void)state;
    llm_train_options_default(&o);
    for (int i = 0; (a = llm_objective_option_at(i)); i++) {
        assert_true(i < LLM_MAX_OBJECTIVE_OPTIONS);
        assert_false(llm_option_given(&o, a->name));
        for (int k = 0; llm_objectives[k]; k++) {
            const struct llm_objective_option *b = llm_objectives[k]->options;
            for (; b && b->name; b++) {
                if (strcmp(a->name, b->name) != 0) continue;
                assert_int_equal(a->type, b->type);
                assert_true(!a->choices == !b->choices && (!a->choices || strcmp(a->choices, b->choices) == 0));
            }
        }
    }
    assert_true(llm_option_real(&o, "mask-rate") == .15);
    assert_true(llm_option_real(&o, "mask_rate") == .15);
    llm_option_set_real(&o, "mask-rate", .25);
    assert_true(llm_option_real(&o, "mask-rate") == .25);
}

static struct llm_trainer make(void)
{
    struct llm_err e = {0};
    struct llm_train_options o;
    struct llm_train_data none = {0};
    struct llm_trainer t = {.step = 0};
    llm_train_options_default(&o);
    o.batch = ROWS;
    o.context = LENGTH;
    if (llm_trainer_init(&t, &o, model_of("{\"model_type\":\"llama\",\"hidden_size\":32,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
                                          "\"vocab_size\":50,\"intermediate_size\":64,\"max_position_embeddings\":64}"), &none, &e) < 0) {
        fail_msg("%s", e.text);
    }
    return t;
}

/* The gradient of Σ weight · loss / Σ weight over the trainer's rows. */
static double gradient(struct llm_trainer *t, float *out)
{
    struct llm_err e = {0};
    struct llm_rows all = llm_rows_part(&t->rows, 0, ROWS);
    double loss = 0;
    llm_trainer_forget(t);
    t->ctx.step = 0;
    t->ctx.first_row = 0;
    if (t->objective->run(&t->ctx, &t->task, &all, 1 / all.weight, t->token_loss, &e) < 0) fail_msg("%s", e.text);
    llm_backward(&t->ctx);
    assert_false(llm_ctx_failed(&t->ctx));
    llm_ctx_reset(&t->ctx);
    for (size_t i = 0; i < t->n_params; i++) {
        size_t n = (size_t)llm_param_count(t->params[i].p);
        llm_grad_join(t->params[i].p);
        for (size_t k = 0; k < n; k++) *out++ = t->params[i].p->grad[k];
    }
    for (int64_t i = 0; i < ROWS * LENGTH; i++) {
        loss += all.targets[i] < 0 ? 0 : (all.weighted ? (double)all.weights[i] : 1) * (double)t->token_loss[i];
    }
    return loss / all.weight;
}

/* A weight of 0 is a masked target, and weights of 1 are none; the same factor on all weights changes nothing. */
static void test_weights(void **state)
{
    struct llm_trainer t = make();
    struct llm_step_report r;
    struct llm_err e = {0};
    size_t n = 0;
    (void)state;
    if (llm_trainer_gradient(&t, &r, &e) != 0) fail_msg("%s", e.text);
    for (size_t i = 0; i < t.n_params; i++) n += (size_t)llm_param_count(t.params[i].p);
    float *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got);
    double loss = gradient(&t, want);
    t.rows.weighted = true;
    for (int64_t i = 0; i < ROWS * LENGTH; i++) t.rows.weights[i] = 1;
    assert_true(gradient(&t, got) == loss);
    assert_memory_equal(got, want, n * sizeof *want);
    for (int64_t i = 0; i < ROWS * LENGTH; i++) t.rows.weights[i] = i % 3 ? 4 : 0;
    double weighted = gradient(&t, got);
    t.rows.weighted = false;
    for (int64_t i = 0; i < ROWS * LENGTH; i += 3) t.rows.targets[i] = -1;
    assert_true(gradient(&t, want) == weighted);
    for (size_t i = 0; i < n; i++) assert_true(got[i] == want[i]);
    free(want);
    free(got);
    llm_trainer_release(&t);
}

static const struct llm_column columns[] = {{"advantages", LLM_PER_TOKEN, false}, {"margin", LLM_PER_ROW, true}, {NULL, LLM_PER_ROW, false}};

static void test_records(void **state)
{
    struct llm_err e = {0};
    struct llm_records *r = llm_records_create(columns, &e);
    const int32_t ids[] = {3, 4, 5};
    const uint8_t mask[] = {0, 1, 1};
    const float advantages[] = {0, .5f, -1}, margin = 2;
    char before[17], after[17];
    struct llm_record a = {.ids = ids, .mask = mask, .n = 3, .second = 3, .column = {advantages, &margin}};
    (void)state;
    assert_int_equal(llm_records_add(r, &a, &e), 0);
    llm_records_fingerprint(r, before);
    a.column[1] = NULL;
    a.n = 2;
    assert_int_equal(llm_records_add(r, &a, &e), 0);
    llm_records_fingerprint(r, after);
    assert_string_not_equal(before, after);
    assert_int_equal(llm_records_count(r), 2);
    struct llm_record first = llm_records_at(r, 0), second = llm_records_at(r, 1);
    assert_true(first.n == 3 && first.ids[2] == 5 && first.mask[0] == 0 && first.column[0][2] == -1 && first.column[1][0] == 2);
    assert_true(second.n == 2 && second.ids[0] == 3 && second.column[0][1] == .5f && !second.column[1]);
    a.column[0] = NULL;
    assert_int_equal(llm_records_add(r, &a, &e), -1);
    assert_string_equal(e.text, "column 'advantages': expected numbers, found none");
    a.n = 0;
    assert_int_equal(llm_records_add(r, &a, &e), -1);
    llm_records_destroy(r);
}

static void test_columns_of_rows(void **state)
{
    struct llm_err e = {0};
    struct llm_rows r;
    (void)state;
    assert_int_equal(llm_rows_init(&r, 3, 5, &e), 0);
    assert_int_equal(llm_rows_add_columns(&r, columns, 0, &e), 0);
    llm_rows_column(&r, "advantages")[7] = 1;
    llm_rows_column(&r, "margin")[2] = 4;
    struct llm_rows part = llm_rows_part(&r, 1, 2);
    assert_true(llm_rows_column(&part, "advantages")[2] == 1 && llm_rows_column(&part, "margin")[1] == 4);
    assert_null(llm_rows_column(&r, "labels"));
    llm_rows_release(&r);
}

static void test_models(void **state)
{
    struct llm_trainer t = make();
    struct llm_err e = {0};
    char path[] = "/tmp/test_objective_XXXXXX", link_path[64];
    int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    close(fd);
    unlink(path);
    if (llm_trainer_save(&t, path, LLM_SAVE_MODEL, &e) < 0) fail_msg("%s", e.text);
    snprintf(link_path, sizeof link_path, "%s.link", path);
    assert_int_equal(symlink(path, link_path), 0);
    struct llm_model *a = llm_task_load(&t.task, "--teacher", path, &e), *b = llm_task_load(&t.task, "--reference", link_path, &e);
    if (!a) fail_msg("%s", e.text);
    assert_ptr_equal(a, b);
    assert_null(llm_task_load(&t.task, "--teacher", "/nonexistent", &e));
    assert_string_equal(e.text, "--teacher: /nonexistent: No such file or directory");
    t.model->config.vocab_size = 51;
    unlink(link_path);
    char copy[128];
    snprintf(copy, sizeof copy, "cp %s %s", path, link_path);
    assert_int_equal(system(copy), 0);
    assert_null(llm_task_load(&t.task, "--teacher", link_path, &e));
    assert_non_null(strstr(e.text, "expected a vocabulary of 51 tokens, found 50"));
    t.model->config.vocab_size = 50;
    unlink(link_path);
    unlink(path);
    llm_trainer_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_options), cmocka_unit_test(test_weights), cmocka_unit_test(test_records),
                                       cmocka_unit_test(test_columns_of_rows), cmocka_unit_test(test_models)};
    struct llm_err e;
    if (llm_pool_start(2, &e) < 0) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
