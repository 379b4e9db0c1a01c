/* Linked into every unit test: TEST_FILTER='*pattern*' runs only the tests whose names match (make check FILTER=…). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

__attribute__((constructor)) static void choose_tests(void)
{
    const char *pattern = getenv("TEST_FILTER");
    if (pattern && *pattern) cmocka_set_test_filter(pattern);
}
