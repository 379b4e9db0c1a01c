/* GPT-2's alphabet: bytes that print stand for themselves, the other 68 for U+0100 upwards in order. */
#include "token/internal.h"
#include "token/unicode.h"

static bool prints(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

uint32_t llm_byte_char(unsigned char byte)
{
    if (prints(byte))
        return byte;
    uint32_t cp = 0x100;
    for (unsigned b = 0; b < byte; b++)
        cp += !prints(b);
    return cp;
}

int llm_char_byte(uint32_t cp)
{
    if (cp < 0x100)
        return prints(cp) ? (int)cp : -1;
    if (cp < 0x121) /* 0x00-0x20 */
        return (int)(cp - 0x100);
    if (cp < 0x143) /* 0x7F-0xA0 */
        return (int)(cp - 0x121 + 0x7F);
    return cp == 0x143 ? 0xAD : -1;
}

int llm_byte_text_decode(const char *text, size_t n, struct llm_buf *out, struct llm_err *e)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t start = out->n;
    if (llm_buf_reserve(out, out->n + n, e) < 0)
        return -1;
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        int len = llm_utf8_next(p + at, n - at, &cp), byte = len > 0 ? llm_char_byte(cp) : -1;
        if (byte < 0) {
            out->n = start;
            return 0;
        }
        out->p[out->n++] = (char)byte;
        at += (size_t)len;
    }
    return 1;
}

int llm_byte_text_encode(const unsigned char *p, size_t n, struct llm_buf *out, struct llm_err *e)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char utf8[4];
        int len = llm_utf8_put(llm_byte_char(p[i]), utf8);
        if (llm_buf_put(out, utf8, (size_t)len, e) < 0)
            return -1;
    }
    return 0;
}
