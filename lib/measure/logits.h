/* Streams of logits (tensor messages of kind `logits`): the predictions of a model for a text, which another process compares with. A message has
 * `logits` F32 [rows, vocab], and for each row the id of the token that was read, `ids` I32 [rows], and its number in its window, `positions`
 * I32 [rows]. llm-infer --logits writes them too, of a text that fits in the context. */
#ifndef LLM_MEASURE_LOGITS_H
#define LLM_MEASURE_LOGITS_H

#include "io/message.h"
#include "measure/quality.h"

/* Writes the rows that predict a token which is scored, window by window, and not the closing message. EX_UNAVAILABLE for a table of n-grams.
 * 0; 1 when a signal was caught; -1. */
int llm_logits_write(struct llm_engine *g, const struct llm_quality_text *text, struct llm_writer *w, struct llm_err *e) LLM_MUST_CHECK;

struct llm_logits; /* opaque: a stream that is read; one thread at a time */
/* `path`: "-" is standard input. `vocab`: the columns that every row must have. NULL: see `e`. The caller destroys it. */
struct llm_logits *llm_logits_open(const char *path, int64_t vocab, struct llm_err *e) LLM_MUST_CHECK;
/* The next n ≤ LLM_SPAN_MAX rows, [n, vocab], which are the reader's until the next call. They must be those after the tokens ids[0..n) at positions
 * [first, first + n) of a window (EX_DATAERR). A row after a text's last token, which predicts nothing of it, is passed over. */
const float *llm_logits_next(struct llm_logits *r, const int32_t *ids, int64_t first, int64_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Reads what is left, which must be no more than a row after a text's last token, and the end of the stream. 0 or -1. */
int llm_logits_end(struct llm_logits *r, struct llm_err *e) LLM_MUST_CHECK;
void llm_logits_destroy(struct llm_logits *r); /* NULL is fine */

#endif
