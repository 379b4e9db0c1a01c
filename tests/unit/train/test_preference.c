/* Losses over pairs against PyTorch (tests/golden/preference.tsv, made by tests/oracle/preference.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "train/preference.h"

static int kind_of(const char *name)
{
    static const char *const words[] = {"sigmoid", "ipo", "hinge", "robust", "simpo", "orpo"};
    for (int i = 0; i < 6; i++) {
        if (strcmp(words[i], name) == 0) return i;
    }
    fail_msg("unknown loss %s", name);
    return 0;
}

static void assert_near(double got, double want, int line, const char *what)
{
    if (!(fabs(got - want) <= 1e-6 * fmax(1, fabs(want)))) fail_msg("line %d: %s: expected %.12g, found %.12g", line, what, want, got);
}

static void test_golden(void **state)
{
    FILE *f = fopen("tests/golden/preference.tsv", "r");
    char text[1000], name[20];
    int line = 1, rows = 0;
    (void)state;
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof text, f));
    while (fgets(text, sizeof text, f)) {
        struct llm_preference o = {0};
        struct llm_preference_pair p;
        double loss, slope[2];
        line++;
        assert_int_equal(sscanf(text, "%19s %lf %lf %lf %lf %lf %lf %lf %ld %ld %lf %lf %lf", name, &o.beta, &o.label_smoothing, &o.target_margin,
                                &p.policy[0], &p.policy[1], &p.reference[0], &p.reference[1], &p.n[0], &p.n[1], &loss, &slope[0], &slope[1]), 13);
        o.kind = (enum llm_preference_kind)kind_of(name);
        const struct llm_preference_loss got = llm_preference_loss(&o, &p);
        assert_near(got.loss, loss, line, "loss");
        assert_near(got.slope[0], slope[0], line, "slope of the chosen reply");
        assert_near(got.slope[1], slope[1], line, "slope of the rejected reply");
        rows++;
    }
    fclose(f);
    assert_true(rows > 100);
}

static void test_kto(void **state)
{
    FILE *f = fopen("tests/golden/kto.tsv", "r");
    char text[1000];
    int line = 1;
    (void)state;
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof text, f));
    while (fgets(text, sizeof text, f)) {
        double beta, weight, ratio, kl, loss, slope, found;
        int label;
        line++;
        assert_int_equal(sscanf(text, "%lf %lf %d %lf %lf %lf %lf", &beta, &weight, &label, &ratio, &kl, &loss, &slope), 7);
        assert_near(llm_kto_loss(beta, weight, label, ratio, kl, &found), loss, line, "loss");
        assert_near(found, slope, line, "slope");
    }
    fclose(f);
    assert_true(line > 100);
}

static void test_first(void **state)
{
    const struct llm_preference o = {.kind = LLM_PREFERENCE_SIGMOID, .beta = .1};
    const struct llm_preference_pair p = {.policy = {-7, -9}, .reference = {-7, -9}, .n = {3, 4}};
    (void)state;
    assert_true(llm_preference_loss(&o, &p).loss == log(2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_kto), cmocka_unit_test(test_first)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
