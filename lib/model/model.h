/* Models: one definition of each architecture serves training, prefill, decoding, cost accounting and checkpoints.
 * A family is one file model/spec/arch/<name>.c and a row in arch.c: its configuration keys, its parameters' names and shapes, its forward function,
 * built from model/forward/block/<name>.c. */
#ifndef LLM_MODEL_MODEL_H
#define LLM_MODEL_MODEL_H

#include "base/labels.h"
#include "io/checkpoint.h"
#include "model/config/config.h"
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
    struct llm_ngram *ngram;       /* of n-gram models, which have no params; owned; NULL */
};

/* What a forward pass works on. Training: n_rows × row_len tokens (also in ctx). Inference: sequences with caches. */
struct llm_batch {
    const int32_t *ids, *positions; /* [n_tokens]; ids NULL: all tokens are given */
    int64_t n_tokens;
    struct llm_tensor *given;       /* embeddings [*, width] that stand for some tokens, made before the pass; a gradient goes there if it takes one.
                                     * They come in place of the scaled embedding of the token's id (any valid one). NULL: none */
    const int32_t *given_row;       /* [n_tokens]: the row of `given` that stands for the token; -1: none does */
    const int32_t *doc_start;       /* as in struct llm_attn; NULL */
    const int32_t *prefixes;        /* as in struct llm_attn; NULL */
    const int32_t *kinds;           /* [n_tokens]: each token's kind of segment, checked by the caller; NULL: the first */
    const float *state;             /* training: [n_rows, state_floats] what recurrent layers, one behind the other, keep of the tokens before each
                                     * row: no gradient goes there; NULL: rows begin with nothing */
    float *state_after;             /* of the same shape: takes what they keep of its last token */
    int64_t state_floats;
    const struct llm_kv_seq *seqs;  /* inference: per layer views: seqs[layer * n_seqs + s]; NULL in training */
    int64_t n_seqs;
    const int32_t *lengths;     /* [n_rows]: tokens of each row, those behind them are padding that is not seen; NULL: all (bidirectional stacks) */
    const struct llm_batch *source; /* encoder-decoders in training: what the encoder reads, as many rows; NULL */
    const struct llm_kv_seq *memories; /* and in inference: what llm_model_remember stored, as `seqs`, with n_keys */
    struct llm_router_report *routers; /* training: the backward pass adds the routers' statistics to it; borrowed until then. NULL: none are kept */
    int64_t checkpoint_every;       /* activation checkpointing: keep every d-th block's input only; 0: none */
};

/* Fresh weights from `seed` (normal(0, initializer_range), residual projections scaled by 1/sqrt(2·layers) for gpt2; Philox by parameter number, so
 * not by threads), F32. */
struct llm_model *llm_model_create(const struct llm_config *c, uint64_t seed, struct llm_err *e) LLM_MUST_CHECK;
/* From `.llm` or safetensors (with metadata llm.config, or config.json beside it) or a Hugging Face folder (one file or several), "-" is stdin.
 * Weights keep the file's dtype, mapped where the layout serves. Names, shapes and dtypes are checked against the configuration: missing, extra,
 * wrong shape are each one clear error. */
struct llm_model *llm_model_load(const char *path, struct llm_err *e) LLM_MUST_CHECK;
void llm_model_destroy(struct llm_model *m);
struct llm_param *llm_model_find(const struct llm_model *m, const char *name);

/* Final hidden states [n_tokens, hidden] after the last norm. */
struct llm_tensor *llm_model_forward(struct llm_ctx *c, struct llm_model *m, const struct llm_batch *b);
/* What an encoder makes of a text, or the encoder of an encoder-decoder; final hidden states. */
struct llm_tensor *llm_model_encode(struct llm_ctx *c, struct llm_model *m, const struct llm_batch *b);
/* The keys and values that an encoder-decoder's layers have of encoded tokens [n, hidden], to one cache a layer: seqs[n_layers], n each. */
void llm_model_remember(struct llm_ctx *c, struct llm_model *m, struct llm_tensor *hidden, const struct llm_kv_seq *seqs);
/* What an encoder-decoder's answer begins with. */
int32_t llm_model_answer_start(const struct llm_config *c);
/* Runs the model over a batch and names the first place (model/spec/place.h) whose values are not finite. false: all are. */
bool llm_model_first_bad(struct llm_ctx *c, struct llm_model *m, const struct llm_batch *b, char *name, size_t n);
/* Hidden states [n_tokens, hidden] from which the head predicts, for each token, the one k + 2 places on (k from 0 to num_nextn_predict_layers - 1).
 * hidden: those of k - 1, or of the model; ids: for each token the one k + 1 places on. Training alone. */
