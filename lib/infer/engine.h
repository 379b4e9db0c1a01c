/* Runs a model over sequences with caches. The result of a token does not depend on what else is in the pass, nor on how a prompt is cut into
 * passes (lib/README.md, Canonical order). */
#ifndef LLM_INFER_ENGINE_H
#define LLM_INFER_ENGINE_H

#include "infer/knn.h"
#include "infer/kv.h"
#include "infer/predictor.h"
#include "infer/album.h"

struct llm_engine {
    struct llm_model *model;   /* borrowed */
    const struct llm_predictor *predictor; /* the model's */
    const struct llm_knn *knn; /* mixes into all predictions; borrowed; NULL: none */
    struct llm_ctx ctx;
    struct llm_kv_pool pool;
    int64_t context;           /* maximum number of tokens of a sequence */
    int64_t draft;             /* tokens drafted at a time */
    int64_t batch;             /* maximum number of tokens of a pass; at least `context` if the model reads a prompt together */
    int32_t *ids, *positions;  /* [batch] */
    struct llm_kv_seq *seqs;
    size_t seqs_room;
    struct llm_kv_seq *memories; /* as seqs, of encoder-decoders */
    size_t memories_room;
    const float **factors;     /* of the last pass's tokens, then of the rows that logits are wanted of (struct llm_adapter_rows) */
    size_t factors_room;
    int64_t n_factors;         /* 0: all adapters act on all tokens of the pass */
    const float **strengths;   /* of the last pass's sequences (struct llm_watch) */
    size_t strengths_room;
    struct llm_album album;    /* the pictures of texts; empty unless the model reads them */
    int64_t passes, tokens;    /* done so far */
    int64_t room;              /* tokens of the largest pass whose activations still have memory */
    int64_t warm_at;           /* the pass before which the memory of warm-up is released; 0: no prompt was read yet */
};

struct llm_engine_options {
    enum llm_compute compute;
    const char *cache;         /* types of the cache (infer/kvtypes.h), borrowed; NULL: the compute type's */
    int64_t context;           /* 0: llm_config_default_context */
    int64_t batch;
    int64_t draft;             /* maximum number of tokens drafted at a time (infer/draft.h); 0: none */
};
/* Zero-initialise `g`; release it either way. */
int llm_engine_init(struct llm_engine *g, struct llm_model *m, const struct llm_engine_options *o, struct llm_err *e) LLM_MUST_CHECK;
void llm_engine_release(struct llm_engine *g);
/* Refuses a text of n tokens, which is longer than the context: -1. */
int llm_engine_too_long(const struct llm_engine *g, int64_t n, struct llm_err *e) LLM_MUST_CHECK;

/* A sequence's part of a pass: n ≥ 1 tokens that follow what `kv` holds. */
struct llm_feed {
    struct llm_kv *kv;
    const int32_t *ids;        /* of the vocabulary, or of pictures (llm_engine_show) */
    int64_t n;
    bool together;             /* these tokens attend to each other in both directions, as the prompt of a model with prefix_lm does */
};
/* One pass over all feeds (Σ n ≤ batch): afterwards the caches hold the tokens, and `r` has a row for each in the order of the feeds, valid until the
 * next pass. 0 or -1. */
int llm_engine_advance(struct llm_engine *g, const struct llm_feed *feeds, int64_t n, struct llm_reading *r, struct llm_err *e) LLM_MUST_CHECK;
/* Logits [n_rows, vocab_size] of what follows some rows of a reading, on top of it; NULL on failure. */
float *llm_engine_predict(struct llm_engine *g, const struct llm_reading *r, const int64_t *rows, int64_t n_rows, struct llm_err *e) LLM_MUST_CHECK;
/* llm_engine_advance of a network: its final hidden states [Σ n, hidden_size]; NULL on failure, and of a predictor without hidden states. */
struct llm_tensor *llm_engine_run(struct llm_engine *g, const struct llm_feed *feeds, int64_t n, struct llm_err *e) LLM_MUST_CHECK;
/* An encoder-decoder encodes the source ids[0..n), n ≥ 1. `kv`, empty before, then has the keys and values that cross-attention reads, and takes the
 * answer's tokens, the first of which is llm_config_answer_start's. */
int llm_engine_remember(struct llm_engine *g, struct llm_kv *kv, const int32_t *ids, int64_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Runs an encoder, without a cache: the texts' ids one after another, and their token types (NULL: 0); lengths[n_texts], none longer
 * than the context. Texts do not see each other. Final hidden states, as of llm_engine_run. */
struct llm_tensor *llm_engine_encode(struct llm_engine *g, const int32_t *ids, const int32_t *kinds, const int64_t *lengths, int64_t n_texts,
                                     struct llm_err *e) LLM_MUST_CHECK;
/* Runs a vision transformer or tower over pictures [n, num_channels, image_size, image_size], which do not see each other. Final hidden states of
 * each picture's class token and patches, as of llm_engine_run. */
struct llm_tensor *llm_engine_see(struct llm_engine *g, const float *pixels, int64_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Cuts `kv` back to its first n tokens. If that is impossible (llm_kv_can_truncate), the n tokens are run again from the beginning.
 * 0, 1 if a signal was caught, -1. */
int llm_engine_rewind(struct llm_engine *g, struct llm_kv *kv, int64_t n, struct llm_err *e) LLM_MUST_CHECK;
/* llm_engine_predict of a network's hidden states. */
float *llm_engine_logits(struct llm_engine *g, struct llm_tensor *hidden, const int64_t *rows, int64_t n_rows, struct llm_err *e)
    LLM_MUST_CHECK;

/* What a visitor sees of a prompt: some of its tokens, in order. */
struct llm_span {
    int64_t first, n;          /* tokens of those given to llm_engine_prefill */
    const float *hidden;       /* [n, hidden_size]; NULL of a predictor without hidden states */
    const float *logits;       /* [n, vocab_size] or NULL when not wanted */
    const struct llm_reading *reading; /* of the pass, in which the span begins at `row` */
    int64_t row;
};
#define LLM_SPAN_MAX 64        /* tokens a visit, so that logits of a whole prompt never exist */
typedef int llm_span_visit(void *arg, const struct llm_span *s, struct llm_err *e);
/* Runs `n` tokens that follow what `kv` holds, pass after pass, or `together` in one; an encoder takes them whole and leaves `kv` alone. `visit` may
 * be NULL; its -1 ends the run, and so does a caught signal (1 is returned). */
int llm_engine_prefill(struct llm_engine *g, struct llm_kv *kv, const int32_t *ids, int64_t n, bool together, bool want_logits,
                       llm_span_visit *visit, void *arg, struct llm_err *e) LLM_MUST_CHECK;

/* log softmax(logits)[id], in double; *entropy, unless NULL: -Σ p log p of the softmax. */
double llm_log_prob(const float *logits, int64_t n, int32_t id, double *entropy);
/* log softmax(scale · logits)[id], with the bits of the loss that llm_cross_entropy computes of the same logits. The logits are overwritten. */
float llm_token_log_prob(float *logits, float scale, int64_t n, int32_t id);

#endif
