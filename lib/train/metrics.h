/* What a run says of itself: JSON Lines, one a step. */
#ifndef LLM_TRAIN_METRICS_H
#define LLM_TRAIN_METRICS_H

#include <stdbool.h>
#include "train/trainer.h"

struct llm_metrics {
    bool on;                /* false: nothing is written */
    int fd;
    const char *name;
    double flops_per_token; /* 6 × the parameters that a token meets */
    double peak;            /* FLOP/s that matrix products reach here, measured */
    struct llm_buf line;
    const json_t *beside;   /* members that the next line has besides its own; borrowed; NULL. It is then NULL again */
    int64_t late_at;        /* where the line of the step begins whose evaluation is due, in a log that is continued; -1: none */
    json_t *late;           /* that line; NULL */
};
/* `path` NULL: none; "-": stdout. `resumed`: a regular file is continued where the trainer's step is: the line there must have the trainer's hash, if
 * it has one, and what follows it is cut off. Fails (65) if the file is of another run; it is then unchanged. Measures the peak (some
 * milliseconds). */
int llm_metrics_open(struct llm_metrics *m, const char *path, bool resumed, const struct llm_trainer *t, struct llm_err *e) LLM_MUST_CHECK;
/* val_loss NaN: none at this step. With the trainer's hash if t->hashes_step. Visible at once. A line that has an evaluation alone completes the line
 * of its step in a log that is continued, if that has none. */
int llm_metrics_step(struct llm_metrics *m, const struct llm_trainer *t, const struct llm_step_report *r, double val_loss, double val_bits_per_byte,
                     struct llm_err *e) LLM_MUST_CHECK;
int llm_metrics_close(struct llm_metrics *m, struct llm_err *e) LLM_MUST_CHECK;

/* FLOP/s of the fastest of some products of 256³, or more where those take less than a millisecond (a third of one by one thread), by all threads. 0
 * without memory. */
double llm_measured_peak(enum llm_compute compute);

#endif
