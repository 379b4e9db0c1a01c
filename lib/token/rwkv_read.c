/* RWKV's vocabulary files: a line a token: id, a text or bytes as Python's repr writes them, the number of bytes:
 *     9 '\x08' 1
 *     249 b'\xf8' 1
 *     274 " '" 2
 * Ids are those from 1 on; 0, which ends a text, is not of the file. Source: rwkv_vocab_v20230424.txt and the reader published with it. */
#include <string.h>
#include "token/internal.h"
#include "token/unicode.h"

#define END_OF_TEXT "<|rwkv_tokenizer_end_of_text|>" /* the name that RWKV's folders for Hugging Face's library give to id 0 */

struct line {
    const unsigned char *p, *end;
    size_t number;
};

static int bad_line(const struct line *l, struct llm_err *e)
{
    return llm_fail(e, EX_DATAERR, "line %zu: expected an id, a text in quotes as Python writes it, and its length in bytes", l->number);
}

/* A number of decimal digits; false when there is none, or it is beyond what an id or a length can be. */
static bool take_number(struct line *l, int64_t *v)
{
    const unsigned char *start = l->p;
    *v = 0;
    for (; l->p < l->end && *l->p >= '0' && *l->p <= '9'; l->p++)
        if ((*v = *v * 10 + (*l->p - '0')) > UINT32_MAX)
            return false;
    return l->p > start;
}

static bool take_byte(struct line *l, unsigned char c)
{
    bool there = l->p < l->end && *l->p == c;
    l->p += there;
    return there;
}

/* `digits` hexadecimal digits. */
static bool take_hex(struct line *l, int digits, uint32_t *v)
{
    for (*v = 0; digits--; l->p++) {
        const char *found, *all = "0123456789abcdef0123456789ABCDEF";
        if (l->p == l->end || *l->p == '\0' || !(found = strchr(all, *l->p)))
            return false;
        *v = *v << 4 | (uint32_t)(found - all) % 16;
    }
    return true;
}

/* What follows a backslash: *v a character of a text, or a byte. */
static bool take_escape(struct line *l, bool bytes, uint32_t *v)
{
    static const char plain[] = "\\\\''\"\"n\nr\rt\t"; /* the letter and what it stands for */
    if (l->p == l->end)
        return false;
    unsigned char c = *l->p++;
    for (const char *s = plain; *s; s += 2)
        if (c == (unsigned char)*s) {
            *v = (unsigned char)s[1];
            return true;
        }
    if (c == 'x')
        return take_hex(l, 2, v);
    return !bytes && (c == 'u' ? take_hex(l, 4, v) : c == 'U' && take_hex(l, 8, v)) && *v <= 0x10FFFF && (*v < 0xD800 || *v > 0xDFFF);
}

/* The text between quotes, without them, appended to `out`: what it gains is never more than what the line has. 1, 0: it is no such text, or -1. */
static int take_quoted(struct line *l, struct llm_buf *out, struct llm_err *e)
{
    bool bytes = take_byte(l, 'b');
    unsigned char quote = l->p < l->end ? *l->p : 0;
    if (quote != '\'' && quote != '"')
        return 0;
    for (l->p++; !take_byte(l, quote);) {
        uint32_t cp;
        unsigned char utf8[4];
        int len = l->p == l->end ? 0 : llm_utf8_next(l->p, (size_t)(l->end - l->p), &cp);
        if (len <= 0 || (bytes && len > 1))
            return 0;
        l->p += len;
        if (cp == '\\' && !take_escape(l, bytes, &cp))
            return 0;
        if (bytes)
            utf8[0] = (unsigned char)cp;
        if (llm_buf_put(out, utf8, bytes ? 1 : (size_t)llm_utf8_put(cp, utf8), e) < 0)
            return -1;
    }
    return 1;
}

static int read_line(struct line *l, struct llm_buf *out, struct llm_vocab *v, struct llm_err *e)
{
    int64_t id, length;
    size_t at = out->n;
    if (!take_number(l, &id))
        return l->p < l->end && *l->p >= '0' && *l->p <= '9' ? llm_fail(e, EX_DATAERR, "line %zu: an id beyond 32 bits", l->number) : bad_line(l, e);
    int quoted = take_byte(l, ' ') ? take_quoted(l, out, e) : 0;
    if (quoted < 0)
        return -1;
    if (!quoted || !take_byte(l, ' ') || !take_number(l, &length) || l->p != l->end)
        return bad_line(l, e);
    if ((size_t)length != out->n - at)
        return llm_fail(e, EX_DATAERR, "line %zu: a text of %zu bytes, expected %lld", l->number, out->n - at, (long long)length);
    return llm_vocab_put(v, id, (const unsigned char *)out->p + at, out->n - at, LLM_TOKEN_MODEL, e) < 0 ? llm_in(e, "line %zu", l->number) : 0;
}

/* Every line into the vocabulary; decoded bytes into `out`, which has room for the whole text and so stays where it is. */
static int read_lines(const unsigned char *p, size_t n, struct llm_buf *out, struct llm_vocab *v, struct llm_err *e)
{
    const unsigned char *end = p + n;
    for (size_t number = 1; p < end; number++) {
        const unsigned char *stop = memchr(p, '\n', (size_t)(end - p));
        if (!stop)
            stop = end;
        struct line l = {p, stop > p && stop[-1] == '\r' ? stop - 1 : stop, number};
        if (l.end > p && read_line(&l, out, v, e) < 0)
            return -1;
        p = stop + 1;
    }
    return 0;
}

static int build(struct llm_tokenizer *t, struct llm_vocab *v, struct llm_err *e)
{
    for (size_t id = 1; id < v->n; id++)
        if (!v->v[id].flags)
            return llm_fail(e, EX_DATAERR, "token id %zu is missing", id);
    if (v->n && !v->v[0].flags) {
        if (llm_vocab_put(v, 0, (const unsigned char *)END_OF_TEXT, strlen(END_OF_TEXT), LLM_TOKEN_ADDED | LLM_TOKEN_SPECIAL, e) < 0)
            return -1;
        t->eos = 0;
    }
    t->model = &llm_model_greedy;
    return llm_tokenizer_set_vocab(t, v, e) < 0 ? -1 : llm_tokenizer_finish(t, NULL, 0, e);
}

struct llm_tokenizer *llm_tokenizer_from_rwkv(const unsigned char *text, size_t n, struct llm_err *e)
{
    struct llm_vocab v = {.limit = 2};
    struct llm_buf bytes = {0};
    for (size_t i = 0; i < n; i++)
        v.limit += text[i] == '\n';
    struct llm_tokenizer *t = llm_buf_reserve(&bytes, n + 4, e) == 0 ? llm_tokenizer_create(e) : NULL;
    if (t && (read_lines(text, n, &bytes, &v, e) < 0 || build(t, &v, e) < 0)) {
        llm_tokenizer_destroy(t);
        t = NULL;
    }
    llm_buf_release(&bytes);
    llm_vocab_release(&v);
    return t;
}

bool llm_is_rwkv(const unsigned char *p, size_t n)
{
    size_t i = 0;
    while (i < n && p[i] >= '0' && p[i] <= '9')
        i++;
    if (i == 0 || i + 2 >= n || p[i] != ' ')
        return false;
    i += p[i + 1] == 'b' ? 2 : 1;
    return i < n && (p[i] == '\'' || p[i] == '"');
}
