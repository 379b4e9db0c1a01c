#include "infer/constrain/chars.h"

#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/utf8.h"

enum { LAST = 0x10FFFF, MAX_RANGES = 1 << 16 };

int llm_chars_put(struct llm_chars *c, uint32_t low, uint32_t high, struct llm_err *e)
{
    if (c->n >= MAX_RANGES) return llm_fail(e, EX_DATAERR, "a set of characters has more than %d ranges", MAX_RANGES);
    if (llm_grow((void **)&c->v, &c->room, c->n + 1, sizeof *c->v, e) < 0) return -1;
    c->v[c->n++] = (struct llm_char_range){low, high};
    return 0;
}

void llm_chars_release(struct llm_chars *c)
{
    free(c->v);
    *c = (struct llm_chars){0};
}

static int by_low(const void *a, const void *b)
{
    const struct llm_char_range *x = a, *y = b;
    return (x->low > y->low) - (x->low < y->low);
}

void llm_chars_tidy(struct llm_chars *c)
{
    size_t n = 0;
    if (c->n == 0) return;
    qsort(c->v, c->n, sizeof *c->v, by_low);
    for (size_t i = 0; i < c->n; i++) {
        if (n > 0 && c->v[i].low <= c->v[n - 1].high + 1) {
            if (c->v[i].high > c->v[n - 1].high) c->v[n - 1].high = c->v[i].high;
        } else {
            c->v[n++] = c->v[i];
        }
    }
    c->n = n;
}

int llm_chars_invert(struct llm_chars *c, struct llm_err *e)
{
    struct llm_chars others = {0};
    uint32_t from = 0;
    int status = llm_chars_put(c, 0xD800, 0xDFFF, e);
    llm_chars_tidy(c);
    for (size_t i = 0; status == 0 && i < c->n; i++) {
        if (c->v[i].low > from) status = llm_chars_put(&others, from, c->v[i].low - 1, e);
        from = c->v[i].high + 1;
    }
    if (status == 0 && from <= LAST) status = llm_chars_put(&others, from, LAST, e);
    llm_chars_release(c);
    *c = others;
    return status;
}

/* How digits of a number become bytes. */
struct digits {
    int n;
    int low[4], high[4];     /* of the range */
    int first, last;         /* what a digit after the highest may be */
    llm_term (*digit)(struct llm_terms *t, int low, int high);
};

static llm_term byte_digit(struct llm_terms *t, int low, int high)
{
    return llm_term_range(t, (unsigned char)low, (unsigned char)high);
}

static llm_term hex_digit(struct llm_terms *t, int low, int high)
{
    llm_term v[3] = {LLM_TERM_NOTHING, LLM_TERM_NOTHING, LLM_TERM_NOTHING};
    if (low <= 9) v[0] = llm_term_range(t, (unsigned char)('0' + low), (unsigned char)('0' + (high < 9 ? high : 9)));
    if (high >= 10) {
        int from = low > 10 ? low - 10 : 0, to = high - 10;
        v[1] = llm_term_range(t, (unsigned char)('a' + from), (unsigned char)('a' + to));
        v[2] = llm_term_range(t, (unsigned char)('A' + from), (unsigned char)('A' + to));
    }
    return llm_term_either(t, v, 3);
}

/* Numbers of d->n digits from d->low to d->high. `at_low`, `at_high`: the digits before `at` are those of the end of the range. */
static llm_term range_of_digits(struct llm_terms *t, const struct digits *d, int at, bool at_low, bool at_high)
{
    if (at == d->n) return LLM_TERM_EMPTY_TEXT;
    int low = at_low ? d->low[at] : d->first, high = at_high ? d->high[at] : d->last;
    if (at_low && at_high && low == high) return llm_term_join(t, d->digit(t, low, low), range_of_digits(t, d, at + 1, true, true));
    llm_term v[3] = {LLM_TERM_NOTHING, LLM_TERM_NOTHING, LLM_TERM_NOTHING};
    if (at_low) {
        v[0] = llm_term_join(t, d->digit(t, low, low), range_of_digits(t, d, at + 1, true, false));
        low++;
    }
    if (at_high) {
        v[1] = llm_term_join(t, d->digit(t, high, high), range_of_digits(t, d, at + 1, false, true));
        high--;
    }
    if (low <= high) v[2] = llm_term_join(t, d->digit(t, low, high), range_of_digits(t, d, at + 1, false, false));
    return llm_term_either(t, v, 3);
}

/* Part of [low, high] that has characters of one length in UTF-8, none of them a surrogate. */
static llm_term utf8_range(struct llm_terms *t, uint32_t low, uint32_t high)
{
    static const uint32_t ends[] = {0x7F, 0x7FF, 0xD7FF, 0xDFFF, 0xFFFF, LAST};
    llm_term v[6];
    size_t n = 0;
    uint32_t from = 0;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; from = ends[i++] + 1) {
        uint32_t a = low > from ? low : from, b = high < ends[i] ? high : ends[i];
        if (a > b || from == 0xD800) continue;
        unsigned char p[4], q[4];
        struct digits d = {.n = llm_utf8_put(a, p), .first = 0x80, .last = 0xBF, .digit = byte_digit};
        (void)llm_utf8_put(b, q);
        for (int k = 0; k < d.n; k++) {
            d.low[k] = p[k];
            d.high[k] = q[k];
        }
        v[n++] = range_of_digits(t, &d, 0, true, true);
    }
    return llm_term_either(t, v, n);
}

