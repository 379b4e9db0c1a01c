/* A vector for a text. */
#ifndef LLM_INFER_EMBED_H
#define LLM_INFER_EMBED_H

#include "infer/engine.h"

enum llm_pool_kind { LLM_POOL_MEAN /* of the tokens' final hidden states, summed in order in double */, LLM_POOL_LAST /* token's */ };
/* out [hidden_size]: of ids[0..n), n ≥ 1, behind what `kv` holds. 0; 1 when a signal was caught; -1. */
int llm_embed(struct llm_engine *g, struct llm_kv *kv, const int32_t *ids, int64_t n, enum llm_pool_kind pool, float *out, struct llm_err *e)
    LLM_MUST_CHECK;

#endif
