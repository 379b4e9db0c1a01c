/* Tokenizers: text to ids and back. One object serves every model type (BPE, byte, char, Unigram, WordPiece, greedy): a type is one file in
 * token/model/ and a row. */
#ifndef LLM_TOKEN_TOKENIZER_H
#define LLM_TOKEN_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/utf8.h"
#include "base/buf.h"
#include "base/json.h"
#include "io/checkpoint.h"
#include "io/message.h"

struct llm_tokenizer; /* opaque; immutable once loaded: any number of threads may encode with one, each with its own llm_encoder */

/* Recognised by content: tokenizer.json, tiktoken ranks (`pattern` NULL: known by hash), SentencePiece's .model, RWKV's vocabulary, a folder or
 * encoder.json with vocab.bpe beside it, a `.llm`, GGUF or safetensors file that carries one. */
struct llm_tokenizer *llm_tokenizer_load(const char *path, const char *pattern, struct llm_err *e) LLM_MUST_CHECK;
struct llm_tokenizer *llm_tokenizer_from_json(const char *json, size_t n, const char *where, struct llm_err *e) LLM_MUST_CHECK;
/* The one that a checkpoint carries: its tables, else its tokenizer.json. */
struct llm_tokenizer *llm_tokenizer_from_checkpoint(struct llm_checkpoint *c, struct llm_err *e) LLM_MUST_CHECK;
void llm_tokenizer_destroy(struct llm_tokenizer *t);
/* RWKV's vocabulary in its folders for transformers. */
#define LLM_NAME_RWKV_VOCABULARY "rwkv_vocab_v20230424.txt"
/* tokenizer.json as text (what a checkpoint carries as the U8 tensor "tokenizer.json"). */
int llm_tokenizer_to_json(const struct llm_tokenizer *t, struct llm_buf *out, struct llm_err *e) LLM_MUST_CHECK;
/* The compiled table as plain tensors "tokenizer.pieces", "tokenizer.offsets", "tokenizer.merges", …, put after `*n` entries of `out`
 * (room for 8). The data belongs to `t`. llm_tokenizer_from_checkpoint reads them back, leaving the tokenizer.json unparsed. */
int llm_tokenizer_tables(const struct llm_tokenizer *t, struct llm_tensor_out *out, size_t *n, struct llm_err *e) LLM_MUST_CHECK;

/* As the metadata of a GGUF file for a model with `n_tokens` embeddings; ids without a token get one that is never used. What GGUF cannot say is
 * EX_UNAVAILABLE. bos, eos: the model's own; -1: the tokenizer's. */
struct llm_gguf_out;
int llm_tokenizer_to_gguf(const struct llm_tokenizer *t, int64_t n_tokens, int64_t bos, int64_t eos, struct llm_gguf_out *o, struct llm_err *e)
    LLM_MUST_CHECK;

/* Identity: SHA-256 of the canonical form (type, id → bytes, merges or scores, normaliser, split), 64 hex digits. */
const char *llm_tokenizer_id(const struct llm_tokenizer *t);
int32_t llm_tokenizer_vocab_size(const struct llm_tokenizer *t); /* largest id + 1 */
const char *llm_tokenizer_type(const struct llm_tokenizer *t);   /* "bpe", "byte", "char", "unigram", "wordpiece", "greedy" */
/* What one id puts into the middle of a text (specials their text, a part of a character its byte); NULL when the id has none. */
const char *llm_tokenizer_piece(const struct llm_tokenizer *t, int32_t id, size_t *n);
bool llm_tokenizer_is_special(const struct llm_tokenizer *t, int32_t id);
/* The id of an added or special token by its text, or -1. */
int32_t llm_tokenizer_special(const struct llm_tokenizer *t, const char *text);
/* -1 when the tokenizer has none. eos: what separates documents and ends generation. */
int32_t llm_tokenizer_bos(const struct llm_tokenizer *t);
int32_t llm_tokenizer_eos(const struct llm_tokenizer *t);
/* The token that stands for text which the vocabulary cannot spell, or -1. */
int32_t llm_tokenizer_unknown(const struct llm_tokenizer *t);
/* Special tokens that models are known to end a turn or a text with ("<|im_end|>"): at most `room` go to `ids`; how many. */
size_t llm_tokenizer_turn_ends(const struct llm_tokenizer *t, int32_t *ids, size_t room);

/* Encoding a stream of any length in constant memory. */
enum { LLM_ENCODE_SPECIAL = 1,      /* special tokens written in the text count */
       LLM_ENCODE_ADD_SPECIAL = 2,  /* BOS and EOS as the post-processor says */
       LLM_ENCODE_STRICT = 4,       /* invalid UTF-8 is an error that names the byte */
       LLM_ENCODE_INSIDE = 8 };     /* the text stands inside of a longer one: what a tokenizer puts before a text is not put */
struct llm_encoder;
struct llm_encoder *llm_encoder_create(const struct llm_tokenizer *t, int flags, struct llm_err *e) LLM_MUST_CHECK;
/* Feeds text; ids that are certain are appended to *ids (grown with llm_grow). `last`: the document ends here, everything comes out and
 * the encoder is ready for the next document. */
int llm_encoder_feed(struct llm_encoder *en, const char *text, size_t n, bool last, int32_t **ids, size_t *n_ids, size_t *room,
                     struct llm_err *e) LLM_MUST_CHECK;
void llm_encoder_destroy(struct llm_encoder *en);
/* A whole text at once. *ids is malloced. */
int llm_encode(const struct llm_tokenizer *t, const char *text, size_t n, int flags, int32_t **ids, size_t *n_ids, struct llm_err *e)
    LLM_MUST_CHECK;

/* Decoding a stream of ids; bytes appended to `out`. An id outside the vocabulary is EX_DATAERR. `skip_special`: specials print nothing. */
int llm_decode(const struct llm_tokenizer *t, const int32_t *ids, size_t n, bool skip_special, struct llm_buf *out, struct llm_err *e)
    LLM_MUST_CHECK;
/* The same in parts: what a decoder puts at the beginning of a text, or joins from several ids, comes out as for the whole. */
struct llm_detokenizer;
struct llm_detokenizer *llm_detokenizer_create(const struct llm_tokenizer *t, bool skip_special, struct llm_err *e) LLM_MUST_CHECK;
int llm_detokenizer_put(struct llm_detokenizer *d, const int32_t *ids, size_t n, struct llm_buf *out, struct llm_err *e) LLM_MUST_CHECK;
/* What was held back; the decoder is then ready for the next text. */
int llm_detokenizer_end(struct llm_detokenizer *d, struct llm_buf *out, struct llm_err *e) LLM_MUST_CHECK;
void llm_detokenizer_destroy(struct llm_detokenizer *d);

#endif
