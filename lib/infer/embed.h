/* Embeddings: one vector for a text. */
#ifndef LLM_INFER_EMBED_H
#define LLM_INFER_EMBED_H

#include "infer/engine.h"

/* out [llm_config_vector]: the vector of ids[0..n), n ≥ 1, after what `kv` holds; hidden states are summed in order in double. EX_DATAERR if pooling
 * takes an end token and there is none. 0; 1 if a signal was caught; -1. */
int llm_embed(struct llm_engine *g, struct llm_kv *kv, const int32_t *ids, int64_t n, enum llm_pool_kind pool, float *out, struct llm_err *e)
    LLM_MUST_CHECK;
/* Embeds several texts: ids has the texts one after another, lengths [n_texts] their lengths, types the token types of an encoder (NULL: all 0).
 * out: [n_texts, llm_config_vector]. A pass takes as many texts as have room, without padding; each text has the bits that it has alone. */
int llm_embed_texts(struct llm_engine *g, const int32_t *ids, const int32_t *kinds, const int64_t *lengths, int64_t n_texts, enum llm_pool_kind pool,
                    float *out, struct llm_err *e) LLM_MUST_CHECK;
/* Vectors of pictures [n, num_channels, image_size, image_size], of a vision transformer or tower. out: [n, llm_config_vector].
 * Each picture has the bits that it has alone. */
int llm_embed_pictures(struct llm_engine *g, const float *pixels, int64_t n, enum llm_pool_kind pool, float *out, struct llm_err *e) LLM_MUST_CHECK;
/* The pooling that a model's configuration names, the default of --pooling. EX_UNAVAILABLE if it is not implemented. */
int llm_embed_pooling(const struct llm_config *c, enum llm_pool_kind *pool, struct llm_err *e) LLM_MUST_CHECK;
/* v[n] divided by its length: kind 2 Euclidean, 1 sum of magnitudes, p > 2 the p-norm, 0 so that the largest is 32760, -1 not at all.
 * A vector of zeros stays as it is. */
void llm_embed_normalize(float *v, int64_t n, int64_t kind);

#endif
