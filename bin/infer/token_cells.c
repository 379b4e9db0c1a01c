/* A token in a table: its id and its text. */
#include "base/buf.h"
#include "base/json.h"
#include "bin/infer/inside.h"
#include "token/unicode.h"

static int escape(struct llm_buf *b, const char *text, size_t n, struct llm_err *e)
{
    for (size_t i = 0; i < n;) {
        uint32_t c = 0;
        int length = llm_utf8_next((const unsigned char *)text + i, n - i, &c);
        const char *named = c == '\t' ? "\\t" : c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\\' ? "\\\\" : NULL;
        int status;
        if (named) status = llm_buf_put(b, named, 2, e);
        else if (length <= 0 || c < 0x20 || c == 0x7f) status = llm_buf_printf(b, e, "\\x%02x", (unsigned char)text[i]);
        else status = llm_buf_put(b, text + i, (size_t)length, e);
        if (status < 0) return -1;
        i += length > 0 ? (size_t)length : 1;
    }
    return 0;
}

void token_cells(struct llm_table *table, const struct llm_tokenizer *t, int32_t id)
{
    struct llm_buf shown = {0}, json = {0};
    struct llm_err *e = &table->err;
    size_t n = 0;
    const char *text = t && id < llm_tokenizer_vocab_size(t) ? llm_tokenizer_piece(t, id, &n) : NULL;
    llm_table_printed(table, id, LLM_NUMBER_INTEGER, 0);
    if (!e->status && text && escape(&shown, text, n, e) == 0 && llm_json_quote(&json, text, n, e) == 0 && llm_buf_put(&shown, "", 1, e) == 0
        && llm_buf_put(&json, "", 1, e) == 0) llm_table_raw(table, shown.p, json.p);
    else if (!e->status) llm_table_raw(table, "", "null");
    llm_buf_release(&shown);
    llm_buf_release(&json);
}
