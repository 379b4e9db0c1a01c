/* The loop of a run: steps, evaluations, checkpoints, words for people. */
#ifndef LLM_TRAIN_LOOP_H
#define LLM_TRAIN_LOOP_H

#include "train/metrics.h"
#include "train/snapshot.h"

struct llm_loop {
    struct llm_trainer *t;
    struct llm_metrics *metrics;
    const char *output;     /* path of the checkpoint; NULL: none is written */
    const char *best;       /* path of the model with the lowest validation loss; NULL */
    const char *ema_output; /* path of the model with averaged weights; NULL */
    enum llm_save_as output_as, best_as, ema_as;
    int64_t save_every;     /* 0: at the end only */
    struct llm_snapshots *snapshots; /* borrowed; NULL: none are taken */
    bool logs;              /* a log is written, if by another rank */
    int64_t hash_every;     /* steps from one hash in it to the next */
};
/* Until t->o.steps are done, or a signal is caught: then the unfinished step is dropped, the state saved, and 0 returned (llm_signal_caught tells).
 * If the data shrinks (base/fault.h), the state is saved in the same way, and the failure returned.
 * A failure to write metrics saves before it is reported; other failures leave what was saved before. */
int llm_loop_run(struct llm_loop *l, struct llm_err *e) LLM_MUST_CHECK;
/* One step and what is due after it. 1: a signal was caught, and the step dropped or its evaluation. */
int llm_loop_step(struct llm_loop *l, struct llm_step_report *r, struct llm_err *e) LLM_MUST_CHECK;
/* Writes the outputs as they are now. */
int llm_loop_save(struct llm_loop *l, struct llm_err *e) LLM_MUST_CHECK;

/* With overfit_one: the loss that one batch, seen again and again, must fall below. */
#define LLM_OVERFIT_LOSS .1

#endif
