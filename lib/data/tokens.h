/* Token streams (formats/tok.md): writing what llm-tokenize makes, reading what llm-train and others take. */
#ifndef LLM_DATA_TOKENS_H
#define LLM_DATA_TOKENS_H

#include <stdbool.h>
#include <stdint.h>
#include "base/labels.h"
#include "io/message.h"

#define LLM_TOKENS_PER_MESSAGE ((size_t)1 << 22)

/* ---- writing: messages of exactly 2^22 tokens but the last ---- */
struct llm_tokens_writer;
struct llm_tokens_writer *llm_tokens_writer_create(struct llm_output *o, const char *tokenizer_id, int32_t vocab_size, bool with_mask,
                                                   struct llm_err *e) LLM_MUST_CHECK;
int llm_tokens_put(struct llm_tokens_writer *w, const int32_t *ids, const uint8_t *loss_mask, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Says of what class the document under way is. Once for each document that is not empty, or for none. */
int llm_tokens_label(struct llm_tokens_writer *w, const char *label, struct llm_err *e) LLM_MUST_CHECK;
int llm_tokens_end_document(struct llm_tokens_writer *w, struct llm_err *e) LLM_MUST_CHECK;
int llm_tokens_finish(struct llm_tokens_writer *w, struct llm_err *e) LLM_MUST_CHECK; /* last message and `end` */
void llm_tokens_writer_destroy(struct llm_tokens_writer *w);

/* ---- reading at random: files mapped, pipes spooled to an unlinked file ---- */
struct llm_tokens; /* several inputs one after another, as one run of tokens */
/* `tokenizer_id` NULL: not checked. A stream with another tokenizer is EX_DATAERR. Every id is checked to be below vocab_size when
 * vocab_size > 0. */
struct llm_tokens *llm_tokens_open(const char *const *paths, size_t n_paths, const char *tokenizer_id, int32_t vocab_size,
                                   struct llm_err *e) LLM_MUST_CHECK;
/* As llm_tokens_open, of one input that is already open and stays open; the caller may have peeked at it. */
struct llm_tokens *llm_tokens_from_file(struct llm_file *f, const char *tokenizer_id, int32_t vocab_size, struct llm_err *e) LLM_MUST_CHECK;
void llm_tokens_close(struct llm_tokens *t);
uint64_t llm_tokens_count(const struct llm_tokens *t);
int32_t llm_tokens_vocab_size(const struct llm_tokens *t);  /* the largest that a message declares */
const char *llm_tokens_tokenizer(const struct llm_tokens *t); /* id, or "" */
/* Copies ids [at, at + n) and, where mask is not NULL, the loss mask (1 when the stream has none). */
void llm_tokens_get(const struct llm_tokens *t, uint64_t at, size_t n, int32_t *ids, uint8_t *mask);
/* Document ends (exclusive positions, ascending). */
const uint64_t *llm_tokens_doc_ends(const struct llm_tokens *t, size_t *n);
/* The class of each document, as many as document ends, by its number in *names; NULL: the documents have none. */
const int32_t *llm_tokens_labels(const struct llm_tokens *t, const struct llm_labels **names);
/* Whether a document begins at token `at`. */
bool llm_tokens_begins(const struct llm_tokens *t, uint64_t at);
/* XXH64 of all ids, masks, document ends and labels, 16 hex digits: the fingerprint that --resume checks. */
int llm_tokens_fingerprint(const struct llm_tokens *t, char hex[17], struct llm_err *e) LLM_MUST_CHECK;

/* ---- what readers of all kinds share ---- */
struct llm_tokens_message { const struct llm_entry *ids, *ends, *mask, *labels; int32_t vocab_size; }; /* all but ids: or NULL; vocab_size 0: not
                                    * declared */
/* Whether a message is of tokens, made with `tokenizer` ("": any, which it then becomes); its tensors. */
int llm_tokens_message_check(const struct llm_header *h, char tokenizer[65], const char *name, struct llm_tokens_message *m, struct llm_err *e)
    LLM_MUST_CHECK;
/* Opens a file or stdin ("-") unless it is known to be no token stream. */
struct llm_file *llm_tokens_file(const char *path, struct llm_err *e) LLM_MUST_CHECK;

#endif
