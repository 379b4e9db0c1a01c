/* Forward passes of models: a batch to hidden states, and what comes after them. One walk (model/forward/stack.c) serves training, prefill, decoding,
 * recomputation and observers (model/forward/watch.h). */
#ifndef LLM_MODEL_FORWARD_FORWARD_H
#define LLM_MODEL_FORWARD_FORWARD_H

#include "model/weights/model.h"

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

/* Final hidden states [n_tokens, hidden] after the last norm. */
struct llm_tensor *llm_model_forward(struct llm_ctx *c, struct llm_model *m, const struct llm_batch *b);
/* What an encoder makes of a text, or the encoder of an encoder-decoder; final hidden states. */
struct llm_tensor *llm_model_encode(struct llm_ctx *c, struct llm_model *m, const struct llm_batch *b);
/* The keys and values that an encoder-decoder's layers have of encoded tokens [n, hidden], to one cache a layer: seqs[n_layers], n each. */
void llm_model_remember(struct llm_ctx *c, struct llm_model *m, struct llm_tensor *hidden, const struct llm_kv_seq *seqs);
/* Runs the model over a batch and names the first place (model/spec/place.h) whose values are not finite. false: all are. */
bool llm_model_first_bad(struct llm_ctx *c, struct llm_model *m, const struct llm_batch *b, char *name, size_t n);
/* Hidden states [n_tokens, hidden] from which the head predicts, for each token, the one k + 2 places on (k from 0 to num_nextn_predict_layers - 1).
 * hidden: those of k - 1, or of the model; ids: for each token the one k + 1 places on. Training alone. */
struct llm_tensor *llm_model_next(struct llm_ctx *c, struct llm_model *m, int64_t k, struct llm_tensor *hidden, const int32_t *ids,
                                  const struct llm_batch *b);

/* ---- after the stacks ---- */
/* What the head multiplies: the hidden states, or what a transform of the model's makes of them. */
struct llm_tensor *llm_model_before_head(struct llm_ctx *c, struct llm_model *m, struct llm_tensor *hidden);
/* logits [rows, vocab] = hidden · headᵀ × logit_scale, for inference. */
struct llm_tensor *llm_model_logits(struct llm_ctx *c, struct llm_model *m, struct llm_tensor *hidden);
/* The logits as if these residuals [rows, hidden] were the output of the last layer: final norm and head, for inference (nostalgebraist,
 * "interpreting GPT: the logit lens", 2020). */
struct llm_tensor *llm_model_lens(struct llm_ctx *c, struct llm_model *m, struct llm_tensor *residual);
/* What looks at the logits [n, vocab] of a cross-entropy (struct llm_cross_entropy); NULL if nobody does. */
const struct llm_inner *llm_model_watched_logits(struct llm_ctx *c, int64_t n);
/* One vector of each row of hidden states, as the configuration asks: n_rows rows of lengths[r] tokens and padding. lengths must live until the
 * backward pass. */
struct llm_tensor *llm_model_pool(struct llm_ctx *c, const struct llm_model *m, struct llm_tensor *hidden, const int32_t *lengths, int64_t n_rows);
/* What the matrix of classes multiplies, of pooled states. */
struct llm_tensor *llm_model_before_classes(struct llm_ctx *c, const struct llm_model *m, struct llm_tensor *pooled);

#endif
