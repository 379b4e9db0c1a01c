#include "base/student.h"

#include <math.h>

/* P(|T| < tan(angle) sqrt(freedom)): Abramowitz and Stegun 26.7.3, 26.7.4. */
static double within(double angle, size_t freedom)
{
    const double c = cos(angle), s = sin(angle);
    double term = freedom % 2 ? c : 1, sum = freedom == 1 ? 0 : term;
    for (size_t k = freedom % 2 ? 3 : 2; k < freedom; k += 2) sum += term *= c * c * (double)(k - 1) / (double)k;
    return freedom % 2 ? 2 / acos(-1) * (angle + s * sum) : s * sum;
}

double llm_student975(size_t freedom)
{
    double low = 0, high = acos(0);
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (within(middle, freedom) < .95) low = middle;
        else high = middle;
    }
    return tan(low) * sqrt((double)freedom);
}
