/* Half a cosine (Loshchilov and Hutter 2017). */
#include <math.h>
#include "train/schedule.h"

static double share(double progress, const struct llm_schedule_options *o)
{
    (void)o;
    return .5 * (1 + cos(3.141592653589793 * progress));
}

extern const struct llm_schedule llm_schedule_cosine;
const struct llm_schedule llm_schedule_cosine = {"cosine", share};
