/* Models as GGUF files: what load.c and gguf_config.c read, the other way round. For lib/model itself; others call llm_model_save_gguf. */
#ifndef LLM_MODEL_GGUF_SAVE_H
#define LLM_MODEL_GGUF_SAVE_H

#include "io/gguf_write.h"
#include "model/arch.h"

/* The configuration's keys, with `arch` before them. */
void llm_gguf_put_config(struct llm_gguf_out *o, const struct llm_config *c, const char *arch);
/* Whether rotary factors are one list (rope_freqs.weight), as converters of Llama 3 write them. */
bool llm_gguf_one_list(const struct llm_rope_scaling *s);
double llm_gguf_yarn_magnitude(double factor);

#endif
