#include "measure/logits.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/progress.h"

/* ---- writing ---- */

struct writing {
    struct llm_engine *g;
    const struct llm_quality_text *text;
    struct llm_writer *w;
    const int32_t *ids;            /* of the window at hand */
    const struct llm_window *window;
    int64_t first;
    struct llm_progress progress;
};

static int write_span(void *arg, const struct llm_span *s, struct llm_err *e)
{
    const struct writing *r = arg;
    const int64_t vocab = r->g->model->config.vocab_size;
    struct llm_span_rows rows = llm_quality_rows(r->window, s->first, s->n);
    int32_t positions[LLM_SPAN_MAX];
    if (rows.n == 0) return 0;
    for (int64_t i = 0; i < rows.n; i++) positions[i] = (int32_t)(s->first + rows.at + i);
    const struct llm_tensor_out t[] = {{"logits", LLM_F32, 2, {rows.n, vocab}, s->logits + rows.at * vocab},
                                       {"ids", LLM_I32, 1, {rows.n}, r->ids + s->first + rows.at},
                                       {"positions", LLM_I32, 1, {rows.n}, positions}};
    return llm_writer_message(r->w, "logits", NULL, t, 3, e);
}

static int write_window(void *arg, const int32_t *ids, const struct llm_window *w, int64_t first, struct llm_err *e)
{
    struct writing *r = arg;
    struct llm_kv kv;
    r->ids = ids;
    r->window = w;
    llm_kv_init(&kv, &r->g->pool);
    int status = llm_engine_prefill(r->g, &kv, ids, w->n > r->g->context ? r->g->context : w->n, false, true, write_span, r, e);
    llm_kv_release(&kv);
    llm_progress_set(&r->progress, first + w->n, NULL);
    return status;
}

int llm_logits_write(struct llm_engine *g, const struct llm_quality_text *text, struct llm_writer *w, struct llm_err *e)
{
    struct writing r = {.g = g, .text = text, .w = w};
    if (llm_model_must_continue(g->model, e) < 0) return -1;
    if (g->predictor->log_prob) return llm_fail(e, EX_UNAVAILABLE, "expected a network, which has logits, found a table of n-grams");
    llm_progress_start(&r.progress, "logits", "tokens", text->n);
    int status = llm_quality_windows(text, g->context, write_window, &r, e);
    llm_progress_end(&r.progress);
    return status;
}

/* ---- reading ---- */

struct llm_logits {
    struct llm_stream *stream;
    int64_t vocab;
    float *x;                      /* [rows, vocab] of the message at hand, of which the first `used` were taken */
    int32_t *ids, *positions;      /* [rows] */
    int64_t rows, used;
    int32_t last;                  /* position of the row taken last; -1: none */
    float *span;                   /* [LLM_SPAN_MAX, vocab] rows that came in several messages */
};

void llm_logits_destroy(struct llm_logits *r)
{
    if (!r) return;
    llm_stream_destroy(r->stream);
    free(r->x);
    free(r->ids);
    free(r->positions);
    free(r->span);
    free(r);
}

struct llm_logits *llm_logits_open(const char *path, int64_t vocab, struct llm_err *e)
{
    struct llm_logits *r = llm_calloc(1, sizeof *r, "logits", e);
    if (!r) return NULL;
    r->vocab = vocab;
    r->last = -1;
    r->span = llm_alloc((size_t)vocab, LLM_SPAN_MAX * sizeof *r->span, "logits", e);
    r->stream = r->span ? llm_stream_create(path, e) : NULL;
    if (r->stream) return r;
    llm_logits_destroy(r);
    return NULL;
}