struct llm_tensor *llm_model_next(struct llm_ctx *c, struct llm_model *m, int64_t k, struct llm_tensor *hidden, const int32_t *ids,
                                  const struct llm_batch *b);
/* The probability of every dropout of the model, in all its stacks. */
void llm_model_set_dropout(struct llm_model *m, double p);
/* One vector of each row of hidden states, as the configuration asks: n_rows rows of lengths[r] tokens and padding. lengths must live until the
 * backward. */
struct llm_tensor *llm_model_pool(struct llm_ctx *c, const struct llm_model *m, struct llm_tensor *hidden, const int32_t *lengths, int64_t n_rows);
/* What the matrix of classes multiplies, of pooled states; that matrix [num_labels, hidden], and its bias or NULL. */
struct llm_tensor *llm_model_before_classes(struct llm_ctx *c, const struct llm_model *m, struct llm_tensor *pooled);
struct llm_param *llm_model_classes(const struct llm_model *m, struct llm_param **bias);
/* Names of classes from a configuration's "id2label", and into one with what goes with them; 0 or -1 (write: without memory). */
int llm_model_read_labels(struct llm_model *m, const json_t *config, struct llm_err *e) LLM_MUST_CHECK;
int llm_model_write_labels(const struct llm_model *m, json_t *config) LLM_MUST_CHECK;
/* A fresh model of `c` with the weights that `from` has under the same names, and its tokenizer and chat template, which are all taken from it: it is
 * good for nothing else then. Weights keep their types; fresh ones are F32. */
