/* Filling in the middle: the marker tokens of the parts of a text, and the order of the parts. */
#ifndef LLM_MODEL_WEIGHTS_FIM_H
#define LLM_MODEL_WEIGHTS_FIM_H

#include "model/weights/model.h"

struct llm_fim {
    int32_t prefix, suffix, middle; /* markers: the token before each part */
    int32_t begin, end;             /* tokens that begin and end a text; begin -1: none */
};
/* Finds the markers in the model's tokenizer. 0, or -1 (EX_DATAERR) if it has none. */
int llm_model_fim(const struct llm_model *m, struct llm_fim *f, struct llm_err *e) LLM_MUST_CHECK;

struct llm_fim_part { const int32_t *ids; int64_t n; };
/* Tokens that llm_fim_put adds to those of the parts. */
#define LLM_FIM_MARKS 3
/* Writes prefix, suffix and middle, each after its marker (PSM), to out, which has room for all parts and LLM_FIM_MARKS tokens. suffix_first (SPM, in
 * the paper's variant that shares markers with PSM): prefix marker, suffix marker, suffix, middle marker, then prefix and middle as one text. Returns
 * the number of tokens. */
int64_t llm_fim_put(const struct llm_fim *f, bool suffix_first, struct llm_fim_part prefix, struct llm_fim_part suffix, struct llm_fim_part middle,
                    int32_t *out);

#endif
