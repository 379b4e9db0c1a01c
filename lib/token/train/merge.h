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

/* Merges until the vocabulary has `o->vocab_size` entries or no pair is frequent enough. byte_id: the alphabet's ids. *merges is malloced. */
int llm_merge_words(const struct llm_counts *words, const struct llm_train_options *o, const uint32_t byte_id[256],
                    struct llm_growing_vocab *vocab, struct llm_bpe_merge **merges, size_t *n_merges, struct llm_err *e) LLM_MUST_CHECK;

#endif