static int read_message(struct llm_logits *r, const struct llm_header *h, struct llm_err *e)
{
    const struct llm_entry *logits = llm_header_find(h, "logits");
    if (!h->kind || strcmp(h->kind, "logits") != 0) return llm_fail(e, EX_DATAERR, "expected logits, found %s", h->kind ? h->kind : "tensors");
    if (!logits || logits->dtype != LLM_F32 || logits->n_dims != 2) return llm_fail(e, EX_DATAERR, "expected a tensor 'logits', F32 [rows, vocab]");
    if (logits->shape[1] != r->vocab) {
        return llm_fail(e, EX_DATAERR, "tensor 'logits': expected a vocabulary of %" PRId64 " tokens, found %" PRId64, r->vocab, logits->shape[1]);
    }
    r->rows = logits->shape[0];
    r->used = 0;
    int found = 0;
    for (size_t i = 0; i < h->n_entries; i++) {
        const struct llm_entry *t = &h->entries[i];
        const bool ids = strcmp(t->name, "ids") == 0, positions = strcmp(t->name, "positions") == 0;
        void **to = t == logits ? (void **)&r->x : ids ? (void **)&r->ids : (void **)&r->positions;
        if ((ids || positions) && (t->dtype != LLM_I32 || t->n_dims != 1 || t->shape[0] != r->rows)) {
            return llm_fail(e, EX_DATAERR, "tensor '%s': expected I32 [rows]", t->name);
        }
        found += ids + positions;
        const bool wanted = ids || positions || t == logits;
        if ((wanted ? llm_stream_append(r->stream, to, 0, t->bytes, "logits", e) : llm_stream_skip(r->stream, t->bytes, e)) < 0) return -1;
    }
    return found == 2 ? 0 : llm_fail(e, EX_DATAERR, "expected tensors 'ids' and 'positions'");
}

/* 1: there is a row to take; 0: the stream has ended; -1. */
static int fill(struct llm_logits *r, struct llm_err *e)
{
    const struct llm_header *h;
    int got = 1;
    while (r->used == r->rows && (got = llm_stream_next(r->stream, &h, e)) > 0) {
        if (read_message(r, h, e) < 0) return llm_in(e, "%s", llm_stream_name(r->stream));
    }
    return got;
}

static bool is_after_last(const struct llm_logits *r)
{
    return r->last >= 0 && r->positions[r->used] == r->last + 1;
}

/* Takes up to n rows of the message at hand that stand for ids[0..n) at `first` and after. Their number, or -1. */
static int64_t take(struct llm_logits *r, const int32_t *ids, int64_t first, int64_t n, struct llm_err *e)
{
    int got = fill(r, e);
    if (got > 0 && r->positions[r->used] != first && is_after_last(r)) {
        r->used++;
        got = fill(r, e);
    }
    if (got < 0) return -1;
    if (got == 0) {
        return llm_fail(e, EX_DATAERR, "%s: expected logits after token %" PRId32 " at position %" PRId64 ", found the end",
                        llm_stream_name(r->stream), ids[0], first);
    }
    const int64_t left = r->rows - r->used;
    if (n > left) n = left;
    for (int64_t i = 0; i < n; i++) {
        const int32_t id = r->ids[r->used + i], at = r->positions[r->used + i];
        if (id == ids[i] && at == first + i) continue;
        return llm_fail(e, EX_DATAERR, "%s: expected logits after token %" PRId32 " at position %" PRId64 ", found token %" PRId32 " at position %"
                        PRId32 ": another text, or read with another --context, --convention or --tokenizer", llm_stream_name(r->stream), ids[i],
                        first + i, id, at);
    }
    r->used += n;
    r->last = (int32_t)(first + n - 1);
    return n;
}

const float *llm_logits_next(struct llm_logits *r, const int32_t *ids, int64_t first, int64_t n, struct llm_err *e)
{
    int64_t got = take(r, ids, first, n, e);
    if (got < 0) return NULL;
    if (got == n) return r->x + (r->used - n) * r->vocab;
    for (int64_t have = 0;;) {
        memcpy(r->span + have * r->vocab, r->x + (r->used - got) * r->vocab, (size_t)(got * r->vocab) * sizeof *r->span);
        have += got;
        if (have == n) return r->span;
        got = take(r, ids + have, first + have, n - have, e);
        if (got < 0) return NULL;
    }
}

int llm_logits_end(struct llm_logits *r, struct llm_err *e)
{
    int got = fill(r, e);
    if (got > 0 && is_after_last(r)) {
        r->used++;
        got = fill(r, e);
    }
    if (got <= 0) return got;
    return llm_fail(e, EX_DATAERR, "%s: expected the end, found more logits: of a longer text", llm_stream_name(r->stream));
}
