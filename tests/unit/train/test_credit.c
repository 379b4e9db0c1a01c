/* Advantages of tokens, losses of values and coefficients of a KL against formulas in double (tests/golden/credit.tsv, made by
 * tests/oracle/credit.py). Results are single precision: 1e-6 of the number, or of 1. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "tests/unit/near.h"
#include "train/credit.h"

enum { MAX = 32, MAX_RECORDS = 16, IDS = 2 };

/* Fails unless the numbers differ by at most 1e-6 of the expected one, or of 1. */
static void same(double found, double wanted, int line, const char *what)
{
    char text[64];
    snprintf(text, sizeof text, "line %d: %s", line, what);
    near_what(text, found, wanted, fabs(wanted) > 1 ? 1e-6 : 0, fabs(wanted) > 1 ? 0 : 1e-6);
}

static int leave_one_out(const struct llm_train_options *o, const double *reward, int64_t n, double mean, double *advantage, double *scale,
                         struct llm_err *e)
{
    (void)o, (void)mean, (void)e;
    llm_advantage_leave_one_out(reward, n, advantage);
    *scale = 1;
    return 0;
}

static int group(const struct llm_train_options *o, const double *reward, int64_t n, double mean, double *advantage, double *scale,
                 struct llm_err *e)
{
    (void)o, (void)mean, (void)e;
    *scale = llm_advantage_group(reward, n, true, advantage);
    return 0;
}

struct wanted { double advantage[MAX_RECORDS][MAX], target[MAX_RECORDS][MAX]; };

/* Reads a completion into a record, after a prompt of two tokens. */
static void read_completion(FILE *f, struct llm_records *r, struct wanted *w, int *line)
{
    float column[6][MAX] = {{0}}, row[4] = {0};
    int32_t ids[MAX] = {0};
    uint8_t mask[MAX] = {0};
    char text[1000];
    int n, group, at = (int)llm_records_count(r);
    struct llm_err e;
    ++*line;
    assert_non_null(fgets(text, sizeof text, f));
    assert_int_equal(sscanf(text, "completion %d %d", &n, &group), 2);
    for (int t = IDS; t < n + IDS; t++) {
        int counts;
        double v[4];
        ++*line;
        assert_non_null(fgets(text, sizeof text, f));
        assert_int_equal(sscanf(text, "token %d %lf %lf %lf %lf %lf %lf", &counts, &v[0], &v[1], &v[2], &v[3], &w->advantage[at][t],
                                &w->target[at][t]), 7);
        mask[t] = (uint8_t)counts;
        column[1][t] = (float)v[0];
        column[3][t] = (float)v[1];
        column[4][t] = (float)v[2];
        column[2][t] = (float)v[3];
    }
    row[3] = (float)group;
    const struct llm_record record = {.ids = ids, .mask = mask, .n = n + IDS, .second = IDS,
                                      .column = {column[0], column[1], &row[0], &row[1], &row[2], column[2], column[3], column[4], column[5],
                                                 &row[3]}};
    assert_int_equal(llm_records_add(r, &record, &e), 0);
}

static void check_batch(FILE *f, const char *text, int *line)
{
    static struct wanted w;
    struct llm_credit c = {0};
    struct llm_credit_report report;
    struct llm_err e;
    char how[10], estimator[10];
    int n, white, from = *line;
    double kl, reward;
    assert_int_equal(sscanf(text, "batch %9s %d %lf %lf %d %lf %9s %lf %lf", how, &n, &c.gamma, &c.lambda, &white, &c.kl_coef, estimator, &kl,
                            &reward), 9);
    c.advantages = strcmp(how, "rloo") == 0 ? leave_one_out : strcmp(how, "grpo") == 0 ? group : NULL;
    c.whiten = white;
    c.kl = estimator[1] == '1' ? LLM_KL_K1 : estimator[1] == '2' ? LLM_KL_K2 : LLM_KL_K3;
    struct llm_records *r = llm_records_create(llm_rollout_columns, &e);
    assert_non_null(r);
    for (int i = 0; i < n; i++) read_completion(f, r, &w, line);
    assert_int_equal(llm_credit_assign(r, &c, &report, &e), 0);
    same(report.kl, kl, from, "KL");
    same(report.reward, reward, from, "reward");
    for (int i = 0; i < n; i++) {
        const struct llm_record d = llm_records_at(r, i);
        for (int64_t t = d.second; t < d.n; t++) {
            same((double)d.column[LLM_ROLLOUT_ADVANTAGE][t], w.advantage[i][t], from, "advantage");
            same((double)d.column[LLM_ROLLOUT_RETURN][t], w.target[i][t], from, "return");
        }
    }
    llm_records_destroy(r);
}

static void test_golden(void **state)
{
    FILE *f = fopen("tests/golden/credit.tsv", "r");
    char text[1000];
    int batches = 0, values = 0, adapted = 0;
    (void)state;
    assert_non_null(f);
    for (int line = 1; fgets(text, sizeof text, f); line++) {
        double v[6];
        if (sscanf(text, "value %lf %lf %lf %lf %lf %lf", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5]) == 6) {
            struct llm_value_token t = llm_value_token(v[0], v[1], v[2], v[3]);
            same(t.loss, v[4], line, "loss");
            same(t.slope, v[5], line, "slope");
            values++;
        } else if (sscanf(text, "adapt %lf %lf %lf %lf %lf %lf", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5]) == 6) {
            same(llm_kl_adapt(v[0], v[1], v[2], v[3], (int64_t)v[4]), v[5], line, "coefficient");
            adapted++;
        } else {
            check_batch(f, text, &line);
            batches++;
        }
    }
    fclose(f);
    assert_true(batches > 40 && values == 8 && adapted == 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
