/* Encoding streams of documents on all threads, in constant memory: text is cut where no piece can cross, parts are encoded side by side
 * and come out in order. The ids are those of one encoder fed with each document, whatever the number of threads. */
#ifndef LLM_TOKEN_STREAM_H
#define LLM_TOKEN_STREAM_H

#include "token/tokenizer.h"

struct llm_encode_stream;
/* Takes ids as they come; `document_ends` after the last of a document (n may be 0). 0 or -1. */
typedef int llm_encode_sink(void *arg, const int32_t *ids, size_t n, bool document_ends, struct llm_err *e);
/* `flags` as for llm_encoder_create. Uses the threads of cpu/pool.h. */
struct llm_encode_stream *llm_encode_stream_create(const struct llm_tokenizer *t, int flags, llm_encode_sink *sink, void *arg,
                                                   struct llm_err *e) LLM_MUST_CHECK;
int llm_encode_stream_put(struct llm_encode_stream *s, const char *text, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* What messages call the document that is being put: "name", or "name: what number" ("line 3"). The strings are borrowed for good. */
void llm_encode_stream_label(struct llm_encode_stream *s, const char *name, const char *what, uint64_t number);
int llm_encode_stream_end_document(struct llm_encode_stream *s, struct llm_err *e) LLM_MUST_CHECK;
/* Encodes what is left; the sink has then seen everything. */
int llm_encode_stream_finish(struct llm_encode_stream *s, struct llm_err *e) LLM_MUST_CHECK;
void llm_encode_stream_destroy(struct llm_encode_stream *s);

/* The last place in [1, n) where text may be cut without changing the pieces of any known split pattern, or 0: before a space that
 * follows something else, or after the single new line that follows something else when a letter comes next. */
size_t llm_split_cut(const unsigned char *p, size_t n);

#endif
