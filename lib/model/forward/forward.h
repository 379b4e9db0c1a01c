/* Forward passes of models: a batch to hidden states, and what comes after them. One walk (model/forward/stack.c) serves training, prefill, decoding,
 * recomputation and observers (model/forward/watch.h). */
#ifndef LLM_MODEL_FORWARD_FORWARD_H
#define LLM_MODEL_FORWARD_FORWARD_H

#include "model/weights/model.h"

/* What a forward pass works on. Training: n_rows × row_len tokens (also in ctx). Inference: sequences with caches. */
struct llm_batch {
    const int32_t *ids, *positions; /* [n_tokens]; ids NULL: all tokens are given */
    int64_t n_tokens;
    struct llm_tensor *given;       /* [*, width] embeddings for some tokens, computed before the pass, which replace the scaled embedding of the
                                     * token's id. The backward pass adds to their gradient if they have one. NULL: none */
    const int32_t *given_row;       /* [n_tokens]: the row of `given` that stands for the token; -1: none does */
    struct llm_tensor *patches;     /* vision transformers and towers: [*, channels * side * side] pixels of patches (channel, row, column), whose
                                     * projections stand for tokens as `given` does, by given_row. NULL otherwise */
    const int32_t *doc_start;       /* as in struct llm_attn, or NULL */
    const int32_t *prefixes;        /* as in struct llm_attn, or NULL */
    const int32_t *kinds;           /* [n_tokens]: each token's token type, checked by the caller; NULL: all are type 0 */
    const float *state;             /* training: [n_rows, state_floats] the states of all recurrent layers, in order, before each row; constants in
                                     * the backward pass. NULL: rows begin with zeros */
    float *state_after;             /* [n_rows, state_floats]: set to the states after each row; NULL: they are not needed */
    int64_t state_floats;
    const struct llm_kv_seq *seqs;  /* inference: per layer views: seqs[layer * n_seqs + s]; NULL in training */
    int64_t n_seqs;
    const int32_t *lengths;         /* bidirectional stacks: [n_rows] tokens of each row, which padding follows; NULL: rows have no padding */
    const struct llm_batch *source; /* encoder-decoders in training: the encoder's batch, with as many rows; NULL otherwise */
    const struct llm_kv_seq *memories; /* encoder-decoders in inference: what llm_model_remember stored, as `seqs`, with n_keys */
    struct llm_router_report *routers; /* training: the backward pass adds the routers' statistics to it; borrowed until then. NULL: none are kept */
    int64_t checkpoint_every;       /* activation checkpointing: keep every d-th block's input only; 0: none */
};

/* A batch of n pictures for a vision transformer or tower, whose configuration is `f` (llm_config_sees): a class token, registers and the patches
 * of each, in memory of `c`, with doc_start as if they were one row. The patches are not initialised. Without patches: `c` has failed. */
struct llm_batch llm_model_pictures(struct llm_ctx *c, const struct llm_config *f, int64_t n);
/* Makes picture i of that batch the pixels [num_channels, image_size, image_size]. */
void llm_model_put_picture(const struct llm_config *f, const struct llm_batch *b, int64_t i, const float *pixels);

/* Models with llm_config_projects: the rows [n * llm_config_crop_rows, hidden_size] of n crops, which stand for pictures in texts (llm_picture_rows),
 * from a batch of them. tower: the tower has a backward pass too, not only the projector. */
struct llm_tensor *llm_model_crop_embeddings(struct llm_ctx *c, struct llm_model *m, const struct llm_batch *pictures, int64_t n, bool tower);

/* Final hidden states [n_tokens, hidden] after the last norm; of a stage of a pipeline that is not the last: the output of its last layer. */
struct llm_tensor *llm_model_forward(struct llm_ctx *c, struct llm_model *m, const struct llm_batch *b);
/* Whether llm_model_forward in this context ends before the model's last layer (llm_ctx.cut), so that its result has no head. */
bool llm_model_is_cut_off(const struct llm_ctx *c, const struct llm_model *m);
/* Final hidden states [n_tokens, hidden] of an encoder, or of the encoder of an encoder-decoder. */
struct llm_tensor *llm_model_encode(struct llm_ctx *c, struct llm_model *m, const struct llm_batch *b);
/* Stores the keys and values of cross-attention that an encoder-decoder's layers compute from encoded tokens `hidden` [n, hidden], in one cache per
 * layer: seqs[n_layers], with n positions each. */
