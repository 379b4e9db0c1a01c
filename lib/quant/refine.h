/* Refinement of a quantised model: scales and roundings of its blocks are learned by gradient on the KL divergence of its predictions from
 * those of the model that it was. */
#ifndef LLM_QUANT_REFINE_H
#define LLM_QUANT_REFINE_H

#include "quant/quant.h"

struct llm_refine;
/* Takes the blocks of the layers' matrices as llm_quantize_model writes them (llm_quant_plan.sink). NULL: see `e`. */
struct llm_refine *llm_refine_create(const struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
struct llm_quant_sink llm_refine_sink(struct llm_refine *r);
void llm_refine_destroy(struct llm_refine *r);

/* What was learned from. */
struct llm_refine_text {
    const int32_t *ids;            /* [n] tokens */
    int64_t n, context;            /* tokens; of a window, 0: 512, or the model's maximum if that is less */
};
/* Makes `steps` steps: each runs `m` and `base`, the model before it was quantised, over the next window of the text and moves what every
 * block stores (refine.c says how). The blocks of `m` are written anew. The result does not depend on threads. 0; 1 if a signal was caught; -1
 * (EX_UNAVAILABLE: no memory, or no matrix whose blocks can be learned), with `m` as before. */
int llm_refine_run(struct llm_refine *r, struct llm_model *m, struct llm_model *base, const struct llm_refine_text *text, int64_t steps,
                   struct llm_err *e) LLM_MUST_CHECK;
/* After llm_refine_run: the blocks of `m` are as before it. */
void llm_refine_undo(struct llm_refine *r, struct llm_model *m);

#endif
