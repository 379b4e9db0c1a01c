#include "train/schedule.h"

#include <stddef.h>
#include <string.h>

extern const struct llm_schedule llm_schedule_cosine, llm_schedule_linear, llm_schedule_constant, llm_schedule_wsd;
const struct llm_schedule *const llm_schedules[] = {&llm_schedule_cosine, &llm_schedule_linear, &llm_schedule_constant, &llm_schedule_wsd, NULL};

const struct llm_schedule *llm_schedule_find(const char *name)
{
    for (size_t i = 0; llm_schedules[i]; i++) {
        if (strcmp(llm_schedules[i]->name, name) == 0) return llm_schedules[i];
    }
    return NULL;
}

double llm_schedule_lr(const struct llm_schedule *s, int64_t it, const struct llm_schedule_options *o)
{
    if (it < o->warmup) return o->lr * (double)(it + 1) / (double)(o->warmup + 1);
    double progress = o->steps > o->warmup ? (double)(it - o->warmup) / (double)(o->steps - o->warmup) : 0;
    return o->min_lr + s->share(progress > 1 ? 1 : progress, o) * (o->lr - o->min_lr);
}
