#include "base/json_long.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/utf8.h"

enum { LEAST = 1 << 16 };

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The value of the four hexadecimal digits at p; n bytes are available. -1: p has no four digits. */
static int32_t unit(const char *p, size_t n)
{
    int32_t v = 0;
    for (size_t i = 0; i < 4; i++) {
        int digit = i < n ? hex_digit(p[i]) : -1;
        if (digit < 0) return -1;
        v = v * 16 + digit;
    }
    return v;
}

static bool is_between(int32_t v, int32_t from, int32_t to)
{
    return v >= from && v <= to;
}

/* Decodes the escape at p, after its backslash, to the character *c. Returns its length; 0: it is no JSON escape, or half of a surrogate pair. */
static size_t escape(const char *p, size_t n, int32_t *c)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char *known = n > 0 && *p ? strchr(letters, *p) : NULL;
    if (known) *c = meanings[known - letters];
    if (known) return 1;
    if (n == 0 || *p != 'u') return 0;
    int32_t high = unit(p + 1, n - 1), low = -1;
    *c = high;
    if (!is_between(high, 0xD800, 0xDFFF)) return high < 0 ? 0 : 5;
    if (high < 0xDC00 && n > 6 && p[5] == '\\' && p[6] == 'u') low = unit(p + 7, n - 7);
    *c = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    return is_between(low, 0xDC00, 0xDFFF) ? 11 : 0;
}

static size_t put_utf8(char *to, int32_t c)
{
    if (c < 0x80) return *to = (char)c, 1;
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6) to[i] = (char)(0x80 | (c & 0x3F));
    to[0] = (char)((n == 2 ? 0xC0 : n == 3 ? 0xE0 : 0xF0) | c);
    return n;
}

/* Decodes the inside of a string literal, n bytes at p, to `to`, which may equal p; NULL: only counts. Returns the number of decoded bytes, or
 * SIZE_MAX if the literal is not valid. */
static size_t decode(const char *p, size_t n, char *to)
{
    size_t out = 0;
    for (size_t i = 0; i < n;) {
        size_t length;
        if (p[i] == '\\') {
            char utf8[4];
            int32_t c;
            length = escape(p + i + 1, n - i - 1, &c);
            if (length == 0) return SIZE_MAX;
            size_t width = put_utf8(utf8, c);
            if (to) memcpy(to + out, utf8, width);
            out += width;
            i += 1 + length;
            continue;
        }
        uint32_t cp;
        int valid = (unsigned char)p[i] < 0x20 ? 0 : llm_utf8_next((const unsigned char *)p + i, n - i, &cp);
        if (valid <= 0) return SIZE_MAX;
        length = (size_t)valid;
        if (to) memmove(to + out, p + i, length);
        out += length;
        i += length;
    }
    return out;
}

/* The length of the literal at p, quotes included; 0: it does not end. */
static size_t literal(const char *p, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        if (p[i] == '\\') i++;
        else if (p[i] == '"') return i + 1;
    }
    return 0;
}

static bool is_key(const char *p, size_t n)
{
    size_t blank = 0;
    while (blank < n && (p[blank] == ' ' || p[blank] == '\t' || p[blank] == '\n' || p[blank] == '\r')) blank++;
    return blank < n && p[blank] == ':';
}

static int put_stand_in(struct llm_json_long *l, const char *inside, size_t n, struct llm_err *e)
{
    if (llm_grow((void **)&l->strings, &l->room, l->n + 1, sizeof *l->strings, e) < 0) return -1;
    l->strings[l->n] = (struct llm_json_span){(char *)(uintptr_t)inside, n};
    return llm_buf_printf(&l->reduced, e, "\"\\u0000%s%zu\"", l->mark + 1, l->n++);
}

static int reduce(struct llm_json_long *l, const char *text, size_t n, struct llm_err *e)
{
    for (size_t at = 0; at < n;) {
        const char *quote = memchr(text + at, '"', n - at);
        size_t before = quote ? (size_t)(quote - text) - at : n - at;
        if (llm_buf_put(&l->reduced, text + at, before, e) < 0) return -1;
        at += before;
        size_t length = quote ? literal(quote, n - at) : 0;
        if (length == 0) return llm_buf_put(&l->reduced, text + at, n - at, e);
        bool replace = length > l->least && !is_key(quote + length, n - at - length) && decode(quote + 1, length - 2, NULL) != SIZE_MAX;
        if (replace ? put_stand_in(l, quote + 1, length - 2, e) < 0 : llm_buf_put(&l->reduced, quote, length, e) < 0) return -1;
        at += length;
    }
    return 0;
}

json_t *llm_json_long_parse(struct llm_json_long *l, char *text, size_t n, struct llm_err *e)
{
    l->n = l->reduced.n = 0;
    if (l->least == 0) l->least = LEAST;
    if (n <= l->least) return llm_json_parse_python(text, n, e);
    l->n_mark = 1 + (size_t)snprintf(l->mark + 1, sizeof l->mark - 1, "%llx/", (unsigned long long)(uintptr_t)l);
    if (reduce(l, text, n, e) < 0) return NULL;
    json_t *v = llm_json_parse_python(l->reduced.p, l->reduced.n, e);
    if (!v) return l->n > 0 && e && e->status == EX_DATAERR ? llm_json_parse_python(text, n, e) : NULL; /* for the message's line and column */
    for (size_t i = 0; i < l->n; i++) l->strings[i].n = decode(l->strings[i].p, l->strings[i].n, l->strings[i].p);
    return v;
}

const char *llm_json_long_string(const struct llm_json_long *l, const json_t *v, size_t *n)
{
    const char *text = json_string_value(v);
    *n = text ? json_string_length(v) : 0;
    if (!text || !l || l->n == 0 || *n <= l->n_mark || memcmp(text, l->mark, l->n_mark) != 0) return text;
    size_t i = strtoull(text + l->n_mark, NULL, 10);
    *n = l->strings[i].n;
    return l->strings[i].p;
}

void llm_json_long_release(struct llm_json_long *l)
{
    free(l->strings);
    llm_buf_release(&l->reduced);
    *l = (struct llm_json_long){0};
}
