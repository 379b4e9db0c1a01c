/* Configurations from the metadata of GGUF files, and back. For lib/model itself; others call llm_model_load and llm_model_save_gguf. */
#ifndef LLM_MODEL_CONFIG_GGUF_H
#define LLM_MODEL_CONFIG_GGUF_H

#include "model/config/arch.h"

/* Reads the configuration from a GGUF file's metadata. Before llm_config_finish the caller adds what only the tensors tell: the vocabulary's size,
 * whether the head has a matrix of its own, rotary factors. 0 or -1. */
int llm_gguf_config(struct llm_config *c, const struct llm_gguf *g, struct llm_err *e) LLM_MUST_CHECK;
int llm_gguf_rope_factors(struct llm_config *c, const struct llm_model_files *files, struct llm_err *e) LLM_MUST_CHECK;
void llm_gguf_biases(struct llm_config *c, const struct llm_model_files *files);

/* Makes the configuration of a language model that of one that reads pictures, whose tower and projector are in llama.cpp's mmproj file `g`, which
 * `files` holds too. The placeholder is left at 0, as the file does not say it. 0 or -1. */
int llm_gguf_mmproj(struct llm_config *c, const struct llm_gguf *g, const struct llm_model_files *files, struct llm_err *e) LLM_MUST_CHECK;
/* Changes the preprocessor `o` of such a model's family as the file says. 0 or -1. */
int llm_gguf_preprocessor(json_t *o, const struct llm_config *c, const struct llm_gguf *g, struct llm_err *e) LLM_MUST_CHECK;

/* Writes the configuration's keys, each after the family's name in GGUF. `kv_b_whole` concerns latent attention: true if the projection of the latent
 * vector to keys and values is one tensor, as in files before 2025; false if it is two, the keys' transposed. */
void llm_gguf_put_config(struct llm_gguf_out *o, const struct llm_config *c, const struct llm_arch *arch, bool kv_b_whole);
/* Whether GGUF files store the rotary factors as one list (rope_freqs.weight), as for Llama 3. */
bool llm_gguf_one_list(const struct llm_rope_scaling *s);
double llm_gguf_yarn_magnitude(double factor);

#endif
