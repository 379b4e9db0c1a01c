/* Learning rates over steps: a linear warm-up, then a row of the table. To add one: schedule/<name>.c, its row in schedule.c. */
#ifndef LLM_TRAIN_SCHEDULE_H
#define LLM_TRAIN_SCHEDULE_H

#include <stdint.h>

/* How a rate goes down where it does so at the end: d goes from 0 to 1. */
enum llm_decay_style {
    LLM_DECAY_LINEAR,     /* 1 - d */
    LLM_DECAY_COSINE,     /* half a cosine */
    LLM_DECAY_MINUS_SQRT  /* 1 - sqrt(d) */
};
struct llm_schedule_options {
    int64_t steps, warmup;
    double lr, min_lr;
    double decay_fraction;             /* of all steps: how long the last part is (wsd) */
    enum llm_decay_style decay_style;
};
struct llm_schedule {
    const char *name;
    double (*share)(double progress, const struct llm_schedule_options *o); /* progress 0 → 1 after the warm-up; 1: lr, 0: min_lr */
};
extern const struct llm_schedule *const llm_schedules[]; /* NULL-terminated */
const struct llm_schedule *llm_schedule_find(const char *name);
/* Step `it` counts from 0. Warm-up: lr·(it + 1)/(warmup + 1). */
double llm_schedule_lr(const struct llm_schedule *s, int64_t it, const struct llm_schedule_options *o);

#endif
