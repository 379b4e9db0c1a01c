/* Models as GGUF files: what load.c and config/gguf.c read, the other way round. For lib/model itself; others call llm_model_save_gguf. */
#ifndef LLM_MODEL_GGUF_SAVE_H
#define LLM_MODEL_GGUF_SAVE_H

#include "io/gguf_write.h"
#include "model/config/arch.h"

/* The configuration's keys, with the name that files give the family before them. `kv_b_whole`: of latent attention, that what makes keys and
 * values of the latent vector is one tensor, as files before 2025 have it, and not two of which the keys' is turned. */
void llm_gguf_put_config(struct llm_gguf_out *o, const struct llm_config *c, const struct llm_arch *arch, bool kv_b_whole);
/* Whether rotary factors are one list (rope_freqs.weight), as converters of Llama 3 write them. */
bool llm_gguf_one_list(const struct llm_rope_scaling *s);
double llm_gguf_yarn_magnitude(double factor);

/* ---- latent attention's keys and values (gguf_latent.c) ---- */
struct llm_latent_halves { const struct llm_entry *keys, *values; struct llm_checkpoint *key_file, *value_file; };
/* Whether files have both halves of `whole`; of other parameters than this matrix they have none. */
bool llm_latent_find(const struct llm_model_files *files, const struct llm_param_spec *whole, struct llm_latent_halves *t);
/* Whether a tensor of this name is one of them. */
bool llm_latent_is_half(const struct llm_param_spec *whole, const char *name);
/* The whole [heads · (nope + v), rank], made of them, in memory of its own. */
int llm_latent_read(const struct llm_config *c, const struct llm_latent_halves *t, struct llm_param *p, struct llm_err *e) LLM_MUST_CHECK;
/* A half as a tensor to write (no data), and its bytes; `p` has floating point numbers. */
struct llm_tensor_out llm_latent_half(const struct llm_config *c, const struct llm_param *p, const struct llm_param_spec *whole, bool keys,
                                      char name[120]);
int llm_latent_write(const struct llm_config *c, const struct llm_param *p, bool keys, struct llm_output *o, struct llm_err *e) LLM_MUST_CHECK;

#endif
