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

void tokens_cell(struct llm_table *table, const struct llm_tokenizer *t, const int32_t *ids, int n)
{
    struct llm_buf all = {0}, shown = {0}, json = {0};
    struct llm_err *e = &table->err;
    bool some = false;
    for (int i = 0; i < n && !e->status; i++) {
        size_t length = 0;
        const char *text = t && ids[i] < llm_tokenizer_vocab_size(t) ? llm_tokenizer_piece(t, ids[i], &length) : NULL;
        some |= text != NULL;
        if (text && llm_buf_put(&all, text, length, e) < 0) break;
    }
    const char *bytes = all.p ? all.p : "";
    if (!e->status && some && escape(&shown, bytes, all.n, e) == 0 && llm_json_quote(&json, bytes, all.n, e) == 0
        && llm_buf_put(&shown, "", 1, e) == 0 && llm_buf_put(&json, "", 1, e) == 0) llm_table_raw(table, shown.p, json.p);
    else if (!e->status) llm_table_raw(table, "", "null");
    llm_buf_release(&all);
    llm_buf_release(&shown);
    llm_buf_release(&json);
}

void token_cells(struct llm_table *table, const struct llm_tokenizer *t, int32_t id)
{
    llm_table_printed(table, id, LLM_NUMBER_INTEGER, 0);
    tokens_cell(table, t, &id, 1);
}
