/* --score: a line a token. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/log.h"
#include "bin/infer/infer.h"
#include "infer/score.h"
#include "token/unicode.h"

struct run {
    struct session *s;
    const int32_t *ids;
    struct llm_buf line;
};

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
    r->line.n = 0;
    if (llm_buf_printf(&r->line, e, "%" PRId32 "\t", r->ids[i]) < 0 || (text && escape(&r->line, text, n, e) < 0)
        || llm_buf_printf(&r->line, e, "\t%.6f\n", log_prob) < 0) return -1;
    return llm_output_write(r->s->out, r->line.p, r->line.n, e);
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
    struct run r = {s, all, {0}};
    status = llm_score(&s->engine, begin, all, (int64_t)(n + kept), line, &r, e);
    llm_buf_release(&r.line);
    free(all);
    return status;
}
