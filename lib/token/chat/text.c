/* Strings: indexes and lengths count characters, as in Python. */
#include <string.h>
#include <utf8proc.h>
#include "token/chat/jinja.h"
#include "token/unicode.h"

static const struct value error = {.type = V_ERROR};

static uint32_t char_at(const char *p, size_t n, size_t *length)
{
    uint32_t cp;
    int got = llm_utf8_next((const unsigned char *)p, n, &cp);
    *length = got > 0 ? (size_t)got : 1;
    return got > 0 ? cp : (unsigned char)*p;
}

/* The character that ends before p + n. */
static uint32_t char_before(const char *p, size_t n, size_t *length)
{
    size_t at = n - 1;
    while (at > 0 && n - at < 4 && ((unsigned char)p[at] & 0xC0) == 0x80) at--;
    uint32_t cp = char_at(p + at, n - at, length);
    if (*length == n - at) return cp;
    *length = 1;
    return (unsigned char)p[n - 1];
}

/* A part of `t`: the bytes are shared, and what is safe stays so. */
static struct value part(struct work *w, const struct text *t, size_t from, size_t to)
{
    struct value v = llm_jinja_borrow(w, t->p + from, to - from);
    if (!is_error(v)) v.as.text->safe = t->safe;
    return v;
}

static bool is_among(const char *p, size_t n, const struct text *set)
{
    return memmem(set->p, set->n, p, n) != NULL;
}

struct value llm_jinja_strip(struct work *w, struct text *t, struct value chars, int sides)
{
    size_t from = 0, to = t->n, length;
    if (llm_jinja_step(w, t->n / 64) < 0) return error;
    if (chars.type == V_ABSENT || chars.type == V_NONE) {
        if (sides & STRIP_LEFT) from = llm_utf8_skip_space(t->p, to, 0);
        if (sides & STRIP_RIGHT) to = from + llm_utf8_trim_end(t->p + from, to - from);
        return part(w, t, from, to);
    }
    if (chars.type != V_TEXT) return llm_jinja_fail(w, "strip arg must be None or str, not %s", llm_jinja_type(chars));
    size_t work = chars.as.text->n / 64;
    while ((sides & STRIP_LEFT) && from < to) {
        char_at(t->p + from, to - from, &length);
        if (llm_jinja_step(w, work) < 0) return error;
        if (!is_among(t->p + from, length, chars.as.text)) break;
        from += length;
    }
    while ((sides & STRIP_RIGHT) && from < to) {
        char_before(t->p + from, to - from, &length);
        if (llm_jinja_step(w, work) < 0) return error;
        if (!is_among(t->p + to - length, length, chars.as.text)) break;
        to -= length;
    }
    return part(w, t, from, to);
}

/* Characters whose upper case is more than one character; utf8proc maps one to one. */
static const char *long_upper(uint32_t cp)
{
    switch (cp) {
    case 0xdf: return "SS";
    case 0x149: return "\xca\xbcN";
    case 0x1f0: return "J\xcc\x8c";
    case 0x587: return "\xd4\xb5\xd5\x92";
    case 0xfb00: return "FF";
    case 0xfb01: return "FI";
    case 0xfb02: return "FL";
    case 0xfb03: return "FFI";
    case 0xfb04: return "FFL";
    case 0xfb05: case 0xfb06: return "ST";
    default: return NULL;
    }
}

static bool is_cased(uint32_t cp)
{
    int c = utf8proc_category((utf8proc_int32_t)cp);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

static int put_folded(struct work *w, uint32_t cp)
{
    utf8proc_int32_t folded[8];
    int boundary = 0;
    const utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)cp, folded, 8, UTF8PROC_CASEFOLD, &boundary);
    for (utf8proc_ssize_t i = 0; i < n && i < 8; i++) {
        unsigned char out[4];
        if (llm_jinja_put(w, (char *)out, (size_t)llm_utf8_put((uint32_t)folded[i], out)) < 0) return -1;
    }
    return 0;
}

static int put_case(struct work *w, uint32_t cp, bool upper, bool titled, bool ends_word)
{
    unsigned char out[4];
    const char *longer = upper ? long_upper(cp) : cp == 0x130 ? "i\xcc\x87" : NULL;
    if (longer && titled && cp == 0xdf) longer = "Ss";
    if (longer) return llm_jinja_puts(w, longer);
    if (!upper && cp == 0x3a3 && ends_word) cp = 0x3c2;
    else if (titled) cp = (uint32_t)utf8proc_totitle((utf8proc_int32_t)cp);
    else cp = (uint32_t)(upper ? utf8proc_toupper((utf8proc_int32_t)cp) : utf8proc_tolower((utf8proc_int32_t)cp));
    return llm_jinja_put(w, (char *)out, (size_t)llm_utf8_put(cp, out));
}

