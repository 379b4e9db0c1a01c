/* What a run would take, found out before it begins: the same model with one and with two layers is built and makes a step at the run's own batch and
 * context; memory and time are linear in the number of layers. */
#ifndef LLM_TRAIN_PLAN_H
#define LLM_TRAIN_PLAN_H

#include <stdio.h>
#include "model/model.h"
#include "train/options.h"

struct llm_plan {
    double params;
    double weights, gradients, moments, averages, activations, other, total; /* bytes; `other`: scratch, losses, batch, the program */
    double tokens_per_step, flops_per_step;   /* 6N, and attention's scores */
    double step_seconds, seconds;             /* a step, and all of them; 0 when not measured */
    double peak;                              /* FLOP/s of products, measured */
};
int llm_plan_make(struct llm_plan *p, const struct llm_config *c, const struct llm_train_options *o, struct llm_err *e) LLM_MUST_CHECK;
/* TSV for people and awk, or one JSON object. */
int llm_plan_print(const struct llm_plan *p, FILE *out, int json, struct llm_err *e) LLM_MUST_CHECK;

#endif
