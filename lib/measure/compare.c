#include "measure/compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/progress.h"
#include "cpu/pool.h"
#include "measure/stats.h"
#include "quant/kl.h"

enum { COUNT, NATS_P, NATS_Q, RATIO, KL, SAME, DELTA, SQUARE, COLUMNS }; /* sums over a run */
enum { RESAMPLES = 2000 };

struct comparing {
    struct llm_engine *base, *g;   /* base: NULL if `logits` has its predictions */
    struct llm_logits *logits;
    const struct llm_quality_text *text;
    const int32_t *ids;            /* of the window at hand */
    const struct llm_window *window;
    int64_t first;
    float *hidden;                 /* [context, hidden_size] the base's final hidden states in the window */
    const float *p, *q;            /* [rows, vocab] logits after tokens [from, from + rows) of the window */
    int64_t from;
    struct llm_kl_row rows[LLM_SPAN_MAX];
    double *kl;                    /* [n] of each scored token */
    size_t n, kl_room;
    double (*runs)[COLUMNS];
    size_t n_runs, runs_room;
    struct llm_progress progress;
};

static int keep_hidden(void *arg, const struct llm_span *s, struct llm_err *e)
{
    struct comparing *c = arg;
    const int64_t width = c->base->model->config.hidden_size;
    (void)e;
    memcpy(c->hidden + s->first * width, s->hidden, (size_t)(s->n * width) * sizeof(float));
    return 0;
}

static bool is_scored(const struct comparing *c, int64_t target)
{
    return !(c->text->mask && !c->text->mask[c->first + target]);
}

static void compare_row(void *arg, size_t row, int thread)
{
    struct comparing *c = arg;
    const int64_t target = c->from + (int64_t)row + 1, vocab = c->g->model->config.vocab_size;
    (void)thread;
    if (is_scored(c, target)) llm_kl_of_row(c->p + (int64_t)row * vocab, c->q + (int64_t)row * vocab, vocab, c->ids[target], &c->rows[row]);
}

static int add(struct comparing *c, const struct llm_kl_row *r, int64_t token, struct llm_err *e)
{
    const double delta = exp(r->log_q) - exp(r->log_p);
    const double values[COLUMNS] = {1, -r->log_p, -r->log_q, r->log_p - r->log_q, r->kl, r->same_top, delta, delta * delta};
    if (!isfinite(r->kl)) return llm_fail(e, LLM_EX_FAILURE, "token %" PRId64 ": the divergence is not finite", token);
    if (llm_grow((void **)&c->kl, &c->kl_room, c->n + 1, sizeof *c->kl, e) < 0) return -1;
    if (c->n % LLM_RUN == 0) {
        if (llm_grow((void **)&c->runs, &c->runs_room, c->n_runs + 1, sizeof *c->runs, e) < 0) return -1;
        memset(c->runs[c->n_runs++], 0, sizeof *c->runs);
    }
    for (int j = 0; j < COLUMNS; j++) c->runs[c->n_runs - 1][j] += values[j];
    c->kl[c->n++] = r->kl;
    return 0;
}

/* The base's logits after tokens [from, from + n) of the window, [n, vocab]. */
static const float *base_logits(struct comparing *c, int64_t from, int64_t n, struct llm_err *e)
{
    int64_t rows[LLM_SPAN_MAX];
    if (c->logits) return llm_logits_next(c->logits, c->ids + from, from, n, e);
    const int64_t width = c->base->model->config.hidden_size;
    struct llm_tensor hidden = {.rows = n, .cols = width, .stride = width, .data = c->hidden + from * width};
    for (int64_t i = 0; i < n; i++) rows[i] = i;
    llm_ctx_reset(&c->base->ctx);
    return llm_engine_logits(c->base, &hidden, rows, n, e);
}

static int compare_span(void *arg, const struct llm_span *s, struct llm_err *e)
{
    struct comparing *c = arg;
    const struct llm_span_rows r = llm_quality_rows(c->window, s->first, s->n);
    if (r.n == 0) return 0;
    c->from = s->first + r.at;
    c->p = base_logits(c, c->from, r.n, e);
    c->q = s->logits + r.at * c->g->model->config.vocab_size;
    if (!c->p) return -1;
    llm_parallel((size_t)r.n, compare_row, c);
    llm_progress_set(&c->progress, c->first + s->first, NULL);
    for (int64_t i = 0; i < r.n; i++) {
        if (is_scored(c, c->from + i + 1) && add(c, &c->rows[i], c->first + c->from + i + 1, e) < 0) return -1;
    }
    return 0;
}

