#include "token/norm/charsmap.h"
#include <string.h>
#include <utf8proc.h>
#include "token/norm/norm.h"
#include "token/unicode.h"

static uint32_t le32(const char *s)
{
    const unsigned char *p = (const unsigned char *)s;
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

int llm_charsmap_check(const struct llm_buf *map, struct llm_err *e)
{
    uint32_t bytes = map->n >= 4 ? le32(map->p) : 0;
    if (map->n < 8 || bytes < 4 || bytes % 4 || bytes >= map->n - 4)
        return llm_fail(e, EX_DATAERR, "character map: expected a trie of up to %zu bytes and texts, found a trie of %u", map->n, bytes);
    if (map->p[map->n - 1] != '\0')
        return llm_fail(e, EX_DATAERR, "character map: the last text does not end");
    const unsigned char *texts = (const unsigned char *)map->p + 4 + bytes;
    size_t size = map->n - 4 - bytes, bad = llm_utf8_invalid(texts, size);
    if (bad < size)
        return llm_fail(e, EX_DATAERR, "character map: byte %zu of its texts: expected UTF-8, found 0x%02X", bad, texts[bad]);
    return 0;
}

size_t llm_charsmap_find(const struct llm_buf *map, const unsigned char *p, size_t n, bool longest, const char **text, size_t *len)
{
    uint32_t bytes = le32(map->p), units = bytes / 4, found = 0;
    size_t found_length = 0, texts = map->n - 4 - bytes;
    const char *array = map->p + 4;
    uint32_t unit = le32(array), at = (unit >> 10) << ((unit & 1u << 9) >> 6);
    for (size_t i = 0; i < n; i++) {
        at ^= p[i];
        if (at >= units)
            break;
        unit = le32(array + 4 * (size_t)at);
        if ((unit & (1u << 31 | 0xFF)) != p[i])
            break;
        at ^= (unit >> 10) << ((unit & 1u << 9) >> 6);
        if (!(unit >> 8 & 1))
            continue;
        if (at >= units)
            break;
        found = le32(array + 4 * (size_t)at) & 0x7FFFFFFF;
        found_length = i + 1;
        if (!longest)
            break;
    }
    if (!found_length || found >= texts)
        return 0;
    *text = map->p + 4 + bytes + found;
    if (((unsigned char)**text & 0xC0) == 0x80) /* within a character: models must be able to trust what they are given */
        return 0;
    *len = strlen(*text);
    return found_length;
}

/* ---- Precompiled: as Hugging Face's library applies the rules, grapheme by grapheme ---- */

static int read_map(struct llm_norm *s, const json_t *o, bool may_be_empty, struct llm_err *e)
{
    const char *text = NULL;
    if (llm_json_str(o, "precompiled_charsmap", &text, e) < 0)
        return -1;
    if (may_be_empty && (!text || !*text))
        return 0;
    if (!text)
        return llm_fail(e, EX_DATAERR, "precompiled_charsmap: expected base64");
    if (llm_base64_decode(text, strlen(text), &s->map, e) < 0)
        return llm_in(e, "precompiled_charsmap");
    return llm_charsmap_check(&s->map, e);
}

static int read_precompiled(struct llm_norm *s, const json_t *o, struct llm_err *e)
{
    return read_map(s, o, false, e);
}

/* Length of the extended grapheme cluster at p. */
static size_t grapheme(const unsigned char *p, size_t n)
{
    uint32_t before, cp;
    utf8proc_int32_t state = 0;
    size_t at = (size_t)llm_utf8_next(p, n, &before);
    while (at < n) {
        size_t len = (size_t)llm_utf8_next(p + at, n - at, &cp);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)cp, &state))
            break;
        before = cp;
        at += len;
    }
    return at;
}

/* The rule for the first prefix of [p, p + n) that has one replaces all of it. 1: done, 0: there is none. */
static int replace_whole(const struct llm_norm *s, const unsigned char *p, size_t n, struct llm_buf *out, struct llm_err *e)
{
    const char *text;
    size_t len;
    if (!llm_charsmap_find(&s->map, p, n, false, &text, &len))
        return 0;
    return llm_buf_put(out, text, len, e) < 0 ? -1 : 1;
}

