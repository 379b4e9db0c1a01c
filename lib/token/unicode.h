/* UTF-8 and the character classes that split patterns speak of. A byte that is part of no valid character is a character of its own,
 * of no class: byte-level models carry it unchanged. */
#ifndef LLM_TOKEN_UNICODE_H
#define LLM_TOKEN_UNICODE_H

#include <stddef.h>
#include <stdint.h>

/* Length of the character at p (n > 0 bytes are there): 1 to 4 with *cp filled; 0: not UTF-8; -1: cut short, valid so far. */
int llm_utf8_next(const unsigned char *p, size_t n, uint32_t *cp);
/* Writes `cp` (< 0x110000) and returns its length, 1 to 4. */
int llm_utf8_put(uint32_t cp, unsigned char out[4]);
/* Offset of the first byte that is not UTF-8 (a cut character at the end counts), or n. */
size_t llm_utf8_invalid(const unsigned char *p, size_t n);

enum {
    LLM_CH_LETTER = 1,   /* \p{L} */
    LLM_CH_NUMBER = 2,   /* \p{N} */
    LLM_CH_SPACE = 4,    /* \s: White_Space */
    LLM_CH_NEWLINE = 8,  /* \r \n */
    LLM_CH_UPPER = 16,   /* Lu Lt Lm Lo M */
    LLM_CH_LOWER = 32,   /* Ll Lm Lo M */
    LLM_CH_NOT_OTHER = LLM_CH_LETTER | LLM_CH_NUMBER | LLM_CH_SPACE /* [^\s\p{L}\p{N}] has none of these */
};
extern const unsigned char llm_ascii_class[128];
unsigned llm_char_class(uint32_t cp);

#endif