static int run(struct llm_engine *g, const struct comparing *c, bool logits, llm_span_visit *visit, struct llm_err *e)
{
    struct llm_kv kv;
    llm_kv_init(&kv, &g->pool);
    const int64_t read = c->window->n > g->context ? g->context : c->window->n;
    int status = llm_engine_prefill(g, &kv, c->ids, read, false, logits, visit, (void *)(uintptr_t)c, e);
    llm_kv_release(&kv);
    return status;
}

static int compare_window(void *arg, const int32_t *ids, const struct llm_window *w, int64_t first, struct llm_err *e)
{
    struct comparing *c = arg;
    c->ids = ids;
    c->window = w;
    c->first = first;
    int status = c->base ? run(c->base, c, false, keep_hidden, e) : 0;
    return status == 0 ? run(c->g, c, true, compare_span, e) : status;
}

static int summarize(struct comparing *c, struct llm_comparison *out, struct llm_err *e)
{
    double sums[COLUMNS] = {0}, limits[COLUMNS][2];
    struct llm_estimate of[COLUMNS];
    for (size_t i = 0; i < c->n_runs; i++) {
        for (int j = 0; j < COLUMNS; j++) sums[j] += c->runs[i][j];
    }
    if (llm_bootstrap_rows(c->runs[0], c->n_runs, COLUMNS, RESAMPLES, 1, limits, e) < 0) return -1;
    for (int j = 0; j < COLUMNS; j++) {
        of[j] = (struct llm_estimate){sums[j] / sums[COUNT], limits[j][0], limits[j][1]};
        if (c->n_runs < 2) of[j].low = of[j].high = (double)NAN;
    }
    const double median = llm_median(c->kl, c->n); /* sorts */
    *out = (struct llm_comparison){.tokens = (int64_t)c->n, .runs = c->n_runs, .log_ratio = of[RATIO], .kl = of[KL], .same_top = of[SAME],
                                   .delta_p = of[DELTA], .kl_median = median, .kl_max = c->kl[c->n - 1],
                                   .kl_p99 = c->kl[(size_t)ceil(.99 * (double)(c->n - 1))]};
    out->base_perplexity = (struct llm_estimate){exp(of[NATS_P].value), exp(of[NATS_P].low), exp(of[NATS_P].high)};
    out->perplexity = (struct llm_estimate){exp(of[NATS_Q].value), exp(of[NATS_Q].low), exp(of[NATS_Q].high)};
    out->delta_p_rms = (struct llm_estimate){sqrt(of[SQUARE].value), sqrt(of[SQUARE].low), sqrt(of[SQUARE].high)};
    return 0;
}

static int check_models(const struct llm_compare_base *base, const struct llm_engine *g, struct llm_err *e)
{
    const struct llm_engine *b = base->engine;
    if (llm_model_must_continue(g->model, e) < 0 || (b && llm_model_must_continue(b->model, e) < 0)) return -1;
    if (g->predictor->log_prob || (b && b->predictor->log_prob)) {
        return llm_fail(e, EX_UNAVAILABLE, "expected two networks to compare, found a table of n-grams");
    }
    if (!b || g->model->config.vocab_size == b->model->config.vocab_size) return 0;
    return llm_fail(e, EX_DATAERR, "expected a vocabulary of the base's %" PRId64 " tokens, found %" PRId64, b->model->config.vocab_size,
                    g->model->config.vocab_size);
}

int llm_compare(const struct llm_compare_base *base, struct llm_engine *g, const struct llm_quality_text *text, struct llm_comparison *out,
                struct llm_err *e)
{
    struct comparing c = {.base = base->engine, .logits = base->logits, .g = g, .text = text};
    int status = check_models(base, g, e);
    if (status == 0 && c.base) {
        c.hidden = llm_alloc((size_t)g->context, (size_t)c.base->model->config.hidden_size * sizeof *c.hidden, "hidden states", e);
        if (!c.hidden) status = -1;
    }
    llm_progress_start(&c.progress, "compare", "tokens", text->n);
    if (status == 0) status = llm_quality_windows(text, g->context, compare_window, &c, e);
    llm_progress_end(&c.progress);
    if (status == 0 && c.n == 0) status = llm_fail(e, EX_DATAERR, "expected a text with tokens to score, found %" PRId64 " tokens", text->n);
    if (status == 0) status = summarize(&c, out, e);
    free(c.hidden);
    free(c.kl);
    free(c.runs);
    return status;
}
