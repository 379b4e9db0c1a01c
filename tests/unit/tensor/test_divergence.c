/* Divergences against PyTorch (tests/golden/divergence.tsv, made by tests/oracle/distill.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include "tensor/divergence.h"

static void numbers(const char *text, double v[5])
{
    assert_int_equal(sscanf(text, "%lf,%lf,%lf,%lf,%lf", &v[0], &v[1], &v[2], &v[3], &v[4]), 5);
}

static void test_golden(void **state)
{
    FILE *f = fopen("tests/golden/divergence.tsv", "r");
    char line[2000], student[400], teacher[400], gradient[400];
    int rows = 0;
    (void)state;
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    while (fgets(line, sizeof line, f)) {
        struct llm_divergence o;
        double loss, v[3][5];
        float s[5], t[5], grad[5];
        assert_int_equal(sscanf(line, "%lf %lf %399s %399s %lf %399s", &o.beta, &o.temperature, student, teacher, &loss, gradient), 6);
        numbers(student, v[0]);
        numbers(teacher, v[1]);
        numbers(gradient, v[2]);
        for (int i = 0; i < 5; i++) {
            s[i] = (float)v[0][i];
            t[i] = (float)v[1][i];
        }
        double got = llm_divergence(&o, s, t, 5, 1, grad);
        if (!(fabs(got - loss) <= 1e-6 * fmax(1, fabs(loss)))) fail_msg("row %d: loss: expected %.9g, found %.9g", rows + 1, loss, got);
        for (int i = 0; i < 5; i++) {
            if (!(fabs((double)grad[i] - v[2][i]) <= 1e-6 * fmax(1, fabs(v[2][i])))) {
                fail_msg("row %d: gradient %d: expected %.9g, found %.9g", rows + 1, i, v[2][i], (double)grad[i]);
            }
        }
        assert_true(llm_divergence(&o, s, t, 5, 1, NULL) == got);
        rows++;
    }
    fclose(f);
    assert_int_equal(rows, 48);
}

/* Two of five tokens are known (tests/golden/divergence_top.tsv, by the same oracle). Log-probabilities were rounded to FP32, hence 2e-6. */
static void test_top(void **state)
{
    FILE *f = fopen("tests/golden/divergence_top.tsv", "r");
    char line[2000], student[400], gradient[400];
    int rows = 0;
    (void)state;
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    while (fgets(line, sizeof line, f)) {
        struct llm_divergence o = {.temperature = 1};
        double loss, tail, log_prob[2], v[2][5];
        float s[5], ids[2], log_probs[2], grad[5];
        assert_int_equal(sscanf(line, "%lf %399s %f,%f %lf,%lf %lf %lf %399s", &o.beta, student, &ids[0], &ids[1], &log_prob[0], &log_prob[1], &tail,
                                &loss, gradient), 9);
        numbers(student, v[0]);
        numbers(gradient, v[1]);
        for (int i = 0; i < 5; i++) s[i] = (float)v[0][i];
        for (int i = 0; i < 2; i++) log_probs[i] = (float)log_prob[i];
        const struct llm_top t = {2, ids, log_probs, tail};
        double got = llm_divergence_top(&o, s, &t, 5, 1, grad);
        if (!(fabs(got - loss) <= 2e-6 * fmax(1, fabs(loss)))) fail_msg("row %d: loss: expected %.9g, found %.9g", rows + 1, loss, got);
        for (int i = 0; i < 5; i++) {
            if (!(fabs((double)grad[i] - v[1][i]) <= 2e-6 * fmax(1, fabs(v[1][i])))) {
                fail_msg("row %d: gradient %d: expected %.9g, found %.9g", rows + 1, i, v[1][i], (double)grad[i]);
            }
        }
        assert_true(llm_divergence_top(&o, s, &t, 5, 1, NULL) == got);
        rows++;
    }
    fclose(f);
    assert_int_equal(rows, 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_top)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
