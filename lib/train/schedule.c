#include "train/schedule.h"

#include <stddef.h>
#include <string.h>

extern const struct llm_schedule llm_schedule_cosine, llm_schedule_linear, llm_schedule_constant;
const struct llm_schedule *const llm_schedules[] = {&llm_schedule_cosine, &llm_schedule_linear, &llm_schedule_constant, NULL};

const struct llm_schedule *llm_schedule_find(const char *name)
{
    for (size_t i = 0; llm_schedules[i]; i++) {
        if (strcmp(llm_schedules[i]->name, name) == 0) return llm_schedules[i];
    }
    return NULL;
}

double llm_schedule_lr(const struct llm_schedule *s, int64_t it, int64_t steps, int64_t warmup, double lr, double min_lr)
{
    if (it < warmup) return lr * (double)(it + 1) / (double)(warmup + 1);
    double progress = steps > warmup ? (double)(it - warmup) / (double)(steps - warmup) : 0;
    return min_lr + s->share(progress > 1 ? 1 : progress) * (lr - min_lr);
}