void llm_model_remember(struct llm_ctx *c, struct llm_model *m, struct llm_tensor *hidden, const struct llm_kv_seq *seqs);
/* Runs the model over a batch and names the first place (model/spec/place.h) whose values are not finite. false: all are. */
bool llm_model_first_bad(struct llm_ctx *c, struct llm_model *m, const struct llm_batch *b, char *name, size_t n);
/* Multi-token prediction, for training: hidden states [n_tokens, hidden] from which the head predicts, for each token, the one k + 2 positions later
 * (k from 0 to num_nextn_predict_layers - 1). hidden: the result for k - 1, or the model's if k is 0; ids: for each token the one k + 1 positions
 * later. */
struct llm_tensor *llm_model_next(struct llm_ctx *c, struct llm_model *m, int64_t k, struct llm_tensor *hidden, const int32_t *ids,
                                  const struct llm_batch *b);

/* ---- after the stacks ---- */
/* The input of the head: the hidden states, or the output of the model's head transform (BERT). */
struct llm_tensor *llm_model_before_head(struct llm_ctx *c, struct llm_model *m, struct llm_tensor *hidden);
/* logits [rows, vocab] = hidden · headᵀ × logit_scale, for inference. */
struct llm_tensor *llm_model_logits(struct llm_ctx *c, struct llm_model *m, struct llm_tensor *hidden);
/* The logits as if these residuals [rows, hidden] were the output of the last layer: final norm and head, for inference (nostalgebraist,
 * "interpreting GPT: the logit lens", 2020). */
struct llm_tensor *llm_model_lens(struct llm_ctx *c, struct llm_model *m, struct llm_tensor *residual);
/* The input of the head in llm_model_lens: the final norm of these residuals. */
struct llm_tensor *llm_model_lens_norm(struct llm_ctx *c, struct llm_model *m, struct llm_tensor *residual);
/* The watcher of the logits [n, vocab] of a cross-entropy (struct llm_cross_entropy.watched); NULL: nobody watches them. */
const struct llm_inner *llm_model_watched_logits(struct llm_ctx *c, int64_t n);
/* Pools the hidden states of each row of texts into one vector [n_rows, hidden], as llm_config_pooling says; of
 * pictures into what their classes are told by [n_rows, llm_config_class_width]. Row r has lengths[r] tokens of ids
 * [n_rows, row length], then padding; ids NULL: of pictures. `lengths` must live until the backward pass. */
struct llm_tensor *llm_model_pool(struct llm_ctx *c, const struct llm_model *m, struct llm_tensor *hidden, const int32_t *ids,
                                  const int32_t *lengths, int64_t n_rows);
/* Pools the hidden states of n pictures into one vector each [n, the vision tower's hidden_size]: the class token's, or by attention pooling. */
struct llm_tensor *llm_model_pool_pictures(struct llm_ctx *c, const struct llm_model *m, struct llm_tensor *hidden, int64_t n);
/* The vectors [rows, llm_config_vector] of pooled hidden states of texts, or of pictures: their projection, or themselves. */
struct llm_tensor *llm_model_project(struct llm_ctx *c, const struct llm_model *m, struct llm_tensor *pooled, bool pictures);
/* The input of the matrix of classes, from pooled states: these, or the output of BERT's pooler. */
struct llm_tensor *llm_model_before_classes(struct llm_ctx *c, const struct llm_model *m, struct llm_tensor *pooled);
/* The logits of classes [rows, num_labels] from that input. */
struct llm_tensor *llm_model_class_logits(struct llm_ctx *c, const struct llm_model *m, struct llm_tensor *x);

#endif
