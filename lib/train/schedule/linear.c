/* A straight line down. */
#include "train/schedule.h"

static double share(double progress)
{
    return 1 - progress;
}

extern const struct llm_schedule llm_schedule_linear;
const struct llm_schedule llm_schedule_linear = {"linear", share};
