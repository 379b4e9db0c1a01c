/* Slices of parameters: which elements each has, in which order, of matrices cut by rows and by columns, of fusions and of vectors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "tensor/slices.h"

enum { MOST = 64 };
static const struct { int n_dims; int64_t rows, cols, fused[LLM_MAX_PARTS]; bool by_columns; int n; } cases[] = {
    {2, 12, 5, {0}, false, 4}, {2, 5, 12, {0}, true, 3}, {2, 24, 2, {12, 6, 6}, false, 6}, {1, 8, 0, {4, 4}, false, 2}, {1, 6, 0, {0}, false, 6},
    {2, 16, 3, {8, 8}, false, 8}, {2, 28, 2, {8, 8, 4, 4, 4}, false, 4}};

/* Row and column of an element of the whole, and the slice that has it. */
static int slice_of(size_t k, int64_t at)
{
    const int64_t cols = cases[k].n_dims > 1 ? cases[k].cols : 1;
    int64_t row = at / cols, rows = cases[k].rows;
    if (cases[k].by_columns) return (int)(at % cols / (cols / cases[k].n));
    for (int m = 0; m < LLM_MAX_PARTS && cases[k].fused[m] > 0; m++) {
        rows = cases[k].fused[m];
        if (row < rows) break;
        row -= rows;
    }
    return (int)(row / (rows / cases[k].n));
}

static void test_elements(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct llm_param whole = {.n_dims = cases[k].n_dims, .shape = {cases[k].rows, cases[k].cols}}, of[8];
        struct llm_slices s = {.by_columns = cases[k].by_columns, .n = cases[k].n, .end = cases[k].n, .of = of, .whole = &whole};
        const int64_t count = llm_param_count(&whole), each = count / s.n;
        float from[MOST], slice[MOST], back[MOST];
        memcpy(s.fused, cases[k].fused, sizeof s.fused);
        for (int64_t i = 0; i < count; i++) from[i] = (float)i;
        for (int j = 0; j < s.n; j++) {
            of[j] = whole;
            of[j].shape[s.by_columns] /= s.n;
            llm_slices_take(&s, j, from, slice);
            llm_slices_put(&s, j, slice, back);
            int64_t before = 0;
            for (int64_t i = 0; i < count; i++) {
                assert_int_equal(llm_slices_before(&s, j, i), before);
                if (slice_of(k, i) == j) assert_true(slice[before++] == (float)i); /* in the order of the whole */
            }
            assert_int_equal(before, each);
            assert_int_equal(llm_slices_before(&s, j, count), each);
        }
        assert_memory_equal(from, back, (size_t)count * sizeof *from);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_elements)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
