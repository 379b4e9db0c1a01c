/* UTF-8 and the character classes that split patterns speak of. A byte that is part of no valid character is a character of its own,
 * of no class: byte-level models carry it unchanged. */
#ifndef LLM_TOKEN_UNICODE_H
#define LLM_TOKEN_UNICODE_H

#include "base/utf8.h"

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
