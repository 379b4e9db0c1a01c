/* n-gram models: tables of natural log-probabilities and backoffs in F32, mapped if the file is not compressed (formats/ngram.md). The next token
 * depends on the last order - 1 tokens of the text alone; the token `begin` precedes its first.
 *
 *   log p(w | h) = log_prob of (h, w) where that n-gram is listed, else backoff(h) + log p(w | h without its oldest token)
 *
 * Contexts form a trie from the newest token to older ones. Contexts of k tokens with the same newest k - 1 tokens are adjacent, in ascending order
 * of the oldest token. The n-grams of one context are adjacent, in ascending order of the last token. */
#ifndef LLM_MODEL_WEIGHTS_NGRAM_H
#define LLM_MODEL_WEIGHTS_NGRAM_H

#include "cpu/dtype.h"
#include "io/checkpoint.h"
#include "model/config/config.h"

#define LLM_NGRAM_MAX_TENSORS (1 + 6 * LLM_NGRAM_MAX_ORDER)

/* An array of a model's tables, and how its memory is released. */
enum llm_ngram_owner { LLM_NGRAM_BORROWED, LLM_NGRAM_HEAP /* free */, LLM_NGRAM_MAPPED /* munmap */ };
struct llm_ngram_array {
    const void *data;
    uint64_t n;
    enum llm_dtype dtype;             /* F32, U32, U16 */
    enum llm_ngram_owner owner;
};
/* The contexts of k tokens and the n-grams of k + 1 tokens. Tokens are U16 if vocab_size + 1 ids fit, else U32. */
struct llm_ngram_level {
    struct llm_ngram_array oldest;    /* [contexts]; none at k = 1, where a context's number is its token */
    struct llm_ngram_array backoff;   /* [contexts] F32 */
    struct llm_ngram_array deeper;    /* [contexts + 1] U32: index of the first context of k + 1 tokens that ends with it; none at k = order - 1 */
    struct llm_ngram_array first;     /* [contexts + 1] U32: index of its first n-gram */
    struct llm_ngram_array word, log_prob; /* [n-grams] */
};
struct llm_ngram {
    int order;                        /* 1 to LLM_NGRAM_MAX_ORDER */
    int64_t vocab_size;
    int64_t begin;                    /* the token that precedes a text; vocab_size: none does */
    struct llm_ngram_array unigram;   /* [vocab_size + 1]: the last is the probability mass of words without an id */
    struct llm_ngram_level level[LLM_NGRAM_MAX_ORDER]; /* [k], 1 ≤ k < order; k = 1 has vocab_size + 1 contexts */
    char names[LLM_NGRAM_MAX_TENSORS][32];             /* of tensors, of the last description */
};
void llm_ngram_destroy(struct llm_ngram *g); /* NULL is fine */
uint64_t llm_ngram_contexts(const struct llm_ngram *g, int k);
/* The number of n-grams of k + 1 tokens; k = 0: of tokens that have a probability. */
uint64_t llm_ngram_count(const struct llm_ngram *g, int k);

/* The tables of a checkpoint of this configuration. Data in a mapped file are borrowed: the checkpoint must outlive the result. Shapes are checked
 * here, offsets and tokens where they are used. NULL: see `e`. */
struct llm_ngram *llm_ngram_load(struct llm_checkpoint *f, const struct llm_config *c, struct llm_err *e) LLM_MUST_CHECK;
/* The array of tensor i of a description, and its name; NULL: there are only i tensors. */
const struct llm_ngram_array *llm_ngram_tensor(const struct llm_ngram *g, size_t i, char name[32]);
struct llm_model;
/* A model of these tables, which it owns from here on (after a failure they are destroyed), without a tokenizer. */
struct llm_model *llm_ngram_model(struct llm_ngram *g, int64_t bos, int64_t eos, struct llm_err *e) LLM_MUST_CHECK;

/* Bytes of all tables. */
double llm_ngram_bytes(const struct llm_ngram *g);

/* ---- queries ---- */
/* The contexts in the tables that are suffixes of a text. */
struct llm_ngram_state {
    int n;
    uint64_t context[LLM_NGRAM_MAX_ORDER];  /* [k]: of k tokens, 1 ≤ k ≤ n */
    float backoff[LLM_NGRAM_MAX_ORDER + 1]; /* [k]: Σ backoffs of the contexts longer than k tokens */
};
/* newest [n]: the last tokens of a text, the newest first; n ≤ order - 1. */
void llm_ngram_find(const struct llm_ngram *g, const int32_t *newest, int n, struct llm_ngram_state *s);
float llm_ngram_log_prob(const struct llm_ngram *g, const struct llm_ngram_state *s, int64_t word);
/* Of all ids: out [vocab_size]. */
void llm_ngram_log_probs(const struct llm_ngram *g, const struct llm_ngram_state *s, float *out);

/* ---- ARPA ---- */
/* Reads an ARPA file, which it closes. Words become tokens in the order of the unigrams; <unk> is added if the file has none. <s> begins texts, </s>
 * ends them. The model has a tokenizer that splits at white space. */
struct llm_model *llm_arpa_read(struct llm_file *f, struct llm_err *e) LLM_MUST_CHECK;
/* Writes an n-gram model as ARPA text. Words are the tokenizer's tokens, with white space and ambiguous texts escaped; without a tokenizer they are
 * ids. */
int llm_arpa_write(const struct llm_model *m, struct llm_output *o, struct llm_err *e) LLM_MUST_CHECK;

#endif
