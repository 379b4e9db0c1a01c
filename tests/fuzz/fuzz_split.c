/* The hand-written splitters against PCRE2 with the patterns that they stand for, on any bytes, whole and cut. */
#include "fuzz.h"
#include "token/split/split.h"
#include "token/unicode.h"

enum { CLASSES = 5, ROWS = 8 };
static const char *const class_patterns[CLASSES] = {"\\p{L}", "\\p{N}", "\\s",
                                                    "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]", "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"};
static const unsigned class_bits[CLASSES] = {LLM_CH_LETTER, LLM_CH_NUMBER, LLM_CH_SPACE, LLM_CH_UPPER, LLM_CH_LOWER};
static struct llm_regex_state *classes[CLASSES], *rows[ROWS];
static unsigned char known[0x110000]; /* 1: the Unicode tables of PCRE2 and ours agree, 2: their versions differ */

static struct llm_regex_state *compile(const char *pattern)
{
    struct llm_err e = {0};
    struct llm_regex *r = llm_regex_create(pattern, "pattern", &e);
    MUST(r);
    struct llm_regex_state *m = llm_regex_state_create(r, &e);
    MUST(m);
    return m;
}

static bool agrees(uint32_t cp)
{
    unsigned char p[5];
    size_t n = (size_t)llm_utf8_put(cp, p);
    p[n] = '.';
    for (int i = 0; i < CLASSES && !known[cp]; i++) {
        bool theirs = llm_regex_next(classes[i], p, 0, n + 1, true, NULL) == (long)n; /* else the full stop is in the piece too */
        if (theirs != !!(llm_char_class(cp) & class_bits[i])) known[cp] = 2;
    }
    if (!known[cp]) known[cp] = 1;
    return known[cp] == 1;
}

static bool all_agree(const unsigned char *p, size_t n)
{
    uint32_t cp;
    for (size_t at = 0; at < n;) {
        int len = llm_utf8_next(p + at, n - at, &cp);
        if (len > 0 && !agrees(cp)) return false;
        at += len > 0 ? (size_t)len : 1;
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!classes[0])
        for (int i = 0; i < CLASSES; i++) classes[i] = compile(class_patterns[i]);
    if (n < 2 || n > 4096) return 0;
    size_t cut = data[0] * (n - 1) / 256;
    const unsigned char *text = data + 1;
    n--;
    /* bytes that are no characters end a match of PCRE2, and are single for us: only what is UTF-8 compares */
    if (llm_utf8_invalid(text, n) < n || !all_agree(text, n)) return 0;
    for (int k = 0; llm_split_rows[k]; k++) {
        const struct llm_split_row *row = llm_split_rows[k];
        MUST(k < ROWS);
        if (!rows[k]) rows[k] = compile(row->patterns[0]);
        for (size_t at = 0, len; at < n; at += len) {
            len = row->next(text + at, text + n, true);
            MUST(len > 0 && len <= n - at);
            MUST((long)len == llm_regex_next(rows[k], text, at, n, true, NULL));
            size_t early = at < cut ? row->next(text + at, text + cut, false) : 0;
            MUST(early == 0 || early == len);
        }
    }
    return 0;
}
