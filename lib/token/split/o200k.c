/* o200k_base: words split where lower case turns into upper case.
 *   P?U*W+C? | P?U+W*C? | \p{N}{1,3} | ?[^\s\p{L}\p{N}]+[\r\n/]* | \s*[\r\n]+ | \s+(?!\S) | \s+
 * with P = [^\r\n\p{L}\p{N}], U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], W = [\p{Ll}\p{Lm}\p{Lo}\p{M}], C = (?i:'s|'t|'re|'ve|'m|'ll|'d). */
#include "token/split/scan.h"
#include "token/split/split.h"
#include "token/split/window.h"

/* U*W+ at q: its end, or NULL. U* is greedy and gives back: when no W follows the run of U, the match ends after the last character in it
 * that is both. *run: the end of the run of U. */
static const unsigned char *upper_lower(struct llm_scan *s, const unsigned char *q, const unsigned char **run)
{
    const unsigned char *after_both = NULL;
    for (;;) {
        size_t len;
        unsigned c = llm_scan_at(s, q, &len);
        if (!(c & LLM_CH_UPPER)) {
            *run = q;
            return c & LLM_CH_LOWER ? llm_scan_run(s, q, LLM_CH_LOWER) : after_both;
        }
        q += len;
        if (c & LLM_CH_LOWER)
            after_both = q;
    }
}

/* P?U*W+ | P?U+W* at p, whose first character has class c and length len: the end, or NULL. */
static const unsigned char *word(struct llm_scan *s, const unsigned char *p, unsigned c, size_t len)
{
    bool prefix = !(c & (LLM_CH_LETTER | LLM_CH_NUMBER | LLM_CH_NEWLINE));
    const unsigned char *with = NULL, *without = NULL, *q;
    if (prefix) {
        q = upper_lower(s, p + len, &with);
        if (q)
            return q;
    }
    q = upper_lower(s, p, &without);
    if (q)
        return q;
    if (prefix && with > p + len)
        return with;
    return without > p ? without : NULL;
}

static size_t next(const unsigned char *p, const unsigned char *end, bool last)
{
    struct llm_scan s = {end, last, false};
    size_t len, after_len;
    unsigned c = llm_scan_at(&s, p, &len);
    if (c & LLM_CH_NUMBER)
        return llm_scan_done(&s, p, llm_scan_numbers(&s, p, 3));
    const unsigned char *q = word(&s, p, c, len);
    if (q) {
        if (q >= end)
            s.touched = true;
        else if (*q == '\'')
            q += llm_scan_contraction(&s, q);
        return llm_scan_done(&s, p, q);
    }
    q = p + len;
    unsigned after = llm_scan_at(&s, q, &after_len);
    if (c & LLM_CH_SPACE && !(*p == ' ' && !(after & (LLM_CH_NOT_OTHER | LLM_SCAN_NONE))))
        return llm_scan_done(&s, p, llm_scan_space(&s, p, true, false));
    q = llm_scan_other(&s, q);
    while (q < end && (*q == '\r' || *q == '\n' || *q == '/'))
        q++;
    if (q >= end)
        s.touched = true;
    return llm_scan_done(&s, p, q);
}

static uint64_t window(const struct llm_byte_masks *m, const unsigned char *p, int n)
{
    return llm_window_words(m, p, n, (struct llm_window_style){false, true});
}

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
const struct llm_split_row llm_split_o200k = {
    "o200k",
    {"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" CONTRACTION
     "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" CONTRACTION
     "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    next, window};
