/* Token streams in one pass, as they come: what a step needs is in memory, nothing is copied to a file. */
#ifndef LLM_DATA_FEED_H
#define LLM_DATA_FEED_H

#include "data/batch.h"

struct llm_feed; /* opaque */
/* Several inputs one after another. Arguments as in llm_tokens_open. Reads the first message. */
struct llm_feed *llm_feed_create(const char *const *paths, size_t n_paths, const char *tokenizer_id, int32_t vocab_size, struct llm_err *e)
    LLM_MUST_CHECK;
void llm_feed_destroy(struct llm_feed *f); /* NULL is fine */
int32_t llm_feed_vocab_size(const struct llm_feed *f); /* that the first message declares; 0: none */
/* Row `row` becomes the window of row_len + 1 tokens that begins `ahead` tokens further on. 1; 0: the data ends before its last token; -1. */
int llm_feed_cut(struct llm_feed *f, struct llm_rows *r, int64_t row, uint64_t ahead, bool cross_document, struct llm_err *e) LLM_MUST_CHECK;
/* Goes n tokens on, over those that there are. */
int llm_feed_advance(struct llm_feed *f, uint64_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Where we are, and XXH64 of the ids before it. */
uint64_t llm_feed_position(const struct llm_feed *f);
uint64_t llm_feed_hash(const struct llm_feed *f);

#endif
