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
    char fingerprint[17];          /* XXH64 of weights and configuration in hexadecimal, stored in files; "": not known (llm_model_fingerprint) */
    struct llm_labels labels;      /* names of the config.num_labels classes; empty: classes have numbers only */
    char *chat_template;           /* Jinja, or NULL; owned */
    char *preprocessor;            /* models of pictures: preprocessor_config.json (token/image/processor.h), or NULL; owned */
    json_t *training;              /* state stored by llm-train, or NULL; owned */
    struct llm_checkpoint **files; /* [n_files] kept open while weights are borrowed from their mappings; owned */
    size_t n_files;
    struct llm_checkpoint *run_file; /* what a run of parameters beside the model (model/weights/beside.h) was saved in; owned; NULL: no such run */
    int64_t rope_context;          /* the context that rotary frequencies are chosen for; 0: they do not depend on it */
    void *layout;                  /* the family's own view of params (pointers by layer) */
    struct llm_lora *lora;         /* its adapters (model/weights/lora.h), a list; owned; NULL: none */
    bool adapted;                  /* the fingerprint is that of the model with its adapters */
    struct llm_ngram *ngram;       /* the tables of an n-gram model, which has no params; owned; NULL: another model */
};
/* A model whose parameters have names and shapes, but no data. */
struct llm_model *llm_model_shape(const struct llm_config *c, struct llm_err *e) LLM_MUST_CHECK;
/* A new model with initial weights in F32, drawn from `seed`: normal(0, initializer_range), in some families scaled by 1/sqrt(2·layers) for residual
 * projections. Philox is indexed by parameter and element, so threads do not change them. */
struct llm_model *llm_model_create(const struct llm_config *c, uint64_t seed, struct llm_err *e) LLM_MUST_CHECK;
/* From `.llm` or safetensors (with metadata llm.config, or config.json beside it) or a Hugging Face folder (one file or several), "-" is stdin.
 * Weights keep the file's dtype, mapped where the layout serves. Names, shapes and dtypes are checked against the configuration: missing, extra,
 * wrong shape are each one clear error. */
struct llm_model *llm_model_load(const char *path, struct llm_err *e) LLM_MUST_CHECK;
/* From now on, `read` is called of each parameter that a load has read into memory of its own, before the next ones are: it may move the data. NULL:
 * they stay, and all are read at once, which is faster. */
void llm_model_on_read(void (*read)(void *arg, struct llm_param *p), void *arg);
/* As llm_model_load, of a language model in a GGUF file whose vision tower and projector are in llama.cpp's `mmproj` file (NULL: llm_model_load). The
 * placeholder of a picture is the token <image>, or the unknown token if there is none. */
struct llm_model *llm_model_load_seeing(const char *path, const char *mmproj, struct llm_err *e) LLM_MUST_CHECK;
/* Gives a model that has none a preprocessor, whose reference is taken over (NULL: out of memory). 0 or -1. */
int llm_model_give_preprocessor(struct llm_model *m, json_t *o, struct llm_err *e) LLM_MUST_CHECK;
void llm_model_destroy(struct llm_model *m);
/* Weights or adapters have changed: what was computed of them alone (norms of adapters' magnitudes, Hyena's filters,
 * MLA's absorbed matrices) is computed again. */
void llm_model_changed(struct llm_model *m);
struct llm_param *llm_model_find(const struct llm_model *m, const char *name);
/* A new model of `c` that takes the weights of the same names, the tokenizer and the chat template from `from`, which can then only be destroyed.
 * Weights keep their types; parameters that `from` lacks are initialised, in F32. */
struct llm_model *llm_model_graft(struct llm_model *from, const struct llm_config *c, uint64_t seed, struct llm_err *e) LLM_MUST_CHECK;
/* Copies the weights of the vision tower of `from` (CLIP) to a model that reads pictures in texts, whose tower must have the same configuration, and
 * its preprocessor if `m` has none. 0 or -1. */
int llm_model_take_tower(struct llm_model *m, const struct llm_model *from, struct llm_err *e) LLM_MUST_CHECK;

/* ---- parts ---- */
/* The table [vocab, embedding] in which tokens are looked up. */
struct llm_param *llm_model_embedding(const struct llm_model *m);
/* The head's matrix [vocab, hidden] (the embedding when tied). */
struct llm_param *llm_model_head(const struct llm_model *m);
/* The head's bias [vocab], or NULL. */
struct llm_param *llm_model_head_bias(const struct llm_model *m);
/* The matrix of classes [num_labels, width], which multiplies llm_model_before_classes, and its bias or NULL. Head 1: of
 * LLM_CLASSES_OF_TWO_TOKENS, each of whose matrices [num_labels, hidden] multiplies one half; NULL: there is one head. */
