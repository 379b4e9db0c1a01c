/* The memory and time that a run will take: the same model with one layer and with two is built and makes a step at the run's own batch and context;
 * memory and time are linear in the number of layers. Where such a step takes long, it has fewer rows: memory and time are linear in these, too. */
#ifndef LLM_TRAIN_PLAN_H
#define LLM_TRAIN_PLAN_H

#include "io/table.h"
#include "model/model.h"
#include "train/share.h"

enum { LLM_PLAN_MAX_STAGES = 64 };
struct llm_plan {
    double params, trained;                   /* numbers: all, and those that are trained */
    double weights, gradients, moments, averages, activations, other, total; /* bytes; `other`: scratch, losses, batch, the program */
    double tokens_per_step, flops_per_step;   /* 4 for each number and 2 for each that is trained, and attention's scores */
    double step_seconds, seconds;             /* a step, and all of them; 0 when not measured */
    double ranks, nodes, sent;                /* ranks 0: one; sums of shards that a rank sends in a step, and all bytes that it sends */
    double ahead, behind;                     /* those of llm_share_cost, */
    double forward, backward;                 /* and FLOPs of the rank's passes under which they travel: one forward pass, backward passes */
    int64_t n_stages;                         /* 0: one. The numbers above are those of the stage that takes most memory */
    struct llm_plan_stage { int64_t layers; double bytes; } stages[LLM_PLAN_MAX_STAGES];
    double peak;                              /* FLOP/s of products, measured by the caller */
    double work, messages;                    /* of a step: FLOPs of the rank that has most, with those that it could make while it waits for other
                                               * stages; messages that it sends one after another */
};
/* The memory and time of a step of a model with few layers, by these and by what of the layout they depend on. Zero-initialise. */
struct llm_plan_sample { double bytes, moments, averages, uses, forms, scratch, seconds, shared, grads; };
struct llm_plan_trials {
    size_t n;
    struct llm_plan_trial {
        int64_t layers, members, experts, rows;
        struct llm_plan_sample s, fewer;    /* fewer: of a pass of fewer rows, from which `s` was found; zeros: `s` was measured */
    } v[64];
};
/* What one rank of the layout takes, the one that takes most; its time is without messages.
 * `m`: the model that the run begins from, whose frozen parameters stay in their types; NULL: a new one. `trials`: of the same model and options;
 * NULL: no steps are made, and activations, what depends on them, and seconds are wrong. LLM_EX_USAGE: what a run would refuse. */
int llm_plan_make(struct llm_plan *p, const struct llm_config *c, const struct llm_model *m, const struct llm_train_options *o,
                  const struct llm_layout *l, struct llm_plan_trials *trials, struct llm_err *e) LLM_MUST_CHECK;
/* The costs with what was not given: memory as here, rates of a usual machine. */
struct llm_layout_costs llm_layout_costs_all(const struct llm_layout_costs *given, double memory);
/* The layout of l->ranks ranks that the run allows, whose memory is within `costs`, and whose step takes the least time by the FLOPs of the rank that
 * has most and by its messages, of which weights hide under a forward pass and gradients under backward passes: *l becomes it. Of equal ones the
 * least zero, then the least ep, then the least cp, then the fewest ranks a replica, then the fewest stages, then the fewest chunks. No clock has a
 * say. A line says which it is. 0 or -1 (LLM_EX_USAGE: no layout suits, or none fits). */
int llm_layout_choose(struct llm_layout *l, const struct llm_config *c, const struct llm_model *m, const struct llm_train_options *o,
                      const struct llm_layout_costs *costs, struct llm_plan_trials *trials, struct llm_err *e) LLM_MUST_CHECK;
/* To standard output: a line "name, value" for each number, or one JSON object. */
int llm_plan_print(const struct llm_plan *p, enum llm_table_form form, struct llm_err *e) LLM_MUST_CHECK;

#endif
