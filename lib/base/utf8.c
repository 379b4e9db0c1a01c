#include "base/utf8.h"

#include <stdbool.h>
#include <string.h>

int llm_utf8_next(const unsigned char *p, size_t n, uint32_t *cp)
{
    unsigned c = p[0], low = 0x80, high = 0xBF;
    int len;
    if (c < 0x80) {
        *cp = c;
        return 1;
    }
    if (c < 0xC2 || c > 0xF4)
        return 0;
    len = c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    /* overlong forms, surrogates and values above 10FFFF show in the second byte */
    if (c == 0xE0)
        low = 0xA0;
    else if (c == 0xED)
        high = 0x9F;
    else if (c == 0xF0)
        low = 0x90;
    else if (c == 0xF4)
        high = 0x8F;
    uint32_t v = c & (0x7Fu >> len);
    for (int i = 1; i < len; i++) {
        if ((size_t)i >= n)
            return -1;
        if (p[i] < low || p[i] > high)
            return 0;
        v = v << 6 | (p[i] & 0x3Fu);
        low = 0x80;
        high = 0xBF;
    }
    *cp = v;
    return len;
}

int llm_utf8_put(uint32_t cp, unsigned char out[4])
{
    if (cp < 0x80) {
        out[0] = (unsigned char)cp;
        return 1;
    }
    int len = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (int i = len - 1; i > 0; i--, cp >>= 6)
        out[i] = (unsigned char)(0x80 | (cp & 0x3F));
    out[0] = (unsigned char)(lead[len] | cp);
    return len;
}

size_t llm_utf8_mark(const void *text, size_t n)
{
    return n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
}

size_t llm_utf8_invalid(const unsigned char *p, size_t n)
{
    uint32_t cp;
    size_t at = 0;
    while (at < n) {
        if (p[at] < 0x80) {
            at++;
            continue;
        }
        int len = llm_utf8_next(p + at, n - at, &cp);
        if (len <= 0)
            return at;
        at += (size_t)len;
    }
    return n;
}

size_t llm_utf8_complete(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    uint32_t cp;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = p[n - back];
        if (c < 0x80)
            break;
        if (c >= 0xC0)
            return llm_utf8_next(p + n - back, back, &cp) < 0 ? n - back : n;
    }
    return n;
}

int llm_utf8_is_space(uint32_t cp)
{
    if (cp < 0x80) return (cp >= 9 && cp <= 13) || (cp >= 0x1c && cp <= 0x20);
    return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 || cp == 0x202f
        || cp == 0x205f || cp == 0x3000;
}

size_t llm_utf8_skip_space(const char *s, size_t n, size_t from)
{
    uint32_t cp;
    for (int length; from < n && (length = llm_utf8_next((const unsigned char *)s + from, n - from, &cp)) > 0 && llm_utf8_is_space(cp);)
        from += (size_t)length;
    return from;
}

size_t llm_utf8_trim_end(const char *s, size_t n)
{
    for (size_t at; n > 0; n = at) {
        uint32_t cp;
        for (at = n - 1; at > 0 && n - at < 4 && ((unsigned char)s[at] & 0xC0) == 0x80;) at--;
        if (llm_utf8_next((const unsigned char *)s + at, n - at, &cp) != (int)(n - at) || !llm_utf8_is_space(cp)) break;
    }
    return n;
}

int llm_utf8_is_control(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0x61c || (cp >= 0x200e && cp <= 0x200f) || (cp >= 0x2028 && cp <= 0x202e)
           || (cp >= 0x2066 && cp <= 0x2069);
}

size_t llm_utf8_escape(const char *text, size_t n, char *out, size_t room)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *p = (const unsigned char *)text;
    size_t w = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        int len = llm_utf8_next(p + i, n - i, &cp), whole = len > 0, bytes = whole ? len : 1;
        const char *letter = cp == '\n' ? "\\n" : cp == '\t' ? "\\t" : cp == '\r' ? "\\r" : NULL;
        bool shown = whole && !llm_utf8_is_control(cp);
        size_t wide = shown ? (size_t)bytes : whole && letter ? 2 : 4 * (size_t)bytes;
        if (w + wide + 1 > room) break;
        if (shown) memcpy(out + w, p + i, wide);
        else if (whole && letter) memcpy(out + w, letter, wide);
        else {
            for (int k = 0; k < bytes; k++) {
                const char hex[4] = {'\\', 'x', digits[p[i + (size_t)k] >> 4], digits[p[i + (size_t)k] & 15]};
                memcpy(out + w + 4 * (size_t)k, hex, 4);
            }
        }
        w += wide;
        i += (size_t)bytes;
    }
    if (room > 0) out[w] = 0;
    return w;
}