struct value llm_jinja_case(struct work *w, struct text *t, enum text_case to)
{
    size_t mark = w->out.n, length, next;
    bool after_cased = false, begins = true;
    for (size_t i = 0; i < t->n; i += length) {
        uint32_t cp = char_at(t->p + i, t->n - i, &length);
        bool cased = is_cased(cp), upper = to == CASE_UPPER, titled = false;
        bool followed = i + length < t->n && is_cased(char_at(t->p + i + length, t->n - i - length, &next));
        if (to == CASE_CAPITAL) upper = titled = i == 0;
        if (to == CASE_TITLE) upper = titled = !after_cased;
        if (to == CASE_SWAP) upper = utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_LL;
        if (to == CASE_JINJA_TITLE) upper = begins;
        const int put = to == CASE_FOLD ? put_folded(w, cp) : put_case(w, cp, upper, titled, after_cased && !followed);
        if (put < 0 || llm_jinja_step(w, 1) < 0) return error;
        after_cased = cased;
        /* The filter `title` begins words after white space, hyphens and opening brackets. */
        begins = llm_utf8_is_space(cp) || (cp < 0x80 && cp != 0 && strchr("-({[<", (int)cp) != NULL);
    }
    struct value v = llm_jinja_take(w, mark);
    if (!is_error(v)) v.as.text->safe = t->safe;
    return v;
}

long llm_jinja_find(const struct text *t, const struct text *needle, size_t from)
{
    if (from > t->n) return -1;
    if (needle->n == 0) return (long)from;
    const char *p = memmem(t->p + from, t->n - from, needle->p, needle->n);
    return p ? (long)(p - t->p) : -1;
}

/* Between any two characters, and at both ends. */
static int replace_nothing(struct work *w, const struct text *t, const struct text *with, int64_t count)
{
    size_t length;
    for (size_t i = 0; i <= t->n && count != 0; count--) {
        if (llm_jinja_put(w, with->p, with->n) < 0 || llm_jinja_step(w, 1) < 0) return -1;
        if (i == t->n) return 0;
        char_at(t->p + i, t->n - i, &length);
        if (llm_jinja_put(w, t->p + i, length) < 0) return -1;
        i += length;
        if (count == 1) return llm_jinja_put(w, t->p + i, t->n - i);
    }
    return count == 0 ? llm_jinja_put(w, t->p, t->n) : 0;
}

struct value llm_jinja_replace(struct work *w, struct text *t, struct text *old, struct text *with, int64_t count)
{
    size_t mark = w->out.n, from = 0;
    int status = llm_jinja_step(w, t->n / 64);
    if (old->n == 0) {
        status = status < 0 ? -1 : replace_nothing(w, t, with, count);
    } else {
        long at;
        for (; status == 0 && count != 0 && (at = llm_jinja_find(t, old, from)) >= 0; count--) {
            status = llm_jinja_put(w, t->p + from, (size_t)at - from);
            if (status == 0) status = llm_jinja_put(w, with->p, with->n);
            if (status == 0) status = llm_jinja_step(w, 1);
            from = (size_t)at + old->n;
        }
        if (status == 0) status = llm_jinja_put(w, t->p + from, t->n - from);
    }
    struct value v = status < 0 ? error : llm_jinja_take(w, mark);
    if (!is_error(v)) v.as.text->safe = t->safe;
    return v;
}

static int split_space(struct work *w, struct text *t, int64_t count, struct sequence *s)
{
    size_t at = llm_utf8_skip_space(t->p, t->n, 0), length;
    while (at < t->n) {
        size_t to = at;
        if (count-- == 0) return llm_jinja_append(w, s, part(w, t, at, t->n));
        while (to < t->n && !llm_utf8_is_space(char_at(t->p + to, t->n - to, &length))) to += length;
        if (llm_jinja_append(w, s, part(w, t, at, to)) < 0) return -1;
        at = llm_utf8_skip_space(t->p, t->n, to);
    }
    return 0;
}

