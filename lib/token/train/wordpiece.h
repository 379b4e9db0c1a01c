/* The vocabulary of a WordPiece model: byte-pair merges over characters, where what goes on within a word has a prefix, as Hugging Face's trainer
 * makes it. */
#ifndef LLM_TOKEN_WORDPIECE_H
#define LLM_TOKEN_WORDPIECE_H

#include "token/train/counts.h"
#include "token/train/merge.h"

#define LLM_WORDPIECE_PREFIX "##"

/* Behind what `vocab` has already (tokens of its own): the characters of the text in the order of Unicode, those that go on within words with the
 * prefix, and what merges make, until there are `o->vocab_size` entries or no pair is frequent enough. */
int llm_train_wordpiece(const struct llm_counts *words, const struct llm_train_options *o, struct llm_growing_vocab *vocab, struct llm_err *e)
    LLM_MUST_CHECK;

#endif
