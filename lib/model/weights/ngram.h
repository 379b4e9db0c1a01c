/* n-gram models: tables of log-probabilities (natural, F32) and backoffs, mapped where the file is unpacked (formats/ngram.md). What a text was so
 * far counts by its last order - 1 tokens alone, with the beginning of the text before its first.
 *
 *   log p(w | h) = log_prob of (h, w) where that n-gram is listed, else backoff(h) + log p(w | h without its oldest token)
 *
 * Contexts form a trie from the newest token to older ones: the contexts of k tokens whose newer k - 1 are the same stand together, oldest token
 * ascending; the n-grams of one context stand together, last token ascending. */
#ifndef LLM_MODEL_WEIGHTS_NGRAM_H
#define LLM_MODEL_WEIGHTS_NGRAM_H

#include "cpu/dtype.h"
#include "io/checkpoint.h"
#include "model/config/config.h"

#define LLM_NGRAM_MAX_TENSORS (1 + 6 * LLM_NGRAM_MAX_ORDER)

/* Numbers of a model, and how they are given back. */
enum llm_ngram_owner { LLM_NGRAM_BORROWED, LLM_NGRAM_HEAP /* free */, LLM_NGRAM_MAPPED /* munmap */ };
struct llm_ngram_array {
    const void *data;
    uint64_t n;
    enum llm_dtype dtype;             /* F32, U32, U16 */
    enum llm_ngram_owner owner;
};
/* Contexts of k tokens, and the n-grams of k + 1. Tokens are U16 where vocab_size + 1 ids fit, else U32. */
struct llm_ngram_level {
    struct llm_ngram_array oldest;    /* [contexts]; none at k = 1, where a context's number is its token */
    struct llm_ngram_array backoff;   /* [contexts] F32 */
    struct llm_ngram_array deeper;    /* [contexts + 1] U32: where the contexts of k + 1 tokens begin that end with it; none at k = order - 1 */
    struct llm_ngram_array first;     /* [contexts + 1] U32: where its n-grams begin */
    struct llm_ngram_array word, log_prob; /* [n-grams] */
};
struct llm_ngram {
    int order;                        /* 1 to LLM_NGRAM_MAX_ORDER */
    int64_t vocab_size;
    int64_t begin;                    /* what stands before a text: a token's id, or vocab_size: no token does */
    struct llm_ngram_array unigram;   /* [vocab_size + 1]: the last is the share of what no id stands for */
    struct llm_ngram_level level[LLM_NGRAM_MAX_ORDER]; /* [k], 1 ≤ k < order; k = 1 has vocab_size + 1 contexts */
    char names[LLM_NGRAM_MAX_TENSORS][32];             /* of tensors, of the last description */
};
void llm_ngram_destroy(struct llm_ngram *g); /* NULL is fine */
uint64_t llm_ngram_contexts(const struct llm_ngram *g, int k);
/* N-grams of k + 1 tokens; k = 0: tokens that can come. */
uint64_t llm_ngram_count(const struct llm_ngram *g, int k);

/* The tensors of a checkpoint of this configuration; borrowed from it where it is mapped, and then no longer there than it. Shapes are checked;
 * what offsets and tokens say is checked where it is used. */
struct llm_ngram *llm_ngram_load(struct llm_checkpoint *f, const struct llm_config *c, struct llm_err *e) LLM_MUST_CHECK;
/* Which tensor of the description is which array: NULL when i is the number of tensors. */
const struct llm_ngram_array *llm_ngram_tensor(const struct llm_ngram *g, size_t i, char name[32]);
struct llm_model;
/* A model of these tables, which it takes over (also on failure), without a tokenizer. */
struct llm_model *llm_ngram_model(struct llm_ngram *g, int64_t bos, int64_t eos, struct llm_err *e) LLM_MUST_CHECK;

/* Bytes of all tables. */
double llm_ngram_bytes(const struct llm_ngram *g);

/* ---- queries ---- */
/* The contexts that a text's end has in the tables, the shortest first. */
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
/* Reads a file; takes it over. Words become tokens in the order of the unigrams (and <unk>, where the file has none); <s> stands before texts, </s>
 * ends them. The model has a tokenizer that splits at white space. */
struct llm_model *llm_arpa_read(struct llm_file *f, struct llm_err *e) LLM_MUST_CHECK;
/* Words are the tokenizer's pieces, white space and what would be ambiguous escaped; without a tokenizer ids. */
int llm_arpa_write(const struct llm_model *m, struct llm_output *o, struct llm_err *e) LLM_MUST_CHECK;

#endif
