/* The names that a model's parameters have in GGUF files: for models' files, adapters', importances and patterns. */
#ifndef LLM_MODEL_WEIGHTS_GGUF_NAMES_H
#define LLM_MODEL_WEIGHTS_GGUF_NAMES_H

#include "model/spec/block.h"
#include "model/weights/model.h"

/* Poolers, masked-token heads that the family's files lack and layers that predict further have no names. Zeroed before the call. */
struct llm_gguf_names {
    struct llm_declare declared;         /* the parameters that have names, by declaration, in the model's order */
    struct llm_param **params;           /* [declared.n] the model's own; borrowed */
    const struct llm_param_spec **specs; /* [the model's n_params] in `declared`; NULL: GGUF has no name for it */
};
/* 0, or -1: EX_UNAVAILABLE, a family without names in GGUF. To be released in any case. */
int llm_gguf_names_of(struct llm_gguf_names *n, const struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
void llm_gguf_names_release(struct llm_gguf_names *n);

/* The family that GGUF files name for models of `arch`. NULL: none. */
const struct llm_arch *llm_gguf_family(const struct llm_arch *arch);
/* Takes what files of the family have no tensors for out of the configuration. */
void llm_gguf_leave_out(struct llm_config *c, const struct llm_arch *family);

#endif