static llm_term hex_range(struct llm_terms *t, uint32_t low, uint32_t high)
{
    struct digits d = {.n = 4, .first = 0, .last = 15, .digit = hex_digit};
    for (int k = 0; k < 4; k++) {
        d.low[k] = (int)(low >> (12 - 4 * k) & 15);
        d.high[k] = (int)(high >> (12 - 4 * k) & 15);
    }
    return llm_term_join(t, llm_term_text(t, "\\u", 2), range_of_digits(t, &d, 0, true, true));
}

/* \uXXXX, or two of them: a high and a low surrogate. */
static llm_term escaped_range(struct llm_terms *t, uint32_t low, uint32_t high)
{
    static const uint32_t ends[] = {0xD7FF, 0xDFFF, 0xFFFF};
    llm_term v[6];
    size_t n = 0;
    uint32_t from = 0;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; from = ends[i++] + 1) {
        uint32_t a = low > from ? low : from, b = high < ends[i] ? high : ends[i];
        if (a <= b && from != 0xD800) v[n++] = hex_range(t, a, b);
    }
    if (high >= 0x10000) {
        uint32_t a = (low > 0x10000 ? low : 0x10000) - 0x10000, b = high - 0x10000, a_high = a >> 10, b_high = b >> 10;
        a &= 0x3FF;
        b &= 0x3FF;
        if (a_high == b_high) {
            v[n++] = llm_term_join(t, hex_range(t, 0xD800 + a_high, 0xD800 + a_high), hex_range(t, 0xDC00 + a, 0xDC00 + b));
        } else {
            v[n++] = llm_term_join(t, hex_range(t, 0xD800 + a_high, 0xD800 + a_high), hex_range(t, 0xDC00 + a, 0xDFFF));
            v[n++] = llm_term_join(t, hex_range(t, 0xD800 + b_high, 0xD800 + b_high), hex_range(t, 0xDC00, 0xDC00 + b));
            if (b_high - a_high > 1) {
                v[n++] = llm_term_join(t, hex_range(t, 0xD800 + a_high + 1, 0xD800 + b_high - 1), hex_range(t, 0xDC00, 0xDFFF));
            }
        }
    }
    return llm_term_either(t, v, n);
}

static bool contains(const struct llm_chars *c, uint32_t x)
{
    for (size_t i = 0; i < c->n; i++)
        if (x >= c->v[i].low && x <= c->v[i].high) return true;
    return false;
}

/* Alternatives that come one after another; joined in groups, so that joining them is not quadratic. */
struct choices { llm_term v[64]; size_t n; };

static void choose(struct llm_terms *t, struct choices *c, llm_term a)
{
    if (c->n == sizeof c->v / sizeof *c->v) {
        c->v[0] = llm_term_either(t, c->v, c->n);
        c->n = 1;
    }
    c->v[c->n++] = a;
}

llm_term llm_term_chars(struct llm_terms *t, const struct llm_chars *c, enum llm_spelling s)
{
    static const struct { uint32_t low, high; } raw[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, LAST}};
    static const char short_for[] = "\"\\/\b\f\n\r\t", shorts[] = "\"\\/bfnrt";
    struct choices all = {.n = 0};
    for (size_t i = 0; i < c->n; i++) {
        uint32_t low = c->v[i].low, high = c->v[i].high < LAST ? c->v[i].high : LAST;
        if (s == LLM_SPELL_UTF8) {
            choose(t, &all, utf8_range(t, low, high));
            continue;
        }
        for (size_t k = 0; k < sizeof raw / sizeof *raw; k++) {
            uint32_t a = low > raw[k].low ? low : raw[k].low, b = high < raw[k].high ? high : raw[k].high;
            if (a <= b) choose(t, &all, utf8_range(t, a, b));
        }
        if (s == LLM_SPELL_JSON) {
            choose(t, &all, escaped_range(t, low, high));
        } else {
            if (low < 0x20) choose(t, &all, escaped_range(t, low, high < 0x1F ? high : 0x1F));
            if (high >= 0x7F) choose(t, &all, escaped_range(t, low > 0x7F ? low : 0x7F, high));
        }
    }
    for (size_t k = 0; s != LLM_SPELL_UTF8 && k + 1 < sizeof shorts; k++) {
        if (contains(c, (unsigned char)short_for[k]) && (s == LLM_SPELL_JSON || shorts[k] != '/')) {
            choose(t, &all, llm_term_text(t, (const char[]){'\\', shorts[k]}, 2));
        }
    }
    return llm_term_either(t, all.v, all.n);
}

llm_term llm_term_spelled(struct llm_terms *t, const char *p, size_t n, enum llm_spelling s)
{
    struct llm_char_range *v = NULL;
    size_t count = 0, room = 0;
    struct llm_err e = {0};
    llm_term all = LLM_TERM_EMPTY_TEXT;
    for (size_t at = 0; at < n; count++) {
        uint32_t c = 0;
        int step = llm_utf8_next((const unsigned char *)p + at, n - at, &c);
        if (step <= 0) all = LLM_TERM_NOTHING;
        if (llm_grow((void **)&v, &room, count + 1, sizeof *v, &e) < 0) {
            llm_terms_fail(t, &e);
            break;
        }
        v[count] = (struct llm_char_range){c, c};
        at += step > 0 ? (size_t)step : 1;
    }
    while (count > 0) all = llm_term_join(t, llm_term_chars(t, &(struct llm_chars){&v[--count], 1, 1}, s), all);
    free(v);
    return all;
}
