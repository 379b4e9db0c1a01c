/* Normalizers that go through text character by character, or put something else in place of what they find. */
#include <string.h>
#include <utf8proc.h>
#include "token/norm/norm.h"
#include "token/unicode.h"

static int put(struct llm_buf *out, uint32_t cp, struct llm_err *e)
{
    unsigned char utf8[4];
    return llm_buf_put(out, utf8, (size_t)llm_utf8_put(cp, utf8), e);
}

static bool is_space(uint32_t cp)
{
    return llm_char_class(cp) & LLM_CH_SPACE;
}

/* ---- Lowercase ---- */

static int lower(struct llm_buf *out, uint32_t cp, struct llm_err *e)
{
    if (cp == 0x130) /* the one character whose lower case is two */
        return llm_buf_put(out, "i\xCC\x87", 3, e);
    return put(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp), e);
}

static int lowercase(const struct llm_norm *s, const struct llm_norm_place *at, const unsigned char *p, size_t n, struct llm_buf *out,
                     struct llm_err *e)
{
    (void)s, (void)at;
    uint32_t cp;
    for (size_t i = 0; i < n; i += (size_t)llm_utf8_next(p + i, n - i, &cp)) {
        (void)llm_utf8_next(p + i, n - i, &cp);
        if (lower(out, cp, e) < 0)
            return -1;
    }
    return 0;
}

const struct llm_norm_row llm_norm_lowercase = {"Lowercase", NULL, lowercase};

/* Notes that the text's first character was removed. */
static void note_gone(const struct llm_norm_place *at, bool first)
{
    if (first && at->beheaded)
        *at->beheaded = true;
}

/* ---- Strip ---- */

static int read_strip(struct llm_norm *s, const json_t *o, struct llm_err *e)
{
    bool left = true, right = true;
    if (llm_json_bool(o, "strip_left", &left, e) < 0 || llm_json_bool(o, "strip_right", &right, e) < 0)
        return -1;
    s->flags = (left ? LLM_NORM_LEFT : 0) | (right ? LLM_NORM_RIGHT : 0);
    return 0;
}

static int strip(const struct llm_norm *s, const struct llm_norm_place *at, const unsigned char *p, size_t n, struct llm_buf *out, struct llm_err *e)
{
    uint32_t cp;
    size_t from = 0, to = n;
    for (int len; at->first && s->flags & LLM_NORM_LEFT && from < n; from += (size_t)len) {
        len = llm_utf8_next(p + from, n - from, &cp);
        if (!is_space(cp))
            break;
    }
    while (at->last && s->flags & LLM_NORM_RIGHT && to > from) {
        size_t start = to - 1;
        while (start > from && (p[start] & 0xC0) == 0x80)
            start--;
        (void)llm_utf8_next(p + start, to - start, &cp);
        if (!is_space(cp))
            break;
        to = start;
    }
    note_gone(at, from > 0);
    return llm_buf_put(out, p + from, to - from, e);
}

const struct llm_norm_row llm_norm_strip = {"Strip", read_strip, strip};

/* ---- StripAccents: combining marks go; precomposed characters stay ---- */

static bool is_mark(uint32_t cp, bool nonspacing)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c == UTF8PROC_CATEGORY_MN || (!nonspacing && (c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ME));
}

static int strip_accents(const struct llm_norm *s, const struct llm_norm_place *at, const unsigned char *p, size_t n, struct llm_buf *out,
                         struct llm_err *e)
{
    (void)s;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t len = (size_t)llm_utf8_next(p + i, n - i, &cp);
        note_gone(at, i == 0 && is_mark(cp, false));
        if (!is_mark(cp, false) && llm_buf_put(out, p + i, len, e) < 0)
            return -1;
        i += len;
    }
    return 0;
}

const struct llm_norm_row llm_norm_strip_accents = {"StripAccents", NULL, strip_accents};

/* ---- Replace ---- */

