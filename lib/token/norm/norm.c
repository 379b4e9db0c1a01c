#include "token/norm/norm.h"
#include <string.h>
#include "token/norm/charsmap.h"

const struct llm_norm_row *const llm_norm_rows[] = {
    &llm_norm_nfc,     &llm_norm_nfd,     &llm_norm_nfkc, &llm_norm_nfkd, &llm_norm_lowercase,   &llm_norm_strip,         &llm_norm_strip_accents,
    &llm_norm_replace, &llm_norm_prepend, &llm_norm_nmt,  &llm_norm_bert, &llm_norm_precompiled, &llm_norm_sentencepiece,
    &llm_norm_siglip,  NULL};

int llm_norm_init(struct llm_norm *s, const json_t *o, struct llm_err *e)
{
    const char *type = NULL;
    *s = (struct llm_norm){0};
    if (!json_is_object(o))
        return llm_fail(e, EX_DATAERR, "normalizer: expected an object");
    if (llm_json_str(o, "type", &type, e) < 0)
        return llm_in(e, "normalizer");
    if (!type)
        return llm_fail(e, EX_DATAERR, "normalizer: expected a type");
    for (size_t i = 0; llm_norm_rows[i]; i++)
        if (strcmp(llm_norm_rows[i]->name, type) == 0)
            s->row = llm_norm_rows[i];
    if (!s->row)
        return llm_fail(e, EX_UNAVAILABLE, "normalizer '%s' is not supported", type);
    if (s->row->read && s->row->read(s, o, e) < 0) {
        llm_norm_release(s);
        return llm_in(e, "normalizer %s", type);
    }
    return 0;
}

int llm_norm_check(const struct llm_norm *s, const struct llm_norm_place *at, const struct llm_buf *out, struct llm_err *e)
{
    if (out->n <= at->limit)
        return 0;
    return llm_fail(e, EX_DATAERR, "normalizer %s: expected at most %d times the bytes of the text and %d more, found more", s->row->name,
                    LLM_NORM_GROWTH, LLM_NORM_MARGIN);
}

void llm_norm_release(struct llm_norm *s)
{
    llm_buf_release(&s->text);
    llm_buf_release(&s->content);
    llm_buf_release(&s->map);
    llm_regex_destroy(s->regex);
    *s = (struct llm_norm){0};
}

bool llm_norm_cuts(const struct llm_norm *s)
{
    if (s->row == &llm_norm_siglip)
        return false;
    if (s->row != &llm_norm_replace)
        return true;
    if (s->regex) /* runs of spaces, which tokenizers of SentencePiece's kind have, stay together */
        return strcmp(s->text.p, " {2,}") == 0;
    for (size_t i = 1; i < s->text.n; i++)
        if (s->text.p[i] == ' ')
            return false;
    return true;
}

bool llm_norm_takes_bytes(const struct llm_norm *s)
{
    return s->row == &llm_norm_nfc || s->row == &llm_norm_prepend || s->row == &llm_norm_sentencepiece || (s->row == &llm_norm_replace && !s->regex);
}

bool llm_norm_no_spaces(const struct llm_norm *s)
{
    if (s->row == &llm_norm_sentencepiece)
        return s->flags & LLM_NORM_ESCAPE;
    return s->row == &llm_norm_replace && !s->regex && s->text.n == 1 && *s->text.p == ' ' && !memchr(s->content.p, ' ', s->content.n);
}

/* ---- base64 ---- */

static int digit(unsigned char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int llm_base64_decode(const char *text, size_t n, struct llm_buf *out, struct llm_err *e)
{
    const unsigned char *p = (const unsigned char *)text, *end = p + n;
    if (llm_buf_reserve(out, out->n + n / 4 * 3 + 1, e) < 0)
        return -1;
    unsigned char *to = (unsigned char *)out->p + out->n;
    if (n % 4)
        return llm_fail(e, EX_DATAERR, "expected base64");
    for (; p < end; p += 4) {
        int a = digit(p[0]), b = digit(p[1]), c = digit(p[2]), d = digit(p[3]);
        bool last = p + 4 == end, two = last && p[3] == '=', one = two && p[2] == '=';
        if (a < 0 || b < 0 || (c < 0 && !one) || (d < 0 && !two))
            return llm_fail(e, EX_DATAERR, "expected base64");
        *to++ = (unsigned char)(a << 2 | b >> 4);
        if (!one)
            *to++ = (unsigned char)(b << 4 | c >> 2);
        if (!two)
            *to++ = (unsigned char)(c << 6 | d);
    }
    out->n = (size_t)((char *)to - out->p);
    return 0;
}

int llm_base64_encode(const unsigned char *p, size_t n, struct llm_buf *out, struct llm_err *e)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        unsigned v = (unsigned)p[i] << 16 | (i + 1 < n ? (unsigned)p[i + 1] << 8 : 0) | (i + 2 < n ? p[i + 2] : 0);
        char four[4] = {digits[v >> 18], digits[v >> 12 & 63], i + 1 < n ? digits[v >> 6 & 63] : '=', i + 2 < n ? digits[v & 63] : '='};
        if (llm_buf_put(out, four, 4, e) < 0)
            return -1;
    }
    return 0;
}
