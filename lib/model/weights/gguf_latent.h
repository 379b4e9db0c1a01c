/* Latent attention's keys and values in GGUF files: two tensors for one parameter (model/weights/gguf_latent.c). For lib/model/weights itself. */
#ifndef LLM_MODEL_WEIGHTS_GGUF_LATENT_H
#define LLM_MODEL_WEIGHTS_GGUF_LATENT_H

#include "model/weights/model.h"

struct llm_latent_halves { const struct llm_entry *keys, *values; struct llm_checkpoint *key_file, *value_file; };
/* Whether the files have both halves of `whole`. False for every parameter but MLA's matrix of keys and values. */
bool llm_latent_find(const struct llm_model_files *files, const struct llm_param_spec *whole, struct llm_latent_halves *t);
/* Whether a tensor of this name is one of the halves of `whole`. */
bool llm_latent_is_half(const struct llm_param_spec *whole, const char *name);
/* Joins the halves into the parameter [heads · (nope + v), rank], in new memory that it owns. 0 or -1. */
int llm_latent_read(const struct llm_config *c, const struct llm_latent_halves *t, struct llm_param *p, struct llm_err *e) LLM_MUST_CHECK;
/* A half as a tensor to write (no data), and its bytes; `p` has floating point numbers. */
struct llm_tensor_out llm_latent_half(const struct llm_config *c, const struct llm_param *p, const struct llm_param_spec *whole, bool keys,
                                      char name[120]);
int llm_latent_write(const struct llm_config *c, const struct llm_param *p, bool keys, struct llm_output *o, struct llm_err *e) LLM_MUST_CHECK;

#endif
