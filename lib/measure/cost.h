/* What a configuration costs: the tables of the transformer-block notes, by formula, from what each module declares (model/spec/block.h).
 * FLOPs count a multiply and an add as two, per token; element-wise work is left out, as in the notes. */
#ifndef LLM_MEASURE_COST_H
#define LLM_MEASURE_COST_H

#include "io/table.h"
#include "model/model.h"

struct llm_cost {
    double params;              /* of the model; nothing but next_params and next_flops counts layers that predict further */
    double next_params, next_flops; /* of num_nextn_predict_layers layers, which training runs and drafts, with the head once more for each */
    double active_params;       /* those that a token meets: of experts only its share */
    double blocks_params, blocks_flops;                        /* of all blocks: matrices, scores, mixing of values, steps of a state */
    double embedding_params;    /* all tables that are looked up */
    double encoder_params, encoder_flops, final_params;        /* final norm, and the head unless it is tied */
    double head_flops;
    double forward_flops;       /* of the model */
    double vector_params;       /* those of norms and biases, which no quantiser touches */
};
/* `context`: tokens that attention sees. 0 or -1. */
int llm_cost_of(struct llm_cost *out, const struct llm_config *c, int64_t context, struct llm_err *e) LLM_MUST_CHECK;

/* Every matrix of the first block of each kind, the block, all of them, the model: parameters and FLOPs with their shares (of the block, of the
 * model). */
extern const char *const llm_cost_part_columns[];
int llm_cost_parts(struct llm_table *t, const struct llm_config *c, int64_t context, struct llm_err *e) LLM_MUST_CHECK;
/* Bytes of weights by type, of the KV cache by type, of training with AdamW; FLOPs of training. */
extern const char *const llm_cost_total_columns[];
int llm_cost_totals(struct llm_table *t, const struct llm_config *c, int64_t context, struct llm_err *e) LLM_MUST_CHECK;
/* Bytes of the weights when matrices are stored as `type` and vectors as F32 (as themselves for plain types). */
double llm_cost_weight_bytes(const struct llm_cost *cost, enum llm_dtype type);

#endif
