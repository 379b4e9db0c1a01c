/* --score: a table of the prompt's tokens. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/log.h"
#include "bin/infer/infer.h"
#include "infer/score.h"
#include "io/table.h"
#include "token/unicode.h"

struct run {
    struct session *s;
    const int32_t *ids;
    struct llm_table table;
    enum llm_table_form form;
    struct llm_buf shown, json; /* the text of the token at hand */
};

enum { ROWS = 256 }; /* are written at once */

/* Keeps a token's text on one line and in one field: \t \n \r \\, and \xNN for other control characters and for bytes that are not UTF-8. */
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

static int line(void *arg, int64_t i, double log_prob, struct llm_err *e)
{
    struct run *r = arg;
    const struct llm_tokenizer *t = r->s->model->tokenizer;
    size_t n = 0;
    const char *text = t && r->ids[i] < llm_tokenizer_vocab_size(t) ? llm_tokenizer_piece(t, r->ids[i], &n) : NULL;
    r->shown.n = r->json.n = 0;
    if ((text && (escape(&r->shown, text, n, e) < 0 || llm_json_quote(&r->json, text, n, e) < 0)) || llm_buf_put(&r->shown, "", 1, e) < 0
        || llm_buf_put(&r->json, text ? "" : "null", text ? 1 : 5, e) < 0) return -1;
    llm_table_printed(&r->table, r->ids[i], LLM_NUMBER_INTEGER, 0);
    llm_table_raw(&r->table, r->shown.p, r->json.p);
    llm_table_printed(&r->table, log_prob, LLM_NUMBER_FIXED, 6);
    return r->table.n_cells < ROWS * r->table.n_columns ? 0 : llm_table_flush(&r->table, r->form, r->s->out, e);
}

int run_score(struct session *s, const int32_t *ids, size_t n, struct llm_err *e)
{
    struct llm_kv *begin = s->begin.n > 0 ? &s->begin : NULL;
    int32_t last = begin ? begin->ids[begin->n - 1] : 0;
    size_t kept = begin != NULL;
    int status = begin ? llm_engine_rewind(&s->engine, begin, begin->n - 1, e) : 0;
    int32_t *all = status == 0 ? llm_alloc(n + 1, sizeof *all, "tokens", e) : NULL;
    if (!all) return status ? status : -1;
    all[0] = last; /* of the cache, read again: it says how likely the first new one is */
    if (n > 0) memcpy(all + kept, ids, n * sizeof *ids);
    bool longer = (int64_t)(n + kept) > s->engine.context && !begin;
    if (longer && s->model->rope_context > 0) { /* windows would have other positions than -c for the whole text */
        free(all);
        return llm_engine_too_long(&s->engine, (int64_t)(n + kept), e) < 0 ? llm_in(e, "prompt") : 0;
    }
    if (longer) {
        llm_note("%zu tokens, more than the context of %" PRId64 ": scored in windows that overlap by half", n, s->engine.context);
    }
    if (s->model->rope_context > 0) llm_note("rotary positions are scaled for a context of %" PRId64 " tokens (-c)", s->model->rope_context);
    static const char *const columns[] = {"id", "text", "log_prob", NULL};
    struct run r = {.s = s, .ids = all, .form = llm_table_form_for(llm_table_form(&s->a->common), s->a->common.output)};
    llm_table_init(&r.table, columns);
    r.table.no_heading = r.form == LLM_TABLE_TSV;
    status = llm_score(&s->engine, begin, all, (int64_t)(n + kept), line, &r, e);
    if (status == 0) status = llm_table_write(&r.table, r.form, s->out, e);
    llm_table_release(&r.table);
    llm_buf_release(&r.shown);
    llm_buf_release(&r.json);
    free(all);
    return status;
}
