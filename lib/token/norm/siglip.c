/* The canonical texts of SigLIP: Python's str.lower, no ASCII punctuation, single spaces, none around the text. transformers' SiglipTokenizer puts a
 * mark of a word's beginning before the text, and a space in the place of such marks within it. */
#include <string.h>
#include <utf8proc.h>
#include "token/norm/norm.h"
#include "token/unicode.h"

static const char space_symbol[] = "\xE2\x96\x81";
enum { SPACE_SYMBOL = 0x2581, SIGMA = 0x3A3, FINAL_SIGMA = 0x3C2, SMALL_SIGMA = 0x3C3, DOTTED_I = 0x130 };

static int read_siglip(struct llm_norm *s, const json_t *o, struct llm_err *e)
{
    bool lowers = true;
    if (llm_json_bool(o, "lowercase", &lowers, e) < 0) return -1;
    s->flags = lowers ? LLM_NORM_LOWER : 0;
    return 0;
}

/* Python's str.isspace: White_Space, and the four separators of ASCII. */
static bool is_space(uint32_t cp) { return cp == SPACE_SYMBOL || (cp >= 0x1C && cp <= 0x1F) || llm_char_class(cp) & LLM_CH_SPACE; }

static bool is_punctuation(uint32_t cp)
{
    return (cp >= '!' && cp <= '/') || (cp >= ':' && cp <= '@') || (cp >= '[' && cp <= '`') || (cp >= '{' && cp <= '~');
}

/* Unicode's property Cased. */
static bool is_cased(uint32_t cp)
{
    return utf8proc_islower((utf8proc_int32_t)cp) || utf8proc_isupper((utf8proc_int32_t)cp)
        || utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_LT;
}

/* Unicode's property Case_Ignorable: marks, formats, modifiers, and what stands within words. */
static bool is_ignorable(uint32_t cp)
{
    static const uint32_t within[] = {'\'', '.', ':', 0xB7, 0x387, 0x55F, 0x5F4, 0x2018, 0x2019, 0x2024, 0x2027, 0xFE13, 0xFE52, 0xFE55, 0xFF07,
                                      0xFF0E, 0xFF1A};
    const utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    for (size_t i = 0; i < sizeof within / sizeof *within; i++)
        if (within[i] == cp) return true;
    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_ME || c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_LM
        || c == UTF8PROC_CATEGORY_SK;
}

/* Whether the sigma at p[at], `len` bytes long, ends a word: a cased letter comes before it and none after it, ignorable characters aside. */
static bool is_final(const unsigned char *p, size_t n, size_t at, size_t len)
{
    uint32_t cp = 0;
    bool before = false;
    for (size_t i = at; i > 0;) {
        do i--;
        while (i > 0 && (p[i] & 0xC0) == 0x80);
        (void)llm_utf8_next(p + i, n - i, &cp);
        if (is_ignorable(cp)) continue;
        before = is_cased(cp);
        break;
    }
    for (size_t i = at + len; before && i < n; i += len) {
        len = (size_t)llm_utf8_next(p + i, n - i, &cp);
        if (!is_ignorable(cp)) return !is_cased(cp);
    }
    return before;
}

static int put_lower(struct llm_buf *out, const unsigned char *p, size_t n, size_t at, size_t len, uint32_t cp, struct llm_err *e)
{
    unsigned char utf8[4];
    if (cp == DOTTED_I) return llm_buf_put(out, "i\xCC\x87", 3, e);
    if (cp == SIGMA) cp = is_final(p, n, at, len) ? FINAL_SIGMA : SMALL_SIGMA;
    else cp = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
    return llm_buf_put(out, utf8, (size_t)llm_utf8_put(cp, utf8), e);
}

static int siglip(const struct llm_norm *s, const struct llm_norm_place *at, const unsigned char *p, size_t n, struct llm_buf *out,
                  struct llm_err *e)
{
    bool space = false; /* since the last character there was one */
    const size_t start = out->n;
    if (at->begins && llm_buf_put(out, space_symbol, 3, e) < 0) return -1;
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t cp;
        len = (size_t)llm_utf8_next(p + i, n - i, &cp);
        if (is_punctuation(cp)) continue;
        if (is_space(cp)) {
            space = true;
            continue;
        }
        if (space && out->n > start && llm_buf_put(out, " ", 1, e) < 0) return -1;
        space = false;
        if ((s->flags & LLM_NORM_LOWER ? put_lower(out, p, n, i, len, cp, e) : llm_buf_put(out, p + i, len, e)) < 0) return -1;
    }
    return 0;
}

const struct llm_norm_row llm_norm_siglip = {"SigLIP", read_siglip, siglip};
