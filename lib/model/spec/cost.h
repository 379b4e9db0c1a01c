/* What a configuration costs, from what each module says of itself: parameters, FLOPs, memory of sequences. */
#ifndef LLM_MODEL_SPEC_COST_H
#define LLM_MODEL_SPEC_COST_H

#include "model/spec/block.h"

struct llm_cost_row {
    int unit;                     /* enum llm_unit (model/spec/declare.h, where their names are too) */
    double params, flops_forward; /* per token; FLOPs at the context given */
};
/* Rows of the model; formulas of the transformer-block notes. Returns how many rows (≤ room). */
size_t llm_model_cost(const struct llm_config *c, int64_t context, struct llm_cost_row *rows, size_t room);
double llm_model_params(const struct llm_config *c);
/* Those that a token meets: of experts only the share that it goes to. */
double llm_model_active_params(const struct llm_config *c);
double llm_model_kv_bytes_per_token(const struct llm_config *c, enum llm_dtype cache);
double llm_model_state_bytes(const struct llm_config *c); /* of a sequence, however long */
/* Whether some layer's state cannot be cut back to an earlier token. */
bool llm_model_is_recurrent(const struct llm_config *c);

#endif