static int read_replace(struct llm_norm *s, const json_t *o, struct llm_err *e)
{
    const json_t *pattern = json_object_get(o, "pattern");
    const char *regex = NULL, *string = NULL, *content = NULL;
    if (!json_is_object(pattern))
        return llm_fail(e, EX_DATAERR, "pattern: expected an object");
    if (llm_json_str(pattern, "Regex", &regex, e) < 0 || llm_json_str(pattern, "String", &string, e) < 0
        || llm_json_str(o, "content", &content, e) < 0)
        return -1;
    const char *text = regex ? regex : string;
    if (!text || !*text || !content)
        return llm_fail(e, EX_DATAERR, "expected a pattern ('Regex' or 'String') and a content");
    if (regex && !(s->regex = llm_regex_create(regex, "pattern of the normaliser Replace", e)))
        return -1;
    return llm_buf_put(&s->text, text, strlen(text), e) < 0 || llm_buf_put(&s->content, content, strlen(content), e) < 0 ? -1 : 0;
}

static int replace_string(const struct llm_norm *s, const struct llm_norm_place *at, const unsigned char *p, size_t n, struct llm_buf *out,
                          struct llm_err *e)
{
    const unsigned char *begin = p, *end = p + n, *found;
    while ((found = memmem(p, (size_t)(end - p), s->text.p, s->text.n)) != NULL) {
        note_gone(at, found == begin && s->content.n == 0);
        if (llm_buf_put(out, p, (size_t)(found - p), e) < 0 || llm_buf_put(out, s->content.p, s->content.n, e) < 0
            || llm_norm_check(s, at, out, e) < 0)
            return -1;
        p = found + s->text.n;
    }
    return llm_buf_put(out, p, (size_t)(end - p), e);
}

static int replace(const struct llm_norm *s, const struct llm_norm_place *at, const unsigned char *p, size_t n, struct llm_buf *out,
                   struct llm_err *e)
{
    if (!s->regex)
        return replace_string(s, at, p, n, out, e);
    if (!*at->regex && !(*at->regex = llm_regex_state_create(s->regex, e)))
        return -1;
    for (size_t i = 0; i < n;) {
        size_t from, to;
        int got = llm_regex_find(*at->regex, p, i, n, &from, &to, e);
        if (got < 0)
            return -1;
        if (!got)
            return llm_buf_put(out, p + i, n - i, e);
        note_gone(at, from == 0 && to > 0 && s->content.n == 0);
        if (llm_buf_put(out, p + i, from - i, e) < 0 || llm_buf_put(out, s->content.p, s->content.n, e) < 0
            || llm_norm_check(s, at, out, e) < 0)
            return -1;
        i = to;
    }
    return 0;
}

const struct llm_norm_row llm_norm_replace = {"Replace", read_replace, replace};

/* ---- Prepend ---- */

static int read_prepend(struct llm_norm *s, const json_t *o, struct llm_err *e)
{
    const char *text = NULL;
    if (llm_json_str(o, "prepend", &text, e) < 0)
        return -1;
    if (!text)
        return llm_fail(e, EX_DATAERR, "prepend: expected a string");
    return llm_buf_put(&s->text, text, strlen(text), e);
}

static int prepend(const struct llm_norm *s, const struct llm_norm_place *at, const unsigned char *p, size_t n, struct llm_buf *out,
                   struct llm_err *e)
{
    if (at->first && n && llm_buf_put(out, s->text.p, s->text.n, e) < 0)
        return -1;
    return llm_buf_put(out, p, n, e);
}

const struct llm_norm_row llm_norm_prepend = {"Prepend", read_prepend, prepend};

/* ---- Nmt: controls go, what stands for white space becomes a space ---- */

static int nmt(const struct llm_norm *s, const struct llm_norm_place *at, const unsigned char *p, size_t n, struct llm_buf *out, struct llm_err *e)
{
    (void)s;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t len = (size_t)llm_utf8_next(p + i, n - i, &cp);
        bool space = cp == 9 || cp == 10 || cp == 12 || cp == 13 || cp == 0x1680 || (cp >= 0x200B && cp <= 0x200F) || cp == 0x2028
                     || cp == 0x2029 || cp == 0x2581 || cp == 0xFEFF || cp == 0xFFFD;
        bool control = (cp >= 1 && cp <= 8) || cp == 11 || (cp >= 14 && cp <= 31) || cp == 0x7F || cp == 0x8F || cp == 0x9F;
        note_gone(at, i == 0 && control);
        if (!control && (space ? llm_buf_put(out, " ", 1, e) : llm_buf_put(out, p + i, len, e)) < 0)
            return -1;
        i += len;
    }
    return 0;
}

