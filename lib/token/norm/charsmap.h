/* SentencePiece's compiled rules: a Darts double array of UTF-8 strings, whose values say where in a text of NUL-ended strings stands what
 * replaces them. Blob: bytes of the array (32 bits, little-endian), the array of 32-bit units, the texts.
 * Source: sentencepiece/src/normalizer.cc and darts-clone's unit layout. */
#ifndef LLM_TOKEN_CHARSMAP_H
#define LLM_TOKEN_CHARSMAP_H

#include <stdbool.h>
#include "base/buf.h"

/* Checks the blob; after it the other functions never leave it. */
int llm_charsmap_check(const struct llm_buf *map, struct llm_err *e) LLM_MUST_CHECK;
/* What replaces a prefix of [p, p + n): the longest, or the shortest, that has a rule. Its length, *text and *len; 0: none. */
size_t llm_charsmap_find(const struct llm_buf *map, const unsigned char *p, size_t n, bool longest, const char **text, size_t *len);

#endif