static int precompiled(const struct llm_norm *s, const struct llm_norm_place *at, const unsigned char *p, size_t n, struct llm_buf *out,
                       struct llm_err *e)
{
    for (size_t i = 0, len; i < n; i += len) {
        if (llm_norm_check(s, at, out, e) < 0)
            return -1;
        len = grapheme(p + i, n - i);
        int done = len < 6 ? replace_whole(s, p + i, len, out, e) : 0;
        for (size_t k = 0; done == 0 && k < len;) {
            uint32_t cp;
            size_t one = (size_t)llm_utf8_next(p + i + k, len - k, &cp);
            int put = replace_whole(s, p + i + k, one, out, e);
            if (put < 0 || (put == 0 && llm_buf_put(out, p + i + k, one, e) < 0))
                return -1;
            k += one;
        }
        if (done < 0)
            return -1;
    }
    return 0;
}

const struct llm_norm_row llm_norm_precompiled = {"Precompiled", read_precompiled, precompiled};

/* ---- SentencePiece: the normaliser of a .model ---- */

static int read_sentencepiece(struct llm_norm *s, const json_t *o, struct llm_err *e)
{
    bool dummy = true, extra = true, escape = true, after = false;
    if (llm_json_bool(o, "add_dummy_prefix", &dummy, e) < 0 || llm_json_bool(o, "after_text", &after, e) < 0
        || llm_json_bool(o, "remove_extra_whitespaces", &extra, e) < 0 || llm_json_bool(o, "escape_whitespaces", &escape, e) < 0)
        return -1;
    s->flags = (dummy ? LLM_NORM_DUMMY : 0) | (extra ? LLM_NORM_EXTRA : 0) | (escape ? LLM_NORM_ESCAPE : 0)
             | (after ? LLM_NORM_AFTER : 0);
    return read_map(s, o, true, e);
}

/* What the first characters of [p, p + n) become; how many bytes they are. */
static size_t normal_prefix(const struct llm_norm *s, const struct llm_norm_place *at, const unsigned char *p, size_t n, const char **text,
                            size_t *len)
{
    int32_t id;
    uint32_t cp;
    size_t used = at->kept ? llm_trie_longest(at->kept, 0, p, n, &id) : 0;
    if (!used && s->map.n && (used = llm_charsmap_find(&s->map, p, n, true, text, len)))
        return used;
    if (!used) {
        int one = llm_utf8_next(p, n, &cp);
        if (one <= 0) { /* not looked up: there are rules for U+FFFD itself */
            *text = "\xEF\xBF\xBD";
            *len = 3;
            return 1;
        }
        used = (size_t)one;
    }
    *text = (const char *)p;
    *len = used;
    return used;
}

static const char space_symbol[] = "\xE2\x96\x81";

static int put_escaped(const struct llm_norm *s, const char *text, size_t len, struct llm_buf *out, struct llm_err *e)
{
    for (size_t k = 0; k < len; k++)
        if ((s->flags & LLM_NORM_ESCAPE && text[k] == ' ' ? llm_buf_put(out, space_symbol, 3, e) : llm_buf_put(out, text + k, 1, e)) < 0)
            return -1;
    return 0;
}

static int sentencepiece(const struct llm_norm *s, const struct llm_norm_place *at, const unsigned char *p, size_t n, struct llm_buf *out,
                         struct llm_err *e)
{
    const char *text;
    size_t len, i = 0, start = out->n;
    bool extra = s->flags & LLM_NORM_EXTRA, dummy = s->flags & LLM_NORM_DUMMY, first = at->first && !(s->flags & LLM_NORM_AFTER);
    for (size_t used; first && extra && i < n; i += used) {
        used = normal_prefix(s, at, p + i, n - i, &text, &len);
        if (len != 1 || *text != ' ')
            break;
    }
    if (i == n)
        return 0;
    if (first && dummy && put_escaped(s, " ", 1, out, e) < 0)
        return -1;
    for (bool after_space = extra && first; i < n;) {
        i += normal_prefix(s, at, p + i, n - i, &text, &len);
        for (; after_space && len && *text == ' '; text++)
            len--;
        if (put_escaped(s, text, len, out, e) < 0 || llm_norm_check(s, at, out, e) < 0)
            return -1;
        if (len)
            after_space = extra && text[len - 1] == ' ';
    }
    const char *space = s->flags & LLM_NORM_ESCAPE ? space_symbol : " ";
    size_t width = strlen(space);
    while (extra && at->last && out->n - start >= width && memcmp(out->p + out->n - width, space, width) == 0)
        out->n -= width;
    return 0;
}

const struct llm_norm_row llm_norm_sentencepiece = {"SentencePiece", read_sentencepiece, sentencepiece};
