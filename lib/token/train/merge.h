/* The merges of byte-pair encoding, from counted words. */
#ifndef LLM_TOKEN_MERGE_H
#define LLM_TOKEN_MERGE_H

#include "token/internal.h"
#include "token/train/counts.h"
#include "token/train/train.h"

/* A vocabulary that grows: ids below `n` have bytes [offsets[id], offsets[id + 1]) of `bytes`. */
struct llm_growing_vocab {
    struct llm_buf bytes;
    size_t *offsets;
    size_t n, room;
};
int llm_growing_vocab_put(struct llm_growing_vocab *v, const void *bytes, size_t n, struct llm_err *e) LLM_MUST_CHECK;
void llm_growing_vocab_release(struct llm_growing_vocab *v);

/* What words are made of before the first merge. */
struct llm_merge_alphabet {
    /* The ids of the symbols of a word of n bytes, at most n; how many. */
    uint32_t (*symbols)(const void *arg, const unsigned char *p, uint32_t n, uint32_t *ids);
    const void *arg;
    const char *prefix; /* begins the text of what goes on within a word, and is left out where two texts join; "": none */
};

/* Merges until the vocabulary has `o->vocab_size` entries or no pair is frequent enough. *merges is malloced. */
int llm_merge_words(const struct llm_counts *words, const struct llm_train_options *o, const struct llm_merge_alphabet *alphabet,
                    struct llm_growing_vocab *vocab, struct llm_bpe_merge **merges, size_t *n_merges, struct llm_err *e) LLM_MUST_CHECK;

#endif
