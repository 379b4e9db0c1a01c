/* A straight line down. */
#include "train/schedule.h"

static double share(double progress, const struct llm_schedule_options *o)
{
    (void)o;
    return 1 - progress;
}

extern const struct llm_schedule llm_schedule_linear;
const struct llm_schedule llm_schedule_linear = {"linear", share};
