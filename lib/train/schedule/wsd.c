/* Warm-up, stable, decay (Hu et al. 2024): the full rate but for the last part of the steps. */
#include <math.h>
#include "train/schedule.h"

static double share(double progress, const struct llm_schedule_options *o)
{
    double steps = (double)o->steps, it = (double)o->warmup + progress * (steps - (double)o->warmup), length = o->decay_fraction * steps;
    double d = it > steps - length ? (it - (steps - length)) / length : 0;
    switch (o->decay_style) {
    case LLM_DECAY_COSINE: return .5 * (1 + cos(3.141592653589793 * d));
    case LLM_DECAY_MINUS_SQRT: return 1 - sqrt(d);
    case LLM_DECAY_LINEAR: break;
    }
    return 1 - d;
}

extern const struct llm_schedule llm_schedule_wsd;
const struct llm_schedule llm_schedule_wsd = {"wsd", share};
