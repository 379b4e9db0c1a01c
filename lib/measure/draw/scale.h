/* Scales of pictures: which numbers there are between the two ends of an axis or of a colour bar, and the ticks on it. */
#ifndef LLM_MEASURE_DRAW_SCALE_H
#define LLM_MEASURE_DRAW_SCALE_H

#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"

/* AUTO: logarithmic if no number is negative and the largest is more than 20 times the median of those above 0, else linear. RATIO: logarithmic
 * around 1, with the same factor to both sides. */
enum llm_scaling { LLM_SCALE_AUTO, LLM_SCALE_LINEAR, LLM_SCALE_LOG, LLM_SCALE_RATIO };
enum { LLM_SCALE_TICKS = 12 };
struct llm_scale {
    double low, high;      /* the ends, low ≤ high; equal if there is only one number */
    enum llm_scaling kind; /* never AUTO */
    bool clipped;          /* logarithmic: there are numbers below `low`, 0 among them */
};
/* Chooses the ends from n numbers, of which those that are not finite do not count. Logarithmic scales begin at the number that one in fifty is
 * below, at most six decades below the largest. Fails (65) if no number is finite, or if a scale that must be logarithmic has a negative one or none
 * above 0. */
int llm_scale_init(struct llm_scale *s, enum llm_scaling kind, const float *v, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Where v stands between the ends: 0 to 1 (outside: the nearer end). */
double llm_scale_at(const struct llm_scale *s, double v);
/* Round numbers between the ends, ascending; how many. */
int llm_scale_ticks(const struct llm_scale *s, double ticks[LLM_SCALE_TICKS]);
/* A round step such that n steps cover `span`: 1, 2 or 5 times a power of 10. */
double llm_scale_step(double span, int n);
/* "0.25", "1e-5", "1200". */
void llm_scale_number(double v, char *out, size_t room);

#endif
