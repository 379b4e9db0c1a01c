/* Byte-pair encoding of one piece: the pair with the lowest rank is merged first, the leftmost among equals. */
#ifndef LLM_TOKEN_MODEL_BPE_H
#define LLM_TOKEN_MODEL_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

#define LLM_BPE_NONE UINT32_MAX

/* A merge: ids left and right become `id`. */
struct llm_bpe_merge { uint32_t left, right, rank, id; };
/* Vocabularies that can be merged: a pair and what it makes are one number of 64 bits, so that eight are looked at in one cache line. */
#define LLM_BPE_ID_BITS 21
#define LLM_BPE_MADE_BITS 22

struct llm_tokenizer;

struct llm_bpe {
    struct llm_bpe_merge *merges; /* as they came, or NULL where the tables say the same: made when asked for (llm_tokenizer_merges); owned */
    size_t n_merges;
    /* Where each two tokens whose texts together are a token merge, no table of them is needed: the token that left and right make, or NONE.
     * There are no slots then, and what merges make are all ids. */
    uint32_t (*joined)(const struct llm_tokenizer *t, uint32_t left, uint32_t right);
    const struct llm_tokenizer *texts;
    /* What merges make, ascending, each once. Indices of these lists: */
    uint32_t *ranks;              /* NULL: the index is the rank */
    uint32_t *ids;                /* NULL: the id is first_id plus the index */
    uint32_t first_id;
    bool tied;                    /* different tokens have the same rank: indices do not stand for ranks */
    uint64_t *slots;              /* hash of pairs, 2^bits: left, right, index of what they make; all ones: empty */
    uint8_t *filter;              /* [2^bits] a bit is set where a pair may be in `slots`: most are not, and this is small enough to be near */
    int bits;
    uint32_t *bytes;              /* [256 × 256]: what two bytes make; NONE: nothing */
    uint32_t byte_id[256];        /* NONE: no token for this byte */
    uint32_t *end_id;             /* [256]: byte_id at the end of a word, where tokens that end one have a suffix; owned; NULL: byte_id */
};
/* Takes `merges` over (also when it fails). byte_id and end_id are filled by the caller before. A pair that stands twice keeps its first rank. A
 * vocabulary of 2^21 tokens or more is EX_UNAVAILABLE. */
int llm_bpe_init(struct llm_bpe *b, struct llm_bpe_merge *merges, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* The same for merges that are found by the texts of tokens: `rank` [n] of each id. */
int llm_bpe_init_joined(struct llm_bpe *b, const uint32_t *rank, size_t n, uint32_t (*joined)(const struct llm_tokenizer *, uint32_t, uint32_t),
                        const struct llm_tokenizer *texts, struct llm_err *e) LLM_MUST_CHECK;
/* The merges as they came, out[b->n_merges], of tables that took their place. */
void llm_bpe_list(const struct llm_bpe *b, struct llm_bpe_merge *out);
void llm_bpe_release(struct llm_bpe *b);
/* The index of what they make, or NONE when left and right do not merge. */
uint32_t llm_bpe_find(const struct llm_bpe *b, uint32_t left, uint32_t right);

/* A thread's working memory; zero-initialise it. */
struct llm_bpe_work {
    void *long_words; /* grown for pieces above LLM_BPE_SHORT */
    size_t room;
    uint64_t *pairs;  /* [2^pairs_bits] of one struct llm_bpe without slots: pairs that were looked up, and what they make */
    int pairs_bits;
    size_t new_pairs; /* since there was so much room */
};
#define LLM_BPE_SHORT 64
/* The first of n bytes without a token, or n; `ends`: the last byte ends a word. */
size_t llm_bpe_no_token(const struct llm_bpe *b, const unsigned char *p, size_t n, bool ends);
void llm_bpe_work_release(struct llm_bpe_work *w);
/* Encodes the word of n > 0 bytes at p; `out` has room for n ids. *n_out counts them. 0 or -1: a byte without a
 * token (EX_DATAERR), or memory is short. */
int llm_bpe_encode(const struct llm_bpe *b, struct llm_bpe_work *w, const unsigned char *p, size_t n, int32_t *out, size_t *n_out,
                   struct llm_err *e) LLM_MUST_CHECK;
/* A piece of 1 to 16 bytes that all have tokens, and its ids. */
struct llm_bpe_word {
    const unsigned char *p;
    size_t n, n_ids;
    int32_t ids[16];
};
/* Fills ids and n_ids of n words. They are merged side by side: while memory answers for one the others go on. Not for merges found by texts. */
void llm_bpe_encode_words(const struct llm_bpe *b, struct llm_bpe_word *words, size_t n);
/* The same ids for pieces of any length, in the memory that `window` > 0 bytes take: 28 for each (bpe_windows.c). `flush` not NULL: takes the ids of
 * a long piece as they come, so that memory for them is not needed either; *n_out counts those in `out`. */
#define LLM_BPE_WINDOW ((size_t)1 << 16)
typedef int llm_bpe_flush(void *arg, const int32_t *ids, size_t n, struct llm_err *e);
int llm_bpe_encode_long(const struct llm_tokenizer *t, struct llm_bpe_work *w, const unsigned char *p, size_t n, size_t window, int32_t *out,
                        size_t *n_out, llm_bpe_flush *flush, void *arg, struct llm_err *e) LLM_MUST_CHECK;
/* As llm_bpe_merge_ids; starts[i] is the first symbol of token i. */
int llm_bpe_merge_parts(const struct llm_bpe *b, struct llm_bpe_work *w, int32_t *ids, size_t *n, uint32_t *starts, struct llm_err *e) LLM_MUST_CHECK;
/* As llm_bpe_encode, and the last merge that was made (`last->left` NONE: none). `ends`: the bytes end a word. */
int llm_bpe_derive(const struct llm_bpe *b, struct llm_bpe_work *w, const unsigned char *p, size_t n, bool ends, int32_t *out, size_t *n_out,
                   struct llm_bpe_merge *last, struct llm_err *e) LLM_MUST_CHECK;
/* Merges *n > 0 symbols in place; `last` as above, or NULL. */
int llm_bpe_merge_ids(const struct llm_bpe *b, struct llm_bpe_work *w, int32_t *ids, size_t *n, struct llm_bpe_merge *last, struct llm_err *e)
    LLM_MUST_CHECK;

#endif
