/* Models in memory: made, loaded, saved, and their parts. model/forward/forward.h computes with them. */
#ifndef LLM_MODEL_WEIGHTS_MODEL_H
#define LLM_MODEL_WEIGHTS_MODEL_H

#include "base/labels.h"
#include "io/checkpoint.h"
#include "model/spec/block.h"
#include "token/tokenizer.h"

struct llm_model {
    struct llm_config config;
    const struct llm_arch *arch;
    struct llm_param *params;      /* in the order of declaration: embeddings, layers, final norm, head */
    size_t n_params;
    struct llm_param_spec *specs;  /* [n_params]: their declarations */
    struct llm_tokenizer *tokenizer; /* NULL when the file carries none; owned */
    char fingerprint[17];          /* XXH64 of weights and configuration, hex, written when the model is; "" when not known */
    struct llm_labels labels;      /* names of classes, config.num_labels of them, or none: then they have numbers alone */
    char *chat_template;           /* Jinja, or NULL; owned */
    json_t *training;              /* state stored by llm-train, or NULL; owned */
    struct llm_checkpoint **files; /* [n_files] kept open while weights are borrowed from their mappings; owned */
    size_t n_files;
    int64_t rope_context;          /* the context that rotary frequencies are chosen for; 0: they do not depend on it */
    void *layout;                  /* the family's own view of params (pointers by layer) */
    struct llm_lora *lora;         /* its adapters (model/weights/lora.h), a list; owned; NULL: none */
    bool adapted;                  /* the fingerprint is that of the model with its adapters */
    struct llm_ngram *ngram;       /* of n-gram models, which have no params; owned; NULL */
};
/* A model with params named and shaped, without data. */
struct llm_model *llm_model_shape(const struct llm_config *c, struct llm_err *e) LLM_MUST_CHECK;
/* Fresh weights from `seed` (normal(0, initializer_range), residual projections scaled by 1/sqrt(2·layers) for gpt2; Philox by parameter number, so
 * not by threads), F32. */
struct llm_model *llm_model_create(const struct llm_config *c, uint64_t seed, struct llm_err *e) LLM_MUST_CHECK;
/* From `.llm` or safetensors (with metadata llm.config, or config.json beside it) or a Hugging Face folder (one file or several), "-" is stdin.
 * Weights keep the file's dtype, mapped where the layout serves. Names, shapes and dtypes are checked against the configuration: missing, extra,
 * wrong shape are each one clear error. */
struct llm_model *llm_model_load(const char *path, struct llm_err *e) LLM_MUST_CHECK;
void llm_model_destroy(struct llm_model *m);
struct llm_param *llm_model_find(const struct llm_model *m, const char *name);
/* A fresh model of `c` with the weights that `from` has under the same names, and its tokenizer and chat template, which are all taken from it:
 * `from` can then only be destroyed. Weights keep their types; fresh ones are F32. */
struct llm_model *llm_model_graft(struct llm_model *from, const struct llm_config *c, uint64_t seed, struct llm_err *e) LLM_MUST_CHECK;

/* ---- parts ---- */
/* The table in which tokens are looked up. */
struct llm_param *llm_model_embedding(const struct llm_model *m);
/* The head's matrix [vocab, hidden] (the embedding when tied). */
struct llm_param *llm_model_head(const struct llm_model *m);
/* The head's bias [vocab], or NULL. */
struct llm_param *llm_model_head_bias(const struct llm_model *m);
/* The matrix of classes [num_labels, hidden], which multiplies llm_model_before_classes, and its bias or NULL. */
struct llm_param *llm_model_classes(const struct llm_model *m, struct llm_param **bias);
/* The probability of every dropout of the model, in all its stacks. */
void llm_model_set_dropout(struct llm_model *m, double p);
/* Texts will have up to `context` tokens: some scalings of rotary positions (dynamic, longrope) depend on it. Before the first pass. */
int llm_model_set_context(struct llm_model *m, int64_t context, struct llm_err *e) LLM_MUST_CHECK;

/* ---- tokens and classes ---- */
/* The token that stands for one to be guessed: the configuration's, else the tokenizer's [MASK] or <mask>; -1: none. */
int32_t llm_model_mask_token(const struct llm_model *m);
/* Refuses (EX_DATAERR) ids outside the vocabulary. 0 or -1. */
int llm_model_check_ids(const struct llm_model *m, const int32_t *ids, int64_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Tokens that end a text, each once: the configuration's, the tokenizer's own, and those that its vocabulary is known to end turns with. */
#define LLM_MAX_ENDS 32
size_t llm_model_ends(const struct llm_model *m, int32_t ids[LLM_MAX_ENDS]);
/* Names of classes from a configuration's "id2label", and into one with what goes with them; 0 or -1 (write: without memory). */
int llm_model_read_labels(struct llm_model *m, const json_t *config, struct llm_err *e) LLM_MUST_CHECK;
int llm_model_write_labels(const struct llm_model *m, json_t *config) LLM_MUST_CHECK;
/* 0, or -1 (EX_UNAVAILABLE) for an encoder, whose tokens see both ways. */
int llm_model_must_be_causal(const struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
/* As llm_model_must_be_causal; refuses classifiers and models that compare texts too: they predict no next token. */
int llm_model_must_generate(const struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
/* As llm_model_must_generate; refuses an encoder-decoder too, which answers texts and continues none. */
int llm_model_must_continue(const struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;

/* ---- saving ---- */
/* Everything that a checkpoint of this model stores except training state: metadata (llm.config, llm.fingerprint, …) and tensors (weights, tokenizer
 * and its tables). Appends to growable arrays; tensor data is borrowed from the model. */
struct llm_tensor_list { struct llm_tensor_out *v; size_t n, room; };
int llm_model_describe(struct llm_model *m, json_t *meta, struct llm_tensor_list *tensors, struct llm_err *e) LLM_MUST_CHECK;
/* Of tensors whose data it leaves NULL (matrices that stand for their roundings, and are written in BF16) bytes [from, from + n), as
 * llm_checkpoint_options.give; arg: the model. */
void llm_model_give(void *arg, const char *name, uint64_t from, size_t n, void *out);
/* Fills m->fingerprint where it is not known yet (it reads all weights: only a cache needs it). */
int llm_model_fingerprint(struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
/* The same of the model without its adapters, before anything has asked for the fingerprint with them. */
int llm_model_base_fingerprint(struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
/* Writes the model alone. */
int llm_model_save(struct llm_model *m, struct llm_output *o, const struct llm_checkpoint_options *opt, struct llm_err *e) LLM_MUST_CHECK;
/* The same as GGUF, as llama.cpp reads it. What GGUF cannot say of a model or of its tokenizer is EX_UNAVAILABLE, found before anything is
 * written. */
int llm_model_save_gguf(struct llm_model *m, struct llm_output *o, struct llm_err *e) LLM_MUST_CHECK;
/* The same in parts (io/gguf_write.h, llm_gguf_write_parts). */
int llm_model_save_gguf_parts(struct llm_model *m, const char *path, int64_t max_bytes, int64_t max_tensors, struct llm_err *e) LLM_MUST_CHECK;

#endif