static int split_space_right(struct work *w, struct text *t, int64_t count, struct sequence *s)
{
    size_t to = llm_utf8_trim_end(t->p, t->n), length;
    while (to > 0) {
        size_t at = to;
        if (count-- == 0) return llm_jinja_append(w, s, part(w, t, 0, to));
        while (at > 0 && !llm_utf8_is_space(char_before(t->p, at, &length))) at -= length;
        if (llm_jinja_append(w, s, part(w, t, at, to)) < 0) return -1;
        to = llm_utf8_trim_end(t->p, at);
    }
    return 0;
}

static int split_right(struct work *w, struct text *t, const struct text *separator, int64_t count, struct sequence *s)
{
    size_t to = t->n, at = to;
    while (count != 0 && at >= separator->n) {
        if (memcmp(t->p + at - separator->n, separator->p, separator->n) == 0) {
            if (llm_jinja_append(w, s, part(w, t, at, to)) < 0) return -1;
            to = at -= separator->n;
            count--;
        } else {
            at--;
        }
    }
    return llm_jinja_append(w, s, part(w, t, 0, to));
}

static void reverse(struct sequence *s)
{
    for (size_t i = 0; i < s->n / 2; i++) {
        struct value v = s->v[i];
        s->v[i] = s->v[s->n - 1 - i];
        s->v[s->n - 1 - i] = v;
    }
}

struct value llm_jinja_split(struct work *w, struct text *t, struct value separator, int64_t count, bool from_right)
{
    struct value list = llm_jinja_sequence(w, S_LIST, 0);
    size_t from = 0;
    long at;
    if (is_error(list) || llm_jinja_step(w, t->n / 16) < 0) return error;
    struct sequence *s = list.as.sequence;
    if (separator.type == V_ABSENT || separator.type == V_NONE) {
        if ((from_right && count >= 0 ? split_space_right : split_space)(w, t, count, s) < 0) return error;
        if (from_right && count >= 0) reverse(s);
        return list;
    }
    if (separator.type != V_TEXT) return llm_jinja_fail(w, "must be str or None, not %s", llm_jinja_type(separator));
    if (separator.as.text->n == 0) return llm_jinja_fail(w, "empty separator");
    if (from_right) {
        if (split_right(w, t, separator.as.text, count, s) < 0) return error;
        reverse(s);
        return list;
    }
    for (; count != 0 && (at = llm_jinja_find(t, separator.as.text, from)) >= 0; count--) {
        if (llm_jinja_append(w, s, part(w, t, from, (size_t)at)) < 0) return error;
        from = (size_t)at + separator.as.text->n;
    }
    return llm_jinja_append(w, s, part(w, t, from, t->n)) < 0 ? error : list;
}

static bool ends_line(uint32_t cp)
{
    return (cp >= 10 && cp <= 13) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
}

struct value llm_jinja_lines(struct work *w, struct text *t, bool keep_ends)
{
    struct value list = llm_jinja_sequence(w, S_LIST, 0);
    size_t from = 0, length;
    if (is_error(list) || llm_jinja_step(w, t->n / 16) < 0) return error;
    for (size_t i = 0; i < t->n;) {
        size_t end = i;
        uint32_t cp = char_at(t->p + i, t->n - i, &length);
        i += length;
        if (!ends_line(cp)) continue;
        if (cp == '\r' && i < t->n && t->p[i] == '\n') i++;
        if (llm_jinja_append(w, list.as.sequence, part(w, t, from, keep_ends ? i : end)) < 0) return error;
        from = i;
    }
    if (from < t->n && llm_jinja_append(w, list.as.sequence, part(w, t, from, t->n)) < 0) return error;
    return list;
}

struct value llm_jinja_join(struct work *w, struct text *between, const struct sequence *s)
{
    size_t mark = w->out.n;
    for (size_t i = 0; i < s->n; i++)
        if ((i && llm_jinja_put(w, between->p, between->n) < 0) || llm_jinja_step(w, 1) < 0 || llm_jinja_show(w, s->v[i]) < 0) return error;
    return llm_jinja_take(w, mark);
}

struct value llm_jinja_escape(struct work *w, struct value v)
{
    size_t mark = w->out.n;
    v = llm_jinja_str(w, v);
    if (is_error(v) || v.as.text->safe) return v;
    for (size_t i = 0; i < v.as.text->n; i++) {
        const char *p = v.as.text->p + i;
        const char *named = *p == '&' ? "&amp;" : *p == '<' ? "&lt;" : *p == '>' ? "&gt;" : *p == '"' ? "&#34;" : *p == '\'' ? "&#39;" : NULL;
        if ((named ? llm_jinja_puts(w, named) : llm_jinja_put(w, p, 1)) < 0) return error;
    }
    v = llm_jinja_take(w, mark);
    if (!is_error(v)) v.as.text->safe = true;
    return v;
}

