/* Filling in the middle: which tokens name the parts of a text, and in which order the parts stand. */
#ifndef LLM_MODEL_WEIGHTS_FIM_H
#define LLM_MODEL_WEIGHTS_FIM_H

#include "model/weights/model.h"

struct llm_fim {
    int32_t prefix, suffix, middle; /* what stands before each part */
    int32_t begin, end;             /* of a text; begin -1: none */
};
/* The tokenizer's own; EX_DATAERR where it has none. */
int llm_model_fim(const struct llm_model *m, struct llm_fim *f, struct llm_err *e) LLM_MUST_CHECK;

struct llm_fim_part { const int32_t *ids; int64_t n; };
/* Tokens beside those of the parts. */
#define LLM_FIM_MARKS 3
/* Prefix, suffix, middle each behind its token (PSM); suffix_first: both tokens, the suffix, then prefix and middle as one behind the last token
 * (SPM, in the paper's form that shares tokens with PSM). To out[parts + LLM_FIM_MARKS]; how many. */
int64_t llm_fim_put(const struct llm_fim *f, bool suffix_first, struct llm_fim_part prefix, struct llm_fim_part suffix, struct llm_fim_part middle,
                    int32_t *out);

#endif
