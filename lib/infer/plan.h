/* The memory that inference will need, estimated before it runs. */
#ifndef LLM_INFER_PLAN_H
#define LLM_INFER_PLAN_H

#include "infer/engine.h"

struct llm_infer_plan {
    double parameters, weight_bytes;
    double cache_bytes_per_token;
    double state_bytes;        /* of a sequence, whatever its length */
    double cache_bytes;        /* of `sequences` full contexts, in whole pages, and their states */
    double working_bytes;      /* activations of a full pass */
    double other_bytes;        /* packed forms of weights, scratch of products, the program */
    double memory_bytes;       /* resident at most: the sum of these; of one text, less what its prompt and what follows it do not take together */
    double flops_per_token, read_bytes_per_token; /* decoding at the end of a full context: weights and cache */
};
/* Runs a few small passes of the engine to see how working memory grows with their size. `one_text`: after its prompt come single tokens, and no
 * other prompt. 0 or -1. */
int llm_infer_plan(struct llm_engine *g, int64_t sequences, bool one_text, struct llm_infer_plan *p, struct llm_err *e) LLM_MUST_CHECK;

#endif