struct llm_model *llm_model_graft(struct llm_model *from, const struct llm_config *c, uint64_t seed, struct llm_err *e) LLM_MUST_CHECK;
/* The table in which tokens are looked up. */
struct llm_param *llm_model_embedding(const struct llm_model *m);
/* The head's matrix [vocab, hidden] (the embedding when tied). */
struct llm_param *llm_model_head(const struct llm_model *m);
/* What the head multiplies: the hidden states, or what a transform of the model's makes of them. */
struct llm_tensor *llm_model_before_head(struct llm_ctx *c, struct llm_model *m, struct llm_tensor *hidden);
/* The head's bias [vocab], or NULL. */
struct llm_param *llm_model_head_bias(const struct llm_model *m);
/* The token that stands for one to be guessed: the configuration's, else the tokenizer's [MASK] or <mask>; -1: none. */
int32_t llm_model_mask_token(const struct llm_model *m);
/* 0, or -1 (EX_UNAVAILABLE) for an encoder, which predicts no next token. */
int llm_model_must_generate(const struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
/* The same for one that only answers texts (an encoder-decoder) as well: nothing is continued. */
int llm_model_must_continue(const struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
/* What looks at the logits [n, vocab] of a cross-entropy (struct llm_cross_entropy); NULL if nobody does. */
const struct llm_inner *llm_model_watched_logits(struct llm_ctx *c, int64_t n);
/* logits [rows, vocab] = hidden · headᵀ × logit_scale, for inference. */
struct llm_tensor *llm_model_logits(struct llm_ctx *c, struct llm_model *m, struct llm_tensor *hidden);
/* Refuses (EX_DATAERR) ids outside the vocabulary. 0 or -1. */
int llm_model_check_ids(const struct llm_model *m, const int32_t *ids, int64_t n, struct llm_err *e) LLM_MUST_CHECK;

/* Tokens that a text may have where nobody says how many: max_position_embeddings, or what its rotary scaling (longrope) was first made for. */
int64_t llm_model_default_context(const struct llm_config *c);
/* Texts will have up to `context` tokens: some scalings of rotary positions (dynamic, longrope) depend on it. Before the first pass. */
int llm_model_set_context(struct llm_model *m, int64_t context, struct llm_err *e) LLM_MUST_CHECK;

/* What a layer keeps of a sequence from one pass to the next: for each token keys and values, and parts whose size does not grow. */
#define LLM_STATE_PARTS 2
struct llm_state_part {
    const char *name;              /* as in files: "h", "c", "conv", "ssm", "window" */
    int64_t rows, cols;            /* F32, all 0 before the first token */
};
struct llm_state_shape {
    int64_t n_kv_heads, d_k, d_v;  /* of each token; n_kv_heads 0: nothing. d_v 0: a value is the first channels of its key (MLA's latent vector) */
    int64_t source;                /* the layer, not behind this one, whose keys and values this layer reads; its own number: it makes them */
    struct llm_state_part parts[LLM_STATE_PARTS]; /* those with a name */
};
struct llm_state_shape llm_model_state(const struct llm_config *c, int64_t layer);
/* Numbers in all parts of a layer; they lie one after another. */
int64_t llm_state_floats(const struct llm_state_shape *s);
/* Whether training can carry the layers' states from one window of a text to the next. */
bool llm_model_can_carry(const struct llm_config *c);
/* Whether some layer's state cannot be cut back to an earlier token. */
bool llm_model_is_recurrent(const struct llm_config *c);

/* Everything that a checkpoint of this model stores except training state: metadata (llm.config, llm.fingerprint, …) and tensors (weights, tokenizer
 * and its tables). Appends to growable arrays; tensor data is borrowed from the model. */
struct llm_tensor_list { struct llm_tensor_out *v; size_t n, room; };
int llm_model_describe(struct llm_model *m, json_t *meta, struct llm_tensor_list *tensors, struct llm_err *e) LLM_MUST_CHECK;
/* Of tensors whose data it leaves NULL (matrices that stand for their roundings, and are written in BF16) bytes [from, from + n), as
 * llm_checkpoint_options.give; arg: the model. */
void llm_model_give(void *arg, const char *name, uint64_t from, size_t n, void *out);
/* Tokens that end a text, each once: the configuration's, the tokenizer's own, and those that its vocabulary is known to end turns with. */
#define LLM_MAX_ENDS 32
size_t llm_model_ends(const struct llm_model *m, int32_t ids[LLM_MAX_ENDS]);
/* Fills m->fingerprint where it is not known yet (it reads all weights: only a cache needs it). */
int llm_model_fingerprint(struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
/* Writes the model alone. */
int llm_model_save(struct llm_model *m, struct llm_output *o, const struct llm_checkpoint_options *opt, struct llm_err *e) LLM_MUST_CHECK;
/* The same as GGUF, as llama.cpp reads it. What GGUF cannot say of a model or of its tokenizer is EX_UNAVAILABLE, found before anything is
 * written. */
int llm_model_save_gguf(struct llm_model *m, struct llm_output *o, struct llm_err *e) LLM_MUST_CHECK;
/* The same in parts (io/gguf_write.h, llm_gguf_write_parts). */
int llm_model_save_gguf_parts(struct llm_model *m, const char *path, int64_t max_bytes, int64_t max_tensors, struct llm_err *e) LLM_MUST_CHECK;

/* ---- cost, from what each module says of itself (model/spec/cost.c) ---- */
struct llm_cost_row {
    int unit;                     /* enum llm_unit (model/spec/block.h, where their names are too) */
    double params, flops_forward; /* per token; FLOPs at the context given */
};
/* Rows of the model; formulas of the transformer-block notes. Returns how many rows (≤ room). */
size_t llm_model_cost(const struct llm_config *c, int64_t context, struct llm_cost_row *rows, size_t room);
double llm_model_params(const struct llm_config *c);
/* Those that a token meets: of experts only the share that it goes to. */
double llm_model_active_params(const struct llm_config *c);
double llm_model_kv_bytes_per_token(const struct llm_config *c, enum llm_dtype cache);
double llm_model_state_bytes(const struct llm_config *c); /* of a sequence, however long */

#endif
