/* Replicas that are trained apart, and the outer optimizer that makes one model of them: DiLoCo (Douillard et al. 2023, arXiv 2311.08105).
 *
 * A step's rows are divided among M replicas of the model. Each has weights and moments of its own and takes the step on its rows alone. After H
 * steps the mean distance that the replicas have gone from the shared weights is the gradient of a step of SGD with Nesterov momentum, which moves
 * the shared weights; all replicas go on from there. So ranks exchange weights once in H steps.
 *
 * M and H belong to the run. The replicas are the shards of the share (train/shards.h): a rank has a contiguous part of them, and their distances are
 * added in the fixed tree. So the bits do not depend on how many ranks share the replicas.
 *
 * Outside of a step the shared weights stand in the parameters: they are validated, and saved as the model. */
#ifndef LLM_TRAIN_OUTER_H
#define LLM_TRAIN_OUTER_H

#include "train/share.h"

struct llm_replica { float **master, **m, **v; }; /* [n_params] each; NULL where the optimizer keeps none */

struct llm_outer {
    struct llm_share *share;        /* borrowed, with its parameters */
    struct llm_model *model;        /* borrowed */
    int64_t n;                      /* replicas of the run */
    double lr, momentum;
    struct llm_replica *replicas;   /* [share->run.end - share->run.first] of this rank; NULL: nothing is trained apart */
    float **weights, **momenta;     /* [n_params] shared; momenta NULL for what the optimizer has no say in: statistics and counts are averaged */
    bool under_way;                 /* some replicas have taken a step that others have not */
};

/* The replicas begin with the parameters as they are; the first takes over their moments. Release either way, not within a replica. */
int llm_outer_init(struct llm_outer *o, struct llm_share *s, struct llm_model *m, const struct llm_train_options *options, struct llm_err *e)
    LLM_MUST_CHECK;
void llm_outer_release(struct llm_outer *o);
/* The replica of this rank; NULL: another rank has it. */
struct llm_replica *llm_outer_replica(const struct llm_outer *o, int64_t replica);
/* A replica's weights and moments stand in the parameters, until llm_outer_leave. */
void llm_outer_enter(struct llm_outer *o, int64_t replica);
void llm_outer_leave(struct llm_outer *o);
/* The outer step: collective. */
int llm_outer_step(struct llm_outer *o, struct llm_err *e) LLM_MUST_CHECK;
/* The replicas begin anew from the shared weights. */
void llm_outer_spread(struct llm_outer *o);
/* hashes [1 + n]: of the shared weights, then of each replica's: collective. */
int llm_outer_hash(const struct llm_outer *o, uint64_t *hashes, struct llm_err *e) LLM_MUST_CHECK;

#endif
