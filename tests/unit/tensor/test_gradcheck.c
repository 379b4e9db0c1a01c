/* Every op's rows: forward against the formula in double, gradients against its central differences. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include "cpu/pool.h"
#include "tensor/gradcheck.h"

static int64_t count_elements(const struct llm_gradcheck *g)
{
    int64_t n = 0;
    for (int j = 0; j < LLM_GRADCHECK_INPUTS; j++) n += g->in[j].rows * g->in[j].cols;
    for (int j = 0; j < LLM_GRADCHECK_PARAMS; j++) n += g->param[j].rows * g->param[j].cols;
    return n;
}

/* Three draws, or one where it has a thousand elements: differences cost two formulas for each. */
static void check_row(void **state)
{
    struct llm_err e = {0};
    struct llm_gradcheck_result r;
    uint64_t draws = count_elements(*state) > 1000 ? 1 : 3;
    for (uint64_t seed = 1; seed <= draws; seed++) {
        if (llm_gradcheck_run(*state, seed, &r, &e) < 0) fail_msg("seed %d: %s", (int)seed, e.text);
    }
}

/* The check itself can fail: a formula that is wrong by one part in a thousand is found. */
static void wrong_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    llm_gradcheck_softmax[0].formula(g, in, p, y);
    for (int64_t i = 0; i < g->out.rows * g->out.cols; i++) y[i] += 1e-3 * y[i] * y[i];
}

static void wrong_slope(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    llm_gradcheck_softmax[0].formula(g, in, p, y);
    y[3] += in[0][3];
}

static void check_refuses(void **state)
{
    struct llm_err e = {0};
    struct llm_gradcheck_result r;
    struct llm_gradcheck wrong = llm_gradcheck_softmax[0];
    (void)state;
    wrong.formula = wrong_formula;
    assert_int_equal(llm_gradcheck_run(&wrong, 1, &r, &e), -1);
    wrong.formula = wrong_slope;
    wrong.tolerance = 1e9;
    assert_int_equal(llm_gradcheck_run(&wrong, 1, &r, &e), 0);
    assert_true(r.worst > 0.1);
}

static size_t count_rows(void)
{
    size_t n = 0;
    for (const struct llm_gradcheck *const *op = llm_gradchecks; *op; op++) {
        for (const struct llm_gradcheck *row = *op; row->name; row++) n++;
    }
    return n;
}

int main(void)
{
    struct llm_err e = {0};
    size_t n = 0, rows = count_rows();
    struct CMUnitTest *tests = calloc(rows + 1, sizeof *tests);
    if (!tests || llm_pool_start(2, &e) < 0) return tests ? llm_report(&e) : 1;
    tests[n++] = (struct CMUnitTest){.name = "a wrong formula is found", .test_func = check_refuses};
    for (const struct llm_gradcheck *const *op = llm_gradchecks; *op; op++) {
        for (const struct llm_gradcheck *row = *op; row->name; row++) {
            tests[n++] = (struct CMUnitTest){.name = row->name, .test_func = check_row, .initial_state = (void *)(uintptr_t)row};
        }
    }
    int failed = _cmocka_run_group_tests("gradcheck", tests, n, NULL, NULL);
    free(tests);
    return failed;
}