const struct llm_norm_row llm_norm_nmt = {"Nmt", NULL, nmt};

/* ---- BertNormalizer ---- */

static int read_bert(struct llm_norm *s, const json_t *o, struct llm_err *e)
{
    bool clean = true, chinese = true, low = true;
    if (llm_json_bool(o, "clean_text", &clean, e) < 0 || llm_json_bool(o, "handle_chinese_chars", &chinese, e) < 0
        || llm_json_bool(o, "lowercase", &low, e) < 0)
        return -1;
    bool accents = low; /* null: as lowercase */
    if (llm_json_bool(o, "strip_accents", &accents, e) < 0)
        return -1;
    s->flags = (clean ? LLM_NORM_CLEAN : 0) | (chinese ? LLM_NORM_CHINESE : 0) | (accents ? LLM_NORM_ACCENTS : 0) | (low ? LLM_NORM_LOWER : 0);
    return 0;
}

static bool is_chinese(uint32_t cp)
{
    return (cp >= 0x4E00 && cp <= 0x9FFF) || (cp >= 0x3400 && cp <= 0x4DBF) || (cp >= 0x20000 && cp <= 0x2A6DF)
           || (cp >= 0x2A700 && cp <= 0x2B73F) || (cp >= 0x2B740 && cp <= 0x2B81F) || (cp >= 0x2B920 && cp <= 0x2CEAF)
           || (cp >= 0xF900 && cp <= 0xFAFF) || (cp >= 0x2F800 && cp <= 0x2FA1F);
}

/* Controls, formats, private use. */
static bool is_other(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_CO;
}

/* Cleans, and sets Chinese characters apart. */
static int clean(unsigned flags, const struct llm_norm_place *at, const unsigned char *p, size_t n, struct llm_buf *out, struct llm_err *e)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t len = (size_t)llm_utf8_next(p + i, n - i, &cp);
        const unsigned char *c = p + i;
        i += len;
        if (flags & LLM_NORM_CLEAN) {
            bool space = is_space(cp);
            bool white = cp == '\t' || cp == '\n' || cp == '\r';
            if (cp == 0 || cp == 0xFFFD || (!white && is_other(cp))) {
                note_gone(at, c == p);
                continue;
            }
            if (space) {
                if (llm_buf_put(out, " ", 1, e) < 0)
                    return -1;
                continue;
            }
        }
        bool apart = flags & LLM_NORM_CHINESE && is_chinese(cp);
        if ((apart && llm_buf_put(out, " ", 1, e) < 0) || llm_buf_put(out, c, len, e) < 0 || (apart && llm_buf_put(out, " ", 1, e) < 0))
            return -1;
    }
    return 0;
}

static int fold(unsigned flags, const struct llm_norm_place *at, const struct llm_buf *from, struct llm_buf *out, struct llm_err *e)
{
    const unsigned char *p = (const unsigned char *)from->p;
    for (size_t i = 0; i < from->n;) {
        uint32_t cp;
        const bool first = i == 0;
        i += (size_t)llm_utf8_next(p + i, from->n - i, &cp);
        if (flags & LLM_NORM_ACCENTS && is_mark(cp, true)) {
            note_gone(at, first);
            continue;
        }
        if ((flags & LLM_NORM_LOWER ? lower(out, cp, e) : put(out, cp, e)) < 0)
            return -1;
    }
    return 0;
}

static int bert(const struct llm_norm *s, const struct llm_norm_place *at, const unsigned char *p, size_t n, struct llm_buf *out,
                struct llm_err *e)
{
    struct llm_buf cleaned = {0}, decomposed = {0};
    int bad = clean(s->flags, at, p, n, &cleaned, e);
    if (bad == 0 && s->flags & LLM_NORM_ACCENTS)
        bad = llm_norm_nfd.run(s, at, (const unsigned char *)cleaned.p, cleaned.n, &decomposed, e);
    if (bad == 0)
        bad = fold(s->flags, at, s->flags & LLM_NORM_ACCENTS ? &decomposed : &cleaned, out, e);
    llm_buf_release(&cleaned);
    llm_buf_release(&decomposed);
    return bad;
}

const struct llm_norm_row llm_norm_bert = {"BertNormalizer", read_bert, bert};
