/* The table that --profile prints. */
#ifndef LLM_MEASURE_PROFILE_H
#define LLM_MEASURE_PROFILE_H

#include <stdbool.h>
#include "base/err.h"

/* Stops the profile (cpu/profile.h), measures this machine's peaks and writes a row for each kind of work to standard error, largest first: ops,
 * what no op accounts for ("elsewhere"), the whole ("all"), then parts, which are the same time from another side. The limit of a row is
 * arithmetic or memory, whichever would take longer at its peak; the share is that time by the row's seconds. JSON: an object a line. 0 or -1. */
int llm_profile_print(bool json, struct llm_err *e) LLM_MUST_CHECK;

#endif
