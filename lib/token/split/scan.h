/* What the hand-written splitters share: looking at one character, scanning a run. */
#ifndef LLM_TOKEN_SPLIT_SCAN_H
#define LLM_TOKEN_SPLIT_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include "token/unicode.h"

/* `touched` is set when the end was looked at: while more text may come, the answer is then not final. */
struct llm_scan {
    const unsigned char *end;
    bool last, touched;
};

#define LLM_SCAN_NONE 0x100u /* class of what stands at the end of the text */

/* Class of the character at q and its length in bytes (0 at the end). */
static inline unsigned llm_scan_at(struct llm_scan *s, const unsigned char *q, size_t *len)
{
    if (q >= s->end) {
        s->touched = true;
        *len = 0;
        return LLM_SCAN_NONE;
    }
    *len = 1;
    if (*q < 0x80)
        return llm_ascii_class[*q];
    uint32_t cp;
    int n = llm_utf8_next(q, (size_t)(s->end - q), &cp);
    if (n > 0) {
        *len = (size_t)n;
        return llm_char_class(cp);
    }
    if (n < 0)
        s->touched = true;
    return 0;
}

/* End of the run of characters with any bit of `mask`. */
static inline const unsigned char *llm_scan_run(struct llm_scan *s, const unsigned char *q, unsigned mask)
{
    for (;;) {
        while (q < s->end && *q < 0x80 && (llm_ascii_class[*q] & mask))
            q++;
        size_t len;
        unsigned c = llm_scan_at(s, q, &len);
        if (!(c & mask))
            return q;
        q += len;
    }
}

/* End of the run of characters that are neither space, letter nor number. */
static inline const unsigned char *llm_scan_other(struct llm_scan *s, const unsigned char *q)
{
    size_t len;
    while (!(llm_scan_at(s, q, &len) & (LLM_CH_NOT_OTHER | LLM_SCAN_NONE)))
        q += len;
    return q;
}

/* End of at most `max` numbers. */
static inline const unsigned char *llm_scan_numbers(struct llm_scan *s, const unsigned char *q, int max)
{
    size_t len;
    for (; max > 0 && (llm_scan_at(s, q, &len) & LLM_CH_NUMBER); max--)
        q += len;
    return q;
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d) at q: its length, or 0. U+017F is the other lower case of S. */
size_t llm_scan_contraction(struct llm_scan *s, const unsigned char *q);

/* A run of white space at p that no earlier alternative took: \s*[\r\n]+ (when `newlines`), \s+(?!\S), \s+. `all_at_end`: \s++$ comes first. */
const unsigned char *llm_scan_space(struct llm_scan *s, const unsigned char *p, bool newlines, bool all_at_end);

/* The piece's length, or 0 when it may still change. */
static inline size_t llm_scan_done(const struct llm_scan *s, const unsigned char *p, const unsigned char *q)
{
    return s->touched && !s->last ? 0 : (size_t)(q - p);
}

#endif
