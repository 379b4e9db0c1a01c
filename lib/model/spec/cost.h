/* What a model of a configuration costs, summed from what each module declares: parameters, FLOPs, memory per sequence. */
#ifndef LLM_MODEL_SPEC_COST_H
#define LLM_MODEL_SPEC_COST_H

#include "model/spec/block.h"

struct llm_cost_row {
    int unit;                     /* enum llm_unit; llm_unit_names has their names (both in model/spec/declare.h) */
    double params, flops_forward; /* per token; FLOPs at the context given */
};
/* One row for each unit that the model has, for texts of `context` tokens. Returns the number of rows (≤ room). */
size_t llm_model_cost(const struct llm_config *c, int64_t context, struct llm_cost_row *rows, size_t room);
double llm_model_params(const struct llm_config *c);
/* Parameters that process a token: all but experts, and of the experts the share that a token is routed to. */
double llm_model_active_params(const struct llm_config *c);
double llm_model_kv_bytes_per_token(const struct llm_config *c, enum llm_dtype cache);
/* Bytes of the state of recurrent layers per sequence; they do not depend on its length. */
double llm_model_state_bytes(const struct llm_config *c);
/* Whether some layer's state cannot be cut back to an earlier token. */
bool llm_model_is_recurrent(const struct llm_config *c);

#endif
