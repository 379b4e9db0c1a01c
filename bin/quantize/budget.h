/* llm-quantize --budget: types chosen by measured harm, and the comparison with a fixed mix on text that was held out. */
#ifndef BIN_QUANTIZE_BUDGET_H
#define BIN_QUANTIZE_BUDGET_H

#include "bin/quantize/calibrate.h"
#include "bin/quantize/load.h"
#include "quant/budget.h"

/* "3.9bpw", "120MiB", "120M" or bytes: bytes of the model's weights. 0 if the text is none of these. */
uint64_t quantize_budget_bytes(const char *text, const struct llm_model *m);
/* Tokens of the text that calibration reads; those after them are held out: the last eighth, at least 64. -1: see `e`; `option`
 * is for its message. */
int64_t quantize_tokens_before(const char *option, const char *text, const struct llm_model *m, int64_t max, struct llm_err *e) LLM_MUST_CHECK;

/* The largest mix of types with which the model's weights fit in so many bytes, or if none does the smallest one. */
const struct llm_quant_type *quantize_budget_mix(const struct llm_model *m, const struct llm_quant_plan *plan, uint64_t bytes);

struct budget_request {
    struct quantize_in in;         /* is loaded again to be compared with */
    const char *text;              /* calibration's */
    struct llm_budget_room room;   /* bytes, and tokens of a cache that is within them */
    int64_t first_held_out, max;   /* quantize_tokens_before; tokens of the text that are read at all, 0: all */
    int64_t probe;                 /* tokens of the text over which sensitivities are measured */
    int64_t context;
};
/* Chooses types for `m` (b->types; b is released by the caller either way), or leaves b->types NULL and sets *type to the mix that was better on
 * what was held out. Says which types the cache has, if it is within the budget. Tells the divergence of both. 0; 1 if a signal was caught; -1. */
int quantize_budget(const struct budget_request *r, struct llm_model *m, const struct llm_quant_plan *plan, struct llm_budget *b,
                    const struct llm_quant_type **type, struct llm_err *e) LLM_MUST_CHECK;

#endif
