/* Candidates without a pass of the filters over the whole vocabulary, for sampler.c. */
#ifndef LLM_INFER_SAMPLE_CUT_H
#define LLM_INFER_SAMPLE_CUT_H

#include "infer/sample/sampler.h"

/* Logits after the edits. */
struct llm_logits {
    const float *v;           /* [n] finite, or -infinity */
    const float *block_max;   /* the maximum of each block of logits (llm_k.rows.block_max) */
    size_t n;
    float max;
};

enum llm_cut {
    LLM_CUT_NONE,             /* the filters need all candidates */
    LLM_CUT_SOME,             /* applied to the candidates gathered, the filters keep the same tokens as applied to all */
    LLM_CUT_TOP_P,            /* as LLM_CUT_SOME, and top-p has been applied */
};
/* Gathers in `c`, which has room for n, the candidates that the filters may keep. */
enum llm_cut llm_candidates_cut(struct llm_candidates *c, const struct llm_logits *x, const struct llm_sampling *p);

#endif