struct llm_param *llm_model_classes(const struct llm_model *m, int head, struct llm_param **bias);
/* Models that compare vectors: the factor of their products, of InfoNCE at most 100. */
double llm_model_logit_scale(const struct llm_model *m);
/* What is added to a logit of the sigmoid loss; 0 without that loss. */
double llm_model_logit_bias(const struct llm_model *m);
/* The probability of every dropout of the model, in all its stacks. */
void llm_model_set_dropout(struct llm_model *m, double p);
/* Chooses rotary frequencies for texts of up to `context` tokens, on which some scalings (dynamic, longrope) depend. To be called before the first
 * pass. 0 or -1. */
int llm_model_set_context(struct llm_model *m, int64_t context, struct llm_err *e) LLM_MUST_CHECK;

/* ---- tokens and classes ---- */
/* The mask token, which replaces tokens to be predicted: the configuration's, else the tokenizer's [MASK] or <mask>; -1: none. */
int32_t llm_model_mask_token(const struct llm_model *m);
/* Refuses (EX_DATAERR) ids outside the vocabulary. 0 or -1. */
int llm_model_check_ids(const struct llm_model *m, const int32_t *ids, int64_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Tokens that end a text, each once: the configuration's, the tokenizer's own, and those that its vocabulary is known to end turns with. */
#define LLM_MAX_ENDS 32
size_t llm_model_ends(const struct llm_model *m, int32_t ids[LLM_MAX_ENDS]);
/* Reads the names of classes from a configuration's "id2label"; writes them, with the keys that depend on them, to a configuration. 0 or -1. */
int llm_model_read_labels(struct llm_model *m, const json_t *config, struct llm_err *e) LLM_MUST_CHECK;
int llm_model_write_labels(const struct llm_model *m, json_t *config) LLM_MUST_CHECK;
/* If the model takes a text's vector from its end token (LLM_POOL_EOS) and the text has none, appends it to the malloced ids[0..*n). 0 or -1. */
int llm_model_end_text(const struct llm_model *m, int32_t **ids, size_t *n, struct llm_err *e) LLM_MUST_CHECK;
/* Fills the malloced ids[0..*n) up to the model's context if the configuration has text_padding. 0 or -1. */
int llm_model_pad_text(const struct llm_model *m, int32_t **ids, size_t *n, struct llm_err *e) LLM_MUST_CHECK;
/* Refuses encoders, whose tokens also see later tokens: -1 (EX_UNAVAILABLE). Else 0. */
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
/* The same tensors alone, for a process that helps another to write the checkpoint. `data`: false if names and shapes suffice. */
int llm_model_describe_tensors(struct llm_model *m, bool data, struct llm_tensor_list *tensors, struct llm_err *e) LLM_MUST_CHECK;
/* llm_checkpoint_options.give; arg: the model. Writes bytes [from, from + n) of a tensor that was described with data NULL: a matrix whose F32 data
 * represent BF16 values, which is rounded as it is written, or one that files have transposed or with rows in another order. */
void llm_model_give(void *arg, const char *name, uint64_t from, size_t n, void *out);
/* Computes m->fingerprint unless it is known. That reads all weights, so only what needs it (a cache file, an adapter) calls this. 0 or -1. */
int llm_model_fingerprint(struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
/* As llm_model_fingerprint, of the model without its adapters. To be called before the fingerprint with adapters is computed. */
int llm_model_base_fingerprint(struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
/* Writes the model alone. */
int llm_model_save(struct llm_model *m, struct llm_output *o, const struct llm_checkpoint_options *opt, struct llm_err *e) LLM_MUST_CHECK;
/* Writes the model alone as GGUF that llama.cpp reads. A model or tokenizer that GGUF cannot express is refused (EX_UNAVAILABLE) before anything is
 * written. */
int llm_model_save_gguf(struct llm_model *m, struct llm_output *o, struct llm_err *e) LLM_MUST_CHECK;
/* Bytes that a parameter of this type takes in a GGUF file: what llama.cpp reads in F32 alone is F32 there, and the tied embedding of families for
 * which it wants a head is there twice. */
uint64_t llm_model_gguf_bytes(const struct llm_model *m, const struct llm_param *p, enum llm_dtype type);
/* Whether GGUF can express the model and its tokenizer, whatever the types of its tensors. 0 or -1 (EX_UNAVAILABLE). */
int llm_model_check_gguf(struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
/* As llm_model_save_gguf, in parts (llm_gguf_write_parts, io/gguf_write.h). */
int llm_model_save_gguf_parts(struct llm_model *m, const char *path, int64_t max_bytes, int64_t max_tensors, struct llm_err *e) LLM_MUST_CHECK;

#endif
