/* Student's t distribution. */
#ifndef LLM_BASE_STUDENT_H
#define LLM_BASE_STUDENT_H

#include <stddef.h>

/* The .975 quantile with `freedom` > 0 degrees of freedom: so many standard errors from a mean an interval of 95% reaches. 1.96 in the limit. */
double llm_student975(size_t freedom);

#endif
