/* Comparisons of floating-point results with expected values. A NaN is near nothing, and an infinity only to itself. */
#ifndef LLM_TEST_NEAR_H
#define LLM_TEST_NEAR_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* Fails unless |found - expected| ≤ absolute + relative · |expected|. */
#define near(found, expected, relative, absolute) near_at(__FILE__, __LINE__, #found, found, expected, relative, absolute)
/* Says `what` instead of the expression. */
#define near_what(what, found, expected, relative, absolute) near_at(__FILE__, __LINE__, what, found, expected, relative, absolute)
/* Element by element, x [n] and y [n] in float. */
#define near_all(what, x, y, n, relative, absolute) near_all_at(__FILE__, __LINE__, what, x, y, n, relative, absolute)

static inline bool is_near(double found, double expected, double relative, double absolute)
{
    if (isinf(expected)) return found == expected; /* the bound would be infinite */
    return fabs(found - expected) <= absolute + relative * fabs(expected);
}

/* The larger of two errors; infinite if either is not a number, which fmax would overlook. */
static inline double worse(double worst, double error)
{
    return isnan(worst) || isnan(error) ? INFINITY : fmax(worst, error);
}

static inline void near_at(const char *file, int line, const char *what, double found, double expected, double relative, double absolute)
{
    if (is_near(found, expected, relative, absolute)) return;
    fail_msg("%s:%d: %s: expected %.17g within %g + %g · its size, found %.17g", file, line, what, expected, absolute, relative, found);
}

static inline void near_all_at(const char *file, int line, const char *what, const float *x, const float *y, size_t n, double relative,
                               double absolute)
{
    for (size_t i = 0; i < n; i++) {
        if (is_near((double)x[i], (double)y[i], relative, absolute)) continue;
        fail_msg("%s:%d: %s: element %zu of %zu: expected %.9g within %g + %g · its size, found %.9g", file, line, what, i, n, (double)y[i], absolute,
                 relative, (double)x[i]);
    }
}

#endif
