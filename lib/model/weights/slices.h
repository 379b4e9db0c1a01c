/* Models whose matrices are cut into slices (tensor/slices.h): which parameters are cut, and how. */
#ifndef LLM_MODEL_WEIGHTS_SLICES_H
#define LLM_MODEL_WEIGHTS_SLICES_H

#include "model/weights/model.h"
#include "tensor/slices.h"

/* Whether models of the configuration can be cut into n slices. 0 or -1 (LLM_EX_USAGE). */
int llm_model_check_slices(const struct llm_config *c, int64_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Whether rows of `context` tokens of the model can be cut into parts (tensor/sequence.h) that so many ranks divide. 0 or -1 (LLM_EX_USAGE). */
int llm_model_check_sequence(const struct llm_config *c, int64_t parts, int64_t ranks, int64_t context, struct llm_err *e) LLM_MUST_CHECK;
/* Whether the parameter is cut: a matrix of attention, of a feed-forward part or of Mamba, the bias of one that is cut by rows, a
 * vector of Mamba's channels, a table of the vocabulary. */
bool llm_param_spec_sliced(const struct llm_param_spec *s);
/* Gives each parameter that is cut its n slices, which have shapes, but no data yet; this process has slices [first, end). 0 or -1. */
int llm_model_slice(struct llm_model *m, int n, int first, int end, struct llm_err *e) LLM_MUST_CHECK;

#endif
