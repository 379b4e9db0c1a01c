/* Configurations from the metadata of GGUF files, and back. For lib/model itself; others call llm_model_load and llm_model_save_gguf. */
#ifndef LLM_MODEL_CONFIG_GGUF_H
#define LLM_MODEL_CONFIG_GGUF_H

#include "model/config/arch.h"

/* A GGUF file's metadata; what only its tensors tell (vocabulary size, a head of its own, factors) is for the caller to add, before
 * llm_config_finish. */
int llm_gguf_config(struct llm_config *c, const struct llm_gguf *g, struct llm_err *e) LLM_MUST_CHECK;
int llm_gguf_rope_factors(struct llm_config *c, const struct llm_model_files *files, struct llm_err *e) LLM_MUST_CHECK;
void llm_gguf_biases(struct llm_config *c, const struct llm_model_files *files);

/* The configuration's keys, with the name that files give the family before them. `kv_b_whole`: of latent attention, that what makes keys and
 * values of the latent vector is one tensor, as files before 2025 have it, and not two of which the keys' is transposed. */
void llm_gguf_put_config(struct llm_gguf_out *o, const struct llm_config *c, const struct llm_arch *arch, bool kv_b_whole);
/* Whether rotary factors are one list (rope_freqs.weight), as converters of Llama 3 write them. */
bool llm_gguf_one_list(const struct llm_rope_scaling *s);
double llm_gguf_yarn_magnitude(double factor);

#endif
