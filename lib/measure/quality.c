#include "measure/quality.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/progress.h"
#include "measure/stats.h"

int llm_quality_windows(const struct llm_quality_text *t, int64_t context, llm_quality_window *window, void *arg, struct llm_err *e)
{
    int32_t *piece = llm_alloc((size_t)context, sizeof *piece, "tokens", e);
    int64_t first = 0;
    int status = piece ? 0 : -1;
    for (size_t d = 0; d <= t->n_ends && status == 0; d++) {
        const int64_t end = d < t->n_ends && t->ends[d] < (uint64_t)t->n ? (int64_t)t->ends[d] : t->n;
        struct llm_window w = {0};
        while (end - first > 1 && status == 0 && llm_window_next(t->convention, context, t->stride, end - first, &w)) {
            const int32_t *ids = t->ids + first + w.at;
            if (t->convention == LLM_BY_LLAMA_CPP && t->begin >= 0) {
                memcpy(piece, ids, (size_t)w.n * sizeof *ids);
                piece[0] = t->begin;
                ids = piece;
            }
            status = window(arg, ids, &w, first + w.at, e);
        }
        first = end;
    }
    free(piece);
    return status;
}

struct llm_span_rows llm_quality_rows(const struct llm_window *w, int64_t first, int64_t n)
{
    const int64_t from = w->skip - 1 > first ? w->skip - 1 - first : 0, to = w->n - 1 - first < n ? w->n - 1 - first : n;
    return (struct llm_span_rows){from, to > from ? to - from : 0};
}

struct counting {
    struct llm_scorer scoring;
    const struct llm_tokenizer *tokenizer;
    const struct llm_quality_text *text;
    struct llm_running nats;
    double bytes, entropy;
    double window_nats;          /* of the window at hand */
    int64_t window_tokens;
    double weighted_nats, weight; /* of the windows */
    struct llm_progress progress;
};

static int count(void *arg, int64_t i, const struct llm_scored *s, struct llm_err *e)
{
    struct counting *c = arg;
    size_t n = 0;
    llm_progress_set(&c->progress, i, NULL);
    if (c->text->mask && !c->text->mask[i]) return 0;
    if (!isfinite(s->log_prob)) return llm_fail(e, LLM_EX_FAILURE, "token %" PRId64 ": its log-probability is not finite", i);
    llm_running_add(&c->nats, -s->log_prob);
    c->window_nats -= s->log_prob;
    c->window_tokens++;
    c->entropy += s->entropy;
    int32_t id = c->text->ids[i];
    if (c->tokenizer && !llm_tokenizer_is_special(c->tokenizer, id) && llm_tokenizer_piece(c->tokenizer, id, &n)) c->bytes += (double)n;
    return 0;
}

static int count_window(void *arg, const int32_t *ids, const struct llm_window *w, int64_t first, struct llm_err *e)
{
    struct counting *c = arg;
    c->window_nats = 0;
    c->window_tokens = 0;
    int status = llm_score_window(&c->scoring, ids, w->n, first, w->skip, e);
    if (status == 0 && c->window_tokens > 0) {
        c->weighted_nats += c->window_nats / (double)c->window_tokens * (double)w->weight;
        c->weight += (double)w->weight;
    }
    return status;
}

int llm_quality_of(struct llm_engine *g, const struct llm_quality_text *text, struct llm_quality *q, struct llm_err *e)
{
    struct counting c = {.tokenizer = g->model->tokenizer, .text = text};
    c.scoring = (struct llm_scorer){.engine = g, .entropy = text->entropy && !g->predictor->log_prob, .visit = count, .arg = &c};
    if (llm_model_must_continue(g->model, e) < 0) return -1;
    llm_progress_start(&c.progress, "quality", "tokens", text->n);
    int status = llm_quality_windows(text, g->context, count_window, &c, e);
    llm_progress_end(&c.progress);
    if (status != 0) return status;
    if (c.nats.n == 0 && text->convention == LLM_BY_LLAMA_CPP) {
        return llm_fail(e, EX_DATAERR, "expected a text of at least the context's %" PRId64 " tokens, found %" PRId64, g->context, text->n);
    }
    if (c.nats.n == 0) {
        return llm_fail(e, EX_DATAERR, "expected a document of at least 2 tokens, found %" PRId64 " in %zu", text->n, text->n_ends + !text->n_ends);
    }
    double per_byte = c.tokenizer && c.bytes > 0 ? (double)c.nats.n / c.bytes / log(2) : (double)NAN;
    *q = (struct llm_quality){.tokens = (int64_t)c.nats.n, .nats = llm_running_mean(&c.nats), .nats_error = llm_running_error(&c.nats),
                              .bytes = c.tokenizer ? c.bytes : (double)NAN, .entropy = c.entropy / (double)c.nats.n};
    if (text->convention == LLM_BY_HF_STRIDE && c.weight > 0) q->nats = c.weighted_nats / c.weight;
    q->perplexity = exp(q->nats);
    q->bits_per_byte = q->nats * per_byte;
    q->bits_per_byte_error = q->nats_error * per_byte;
    return 0;
}
