/* The comparisons of tests/unit/near.h refuse what they should refuse. */
#include "tests/unit/near.h"

static void bounds(void **state)
{
    (void)state;
    assert_true(is_near(1, 1, 0, 0));
    assert_true(is_near(-101, -100, .01, 0));
    assert_false(is_near(-101.5, -100, .01, 0));
    assert_true(is_near(1e-7, 0, 1, 1e-6));
    assert_false(is_near(2e-6, 0, 1, 1e-6));
    assert_false(is_near(1, -1, .5, 0));
}

static void not_finite(void **state)
{
    (void)state;
    assert_false(is_near((double)NAN, 0, 1, 1));
    assert_false(is_near(0, (double)NAN, 1, 1));
    assert_false(is_near((double)NAN, (double)NAN, 1, 1));
    assert_false(is_near(1, (double)INFINITY, 1, 1));
    assert_false(is_near((double)-INFINITY, (double)INFINITY, 1, 1));
    assert_true(is_near((double)INFINITY, (double)INFINITY, 0, 0));
    assert_true(isinf(worse(0, (double)NAN)) && isinf(worse(worse(0, (double)NAN), 1)));
    assert_true(worse(1, 2) == 2 && worse(2, 1) == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bounds), cmocka_unit_test(not_finite)};
    return cmocka_run_group_tests_name("near", tests, NULL, NULL);
}
