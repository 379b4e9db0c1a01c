/* What a run says of itself: JSON Lines, one a step. */
#ifndef LLM_TRAIN_METRICS_H
#define LLM_TRAIN_METRICS_H

#include <stdio.h>
#include "train/trainer.h"

struct llm_metrics {
    FILE *file;             /* NULL: nothing is written */
    const char *name;
    double flops_per_token; /* 6 × the parameters that a token meets */
    double peak;            /* FLOP/s that matrix products reach here, measured */
    struct llm_buf line;
};
/* `path` NULL: none; "-": stdout. `append`: a run that goes on. Measures the peak (some tens of milliseconds). */
int llm_metrics_open(struct llm_metrics *m, const char *path, bool append, const struct llm_trainer *t, struct llm_err *e) LLM_MUST_CHECK;
/* val_loss NaN: none at this step. Visible at once. */
int llm_metrics_step(struct llm_metrics *m, const struct llm_trainer *t, const struct llm_step_report *r, double val_loss, double val_bits_per_byte,
                     struct llm_err *e) LLM_MUST_CHECK;
int llm_metrics_close(struct llm_metrics *m, struct llm_err *e) LLM_MUST_CHECK;

/* FLOP/s of the fastest of some products of 1,024³ in `compute`, all threads. 0 when memory is short. */
double llm_measured_peak(enum llm_compute compute);

#endif
