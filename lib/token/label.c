#include "token/label.h"

#include <inttypes.h>
#include <string.h>
#include <utf8proc.h>

static int put_escape(struct llm_buf *out, unsigned char c, struct llm_err *e)
{
    static const char letters[] = "abtnvfr"; /* of the characters from 7 on */
    if (c >= 7 && c <= 13) return llm_buf_printf(out, e, "\\%c", letters[c - 7]);
    return llm_buf_printf(out, e, "\\x%02X", c);
}

int llm_token_label(const struct llm_tokenizer *t, int32_t id, struct llm_buf *out, struct llm_err *e)
{
    size_t n = 0;
    const char *piece = llm_tokenizer_piece(t, id, &n);
    int bad = 0;
    if (!piece || n == 0) return llm_buf_printf(out, e, "<%" PRId32 ">", id);
    for (size_t i = 0, step; i < n && !bad; i += step) {
        utf8proc_int32_t code;
        utf8proc_ssize_t length = utf8proc_iterate((const utf8proc_uint8_t *)piece + i, (utf8proc_ssize_t)(n - i), &code);
        step = length > 0 ? (size_t)length : 1;
        if (length <= 0 || code < ' ' || code == 127) bad = put_escape(out, (unsigned char)piece[i], e);
        else if (code == ' ') bad = llm_buf_printf(out, e, "␣");
        else bad = llm_buf_put(out, piece + i, step, e);
    }
    return bad;
}
