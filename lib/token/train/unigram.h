/* The pieces of a Unigram model, from counted words: seeds are the substrings that branch, expectation and maximisation weigh them, and those
 * whose loss costs least go, until few enough are left. Source: sentencepiece's unigram_model_trainer.cc, Kudo 2018. */
#ifndef LLM_TOKEN_TRAIN_UNIGRAM_H
#define LLM_TOKEN_TRAIN_UNIGRAM_H

#include "token/train/counts.h"

/* Last byte of a counted word: what follows it in the text. */
#define LLM_WORD_GOES_ON '\x01' /* another word */
#define LLM_WORD_ENDS '\x02'    /* the document's end */

struct llm_unigram_piece { char *text; size_t n; double score; }; /* text is malloced */
struct llm_unigram_pieces { struct llm_unigram_piece *v; size_t n, room; };
/* Words begin with "▁" and end with one of the bytes above. At most `limit` pieces, best first; every character that is among the most frequent,
 * which make up 99.95 % of the text, is one. `vocab_size`: with what is not of the model; pruning ends at 1.1 times that. */
int llm_train_unigram(const struct llm_counts *words, size_t limit, size_t vocab_size, struct llm_unigram_pieces *out, struct llm_err *e)
    LLM_MUST_CHECK;
void llm_unigram_pieces_release(struct llm_unigram_pieces *p);

#endif
