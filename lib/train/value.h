/* A value head: what a policy expects of the rest of a completion, a linear map of the hidden state from which the next token is predicted. It
 * belongs to an objective (llm_task.params), is trained with the policy and kept in training states; models are stored without it. */
#ifndef LLM_TRAIN_VALUE_H
#define LLM_TRAIN_VALUE_H

#include "tensor/tensor.h"

struct llm_value_head {
    struct llm_param params[2];     /* weight [1, hidden], drawn as the model's matrices are; bias [1], 0 */
};
/* Zero-initialise; release either way. 0 or -1. */
int llm_value_init(struct llm_value_head *v, int64_t hidden, double deviation, uint64_t seed, struct llm_err *e) LLM_MUST_CHECK;
void llm_value_release(struct llm_value_head *v);

#endif
