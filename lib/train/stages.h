/* Pipeline parallelism: the ranks of a replica run the layers of the main stack one after another (train/share.h). Each is a stage; the first one has
 * the embedding, the last one the head and the loss. The passes of a step flow through them: a stage sends the output of its last layer to the next
 * stage, and the gradient of its input to the one before.
 *
 * A stage begins with as many forward passes as there are stages after it, and then runs forward and backward passes in turns (1F1B, Narayanan et al.
 * 2019), so that it keeps the activations of at most as many passes as there are stages from it on, however many a step has. With gpipe (Huang et al.
 * 2018) it runs all forward passes first. Each pass under way has a context of its own. The last stage runs forward and backward passes in turns
 * either way, because the gradient of the head is computed in the forward pass.
 *
 * A stage may have several chunks of layers, between which lie those of the other stages (Narayanan et al. 2021: the interleaved schedule). The
 * output of the last stage's chunk then goes to the first stage's next one. Stages wait less for one another, since a chunk takes less time than all
 * layers of a stage, and they exchange more messages and keep the activations of more passes.
 *
 * The backward passes of a chunk ascend, so every gradient is added in the order of one process, whatever the schedule and the number of stages: the
 * bits are the same. So are the router loads of all layers (llm_router_loads), which travel with the activations and back with the gradients. A rank
 * whose pass fails exchanges the messages of the other passes without computing, so that no rank waits for it. */
#ifndef LLM_TRAIN_STAGES_H
#define LLM_TRAIN_STAGES_H

#include "train/trainer.h"

struct llm_stages;
struct llm_whole;

/* Whether a model, with an adapter or not, can be trained in stages with the objective; llm_stages_cut says whether it can be cut. 0 or -1
 * (LLM_EX_USAGE). */
int llm_stages_check(const struct llm_objective *o, bool adapted, const struct llm_layout *l, struct llm_err *e) LLM_MUST_CHECK;
/* The trainer's contexts must be set. Cuts the model in them. NULL: see `e`. */
struct llm_stages *llm_stages_create(struct llm_trainer *t, struct llm_err *e) LLM_MUST_CHECK;
void llm_stages_destroy(struct llm_stages *p); /* NULL is fine */

/* Before a step over the trainer's rows: decides its passes, and makes room for those under way. 0 or -1. */
int llm_stages_prepare(struct llm_trainer *t, const struct llm_whole *whole, struct llm_err *e) LLM_MUST_CHECK;
/* Adds the gradient of the rank's stage of the replica's rows. All ranks must have agreed that they are prepared. 0 or -1: then llm_stages_finish
 * comes next, as it does after a success. */
int llm_stages_run(struct llm_trainer *t, const struct llm_whole *whole, struct llm_err *e) LLM_MUST_CHECK;
/* Exchanges what is left of the messages of the step, and waits for them. */
int llm_stages_finish(struct llm_trainer *t, struct llm_err *e) LLM_MUST_CHECK;

/* Runs rows without a gradient; all stages get the losses in t->token_loss. 0 or -1. */
int llm_stages_eval(struct llm_trainer *t, const struct llm_rows *rows, struct llm_err *e) LLM_MUST_CHECK;
/* Exchanges what is left of the messages of the last llm_stages_eval, which a fault may have interrupted. */
int llm_stages_end_eval(struct llm_trainer *t, struct llm_err *e) LLM_MUST_CHECK;

/* The most that the contexts of further passes have taken so far (llm_ctx_peak_bytes); 0 of NULL. */
double llm_stages_bytes(const struct llm_stages *p);
/* Between steps: releases the memory of their activations. NULL is fine. */
void llm_stages_trim(struct llm_stages *p);

#endif
