/* Learning rates over steps: a linear warm-up, then a row of the table. To add one: schedule/<name>.c, its row in schedule.c. */
#ifndef LLM_TRAIN_SCHEDULE_H
#define LLM_TRAIN_SCHEDULE_H

#include <stdint.h>

struct llm_schedule {
    const char *name;
    double (*share)(double progress); /* progress 0 → 1 after the warm-up; 1: lr, 0: min_lr */
};
extern const struct llm_schedule *const llm_schedules[]; /* NULL-terminated */
const struct llm_schedule *llm_schedule_find(const char *name);
/* Step `it` counts from 0. Warm-up: lr·(it + 1)/(warmup + 1). */
double llm_schedule_lr(const struct llm_schedule *s, int64_t it, int64_t steps, int64_t warmup, double lr, double min_lr);

#endif
