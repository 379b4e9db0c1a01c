/* The keys, values and queries of a vision transformer that has read a picture, as a cache file: what llm-kvinspect reads. All tokens see one
 * another, so nothing is generated from such a cache. */
#ifndef LLM_INFER_KVPICTURE_H
#define LLM_INFER_KVPICTURE_H

#include "infer/engine.h"
#include "infer/kvfile.h"

/* Runs the model over one picture [num_channels, image_size, image_size] and fills `f`, zero-initialised, with keys and values of all tokens and the
 * queries of the last n_queries of them, or of all if there are fewer. EX_UNAVAILABLE if the model is no vision transformer. 0 or -1; release `f`
 * either way. */
int llm_kv_file_see(struct llm_kv_file *f, struct llm_engine *g, const float *pixels, int64_t n_queries, struct llm_err *e) LLM_MUST_CHECK;

#endif
