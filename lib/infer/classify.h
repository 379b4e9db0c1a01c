/* Which class a text is of. */
#ifndef LLM_INFER_CLASSIFY_H
#define LLM_INFER_CLASSIFY_H

#include "infer/engine.h"

/* 0, or -1 (EX_UNAVAILABLE) for a model that does not tell classes apart. */
int llm_classify_check(const struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
/* out [num_labels]: the probability of each class, of a text whose hidden states were pooled (infer/embed.h, as llm_config_pooling says) to
 * v[hidden_size]. */
int llm_classify(struct llm_engine *g, const float *v, double *out, struct llm_err *e) LLM_MUST_CHECK;

#endif