/* Byte offset of a character. */
static size_t offset_of(struct text *t, size_t index)
{
    if (llm_jinja_chars(t) == t->n) return index;
    size_t at = 0;
    for (; at < t->n; at++) {
        if (((unsigned char)t->p[at] & 0xC0) == 0x80) continue;
        if (index-- == 0) break;
    }
    return at;
}

struct value llm_jinja_char_at(struct work *w, struct text *t, int64_t index)
{
    int64_t n = (int64_t)llm_jinja_chars(t);
    if (llm_jinja_step(w, t->n / 64) < 0) return error;
    if (index < 0) index += n;
    if (index < 0 || index >= n) return (struct value){.type = V_ABSENT};
    size_t at = offset_of(t, (size_t)index), length;
    char_at(t->p + at, t->n - at, &length);
    return part(w, t, at, at + length);
}

/* Python's slice.indices: from, to and step within `n` items. */
static int slice_bounds(struct work *w, const struct value range[3], int64_t n, int64_t bound[3])
{
    for (int i = 0; i < 3; i++)
        if (range[i].type != V_ABSENT && range[i].type != V_NONE && !is_whole(range[i]))
            return llm_jinja_error(w, "slice indices must be integers or None");
    int64_t step = is_whole(range[2]) ? whole(range[2]) : 1;
    if (step == 0) return llm_jinja_error(w, "slice step cannot be zero");
    if (step == INT64_MIN) step = -INT64_MAX;
    bound[0] = step > 0 ? 0 : n - 1;
    bound[1] = step > 0 ? n : -1;
    bound[2] = step;
    for (int i = 0; i < 2; i++) {
        if (!is_whole(range[i])) continue;
        int64_t at = whole(range[i]), low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
        if (at < 0) at = at < -n ? -1 : at + n;
        if (at < low) at = low;
        bound[i] = at > high ? high : at;
    }
    return 0;
}

static struct value slice_text(struct work *w, struct text *t, const int64_t bound[3])
{
    size_t mark = w->out.n;
    if (llm_jinja_step(w, t->n / 64) < 0) return error;
    if (bound[2] == 1) {
        size_t from = offset_of(t, (size_t)bound[0]);
        size_t to = bound[1] > bound[0] ? offset_of(t, (size_t)bound[1]) : from;
        return part(w, t, from, to);
    }
    struct sequence *chars;
    if (llm_jinja_items(w, (struct value){.type = V_TEXT, .as.text = t}, &chars) < 0) return error;
    for (int64_t i = bound[0]; bound[2] > 0 ? i < bound[1] : i > bound[1];) {
        struct text *one = chars->v[i].as.text;
        if (llm_jinja_put(w, one->p, one->n) < 0 || llm_jinja_step(w, 1) < 0) return error;
        if (__builtin_add_overflow(i, bound[2], &i)) break;
    }
    return llm_jinja_take(w, mark);
}

struct value llm_jinja_slice(struct work *w, struct value v, const struct value range[3])
{
    int64_t bound[3];
    if (v.type == V_TEXT) {
        if (slice_bounds(w, range, (int64_t)llm_jinja_chars(v.as.text), bound) < 0) return error;
        return slice_text(w, v.as.text, bound);
    }
    if (v.type == V_UNDEFINED) return llm_jinja_item(w, v, v_none());
    if (v.type != V_SEQUENCE || v.as.sequence->kind > S_RANGE) return llm_jinja_fail(w, "'%s' object is not subscriptable", llm_jinja_type(v));
    const struct sequence *from = v.as.sequence;
    if (slice_bounds(w, range, (int64_t)from->n, bound) < 0) return error;
    struct value list = llm_jinja_sequence(w, from->kind, 0);
    if (is_error(list)) return error;
    for (int64_t i = bound[0]; bound[2] > 0 ? i < bound[1] : i > bound[1];) {
        if (llm_jinja_append(w, list.as.sequence, from->v[i]) < 0) return error;
        if (__builtin_add_overflow(i, bound[2], &i)) break;
    }
    /* A range of numbers beyond 64 bits would be shown wrong. */
    list.as.sequence->start = (int64_t)((uint64_t)from->start + (uint64_t)bound[0] * (uint64_t)from->step);
    list.as.sequence->stop = (int64_t)((uint64_t)from->start + (uint64_t)bound[1] * (uint64_t)from->step);
    list.as.sequence->step = (int64_t)((uint64_t)from->step * (uint64_t)bound[2]);
    return list;
}
