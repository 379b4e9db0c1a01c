/* What the files of adapters share: lora.c (memory), lora_create.c, lora_config.c (adapter_config.json), lora_load.c, lora_gguf.c and others. */
#ifndef LLM_MODEL_WEIGHTS_LORA_INTERNAL_H
#define LLM_MODEL_WEIGHTS_LORA_INTERNAL_H

#include "model/spec/block.h"
#include "model/spec/declare.h"
#include "model/weights/lora.h"

#define LLM_LORA_PREFIX "base_model.model."

/* ---- lora.c ---- */
/* An adapter without pairs, with room for all parameters of `m`. NULL: memory is short. */
struct llm_lora *llm_lora_blank(const struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
/* NULL is fine. It must not be attached. */
void llm_lora_destroy(struct llm_lora *l);
/* A pair of zeros at the matrix p. NULL: memory is short. */
struct llm_lora_pair *llm_lora_add_pair(struct llm_lora *l, const struct llm_model *m, struct llm_param *p, int64_t rank, struct llm_err *e)
    LLM_MUST_CHECK;
/* What multiplies b · a, without the factor that the user asked for. */
double llm_lora_scale(const struct llm_lora *l, const struct llm_lora_pair *q);
void llm_lora_add_whole(struct llm_lora *l, struct llm_param *p);
/* Puts the adapter at the end of the model's list, which then owns it; its scales follow from alpha, ranks and factor. */
void llm_lora_attach(struct llm_lora *l, struct llm_model *m);
/* The module of a parameter: the parameter's name without ".weight". */
void llm_lora_module(const struct llm_param *p, char out[LLM_LORA_NAME]);
/* Memory that lives until the next description. NULL: memory is short. */
void *llm_lora_stage(struct llm_lora *l, size_t bytes, struct llm_err *e) LLM_MUST_CHECK;
/* Frees what llm_lora_stage allocated. */
void llm_lora_drop_staging(struct llm_lora *l);

/* ---- lora_config.c ---- */
/* The name of the model's head as PEFT sees it, and that of the module of any parameter. */
const char *llm_lora_head(const struct llm_model *m);
void llm_lora_peft_module(const struct llm_model *m, const struct llm_param *p, char out[LLM_LORA_NAME]);
/* Reads adapter_config.json into `l`; what is not supported is refused by its key (EX_UNAVAILABLE). */
int llm_lora_read_config(struct llm_lora *l, const json_t *config, struct llm_err *e) LLM_MUST_CHECK;
/* Gives pairs that alpha_pattern names their own alpha. 0 or -1. */
int llm_lora_set_alphas(struct llm_lora *l, const struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
/* The weight or bias (`piece`) of the parameter's module. NULL: it has none. */
struct llm_param *llm_lora_beside(const struct llm_model *m, const struct llm_param *p, const char *piece);
/* Whether it stores an embedding whole that is the model's head, too. */
bool llm_lora_ties(const struct llm_lora *l, const struct llm_model *m);

/* ---- lora_order.c ---- */
/* The orders of rows that a matrix of the model has in files: the model's own, that of Hugging Face's weights and that of GGUF's. */
enum llm_lora_order { LLM_LORA_OWN, LLM_LORA_HF, LLM_LORA_GGUF };
/* `rows` [n, cols] of parameter p, from the model's own order to `order`, or back. In place. 0, or -1: EX_UNAVAILABLE, the order cannot be had. */
int llm_lora_reorder(const struct llm_model *m, const struct llm_param *p, enum llm_lora_order order, bool to_file, float *rows, int64_t cols,
                     struct llm_err *e) LLM_MUST_CHECK;

/* ---- lora_tensor.c ---- */
/* Elements of a tensor of floating point, as F32. `shape` [n_dims] is what it must have. */
int llm_lora_read(struct llm_checkpoint *f, const struct llm_entry *t, int n_dims, const int64_t *shape, float *out, struct llm_err *e)
    LLM_MUST_CHECK;

/* ---- lora_experts.c ---- */
/* A pair of all experts of a layer. */
struct llm_lora_stack {
    const char *module;                /* [n_module], within a tensor's name */
    size_t n_module;
    int layer;
    const struct llm_entry *entry[2];  /* of A and B; NULL: not found */
    float *half[2];                    /* what they hold, while the layer's pairs are made; else NULL */
    bool used;
};
struct llm_lora_experts { struct llm_lora_stack *v; size_t n; }; /* zeroed at first */
void llm_lora_experts_release(struct llm_lora_experts *x);
/* Takes tensor t of the file if its name is that of a half of such a pair: 1; else 0; or -1. */
int llm_lora_experts_add(struct llm_lora_experts *x, const struct llm_header *h, const struct llm_entry *t, struct llm_err *e) LLM_MUST_CHECK;
/* Makes the pair of p, an expert's matrix, if those of its layer have one: 1; else 0; or -1. Layers in ascending order. */
int llm_lora_experts_pair(struct llm_lora_experts *x, struct llm_lora *l, struct llm_model *m, struct llm_checkpoint *f, struct llm_param *p,
                          struct llm_err *e) LLM_MUST_CHECK;
/* Fails (EX_DATAERR) if one was not used. */
int llm_lora_experts_check(const struct llm_lora_experts *x, const struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;

/* ---- lora_gguf.c ---- */
/* Reads the pairs of a GGUF file of type `adapter`. */
int llm_lora_read_gguf(struct llm_lora *l, struct llm_model *m, struct llm_checkpoint *f, struct llm_err *e) LLM_MUST_CHECK;

#endif
