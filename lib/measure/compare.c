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

enum { COUNT, NATS_P, NATS_Q, RATIO, KL, SAME, DELTA, SQUARE, AGAINST, COLUMNS }; /* sums over a run */
enum { RESAMPLES = 2000 };

/* A model that reads each window before `g` does. */
struct reader {
    struct llm_engine *engine;     /* NULL: there is none */
    float *hidden;                 /* [context, hidden_size] final hidden states in the window */
};
struct comparing {
    struct reader base, against;   /* base: none if `logits` has its predictions */
    struct llm_engine *g;
    struct llm_logits *logits;
    const struct llm_quality_text *text;
    const int32_t *ids;            /* of the window at hand */
    const struct llm_window *window;
    int64_t first;
    const float *p, *q, *r;        /* [rows, vocab] logits of the base, `g` and `against` (or NULL) after tokens [from, from + rows) of the window */
    int64_t from;
    struct llm_kl_row rows[LLM_SPAN_MAX], against_rows[LLM_SPAN_MAX];
    double *kl;                    /* [n] of each scored token */
    size_t n, kl_room;
    double (*runs)[COLUMNS];
    size_t n_runs, runs_room;
    struct llm_progress progress;
};

static int keep_hidden(void *arg, const struct llm_span *s, struct llm_err *e)
{
    const struct reader *r = arg;
    const int64_t width = r->engine->model->config.hidden_size;
    (void)e;
    memcpy(r->hidden + s->first * width, s->hidden, (size_t)(s->n * width) * sizeof(float));
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
    if (!is_scored(c, target)) return;
    llm_kl_of_row(c->p + (int64_t)row * vocab, c->q + (int64_t)row * vocab, vocab, c->ids[target], &c->rows[row]);
    if (c->r) llm_kl_of_row(c->p + (int64_t)row * vocab, c->r + (int64_t)row * vocab, vocab, c->ids[target], &c->against_rows[row]);
}

/* Adds row i of the span. */
static int add(struct comparing *c, int64_t i, struct llm_err *e)
{
    const struct llm_kl_row *r = &c->rows[i];
    const double against = c->r ? c->against_rows[i].kl : 0;
    const double delta = exp(r->log_q) - exp(r->log_p);
    const double values[COLUMNS] = {1, -r->log_p, -r->log_q, r->log_p - r->log_q, r->kl, r->same_top, delta, delta * delta, against};
    if (!isfinite(r->kl + against)) {
        return llm_fail(e, LLM_EX_FAILURE, "token %" PRId64 ": the divergence is not finite", c->first + c->from + i + 1);
    }
    if (llm_grow((void **)&c->kl, &c->kl_room, c->n + 1, sizeof *c->kl, e) < 0) return -1;
    if (c->n % LLM_RUN == 0) {
        if (llm_grow((void **)&c->runs, &c->runs_room, c->n_runs + 1, sizeof *c->runs, e) < 0) return -1;
        memset(c->runs[c->n_runs++], 0, sizeof *c->runs);
    }
    for (int j = 0; j < COLUMNS; j++) c->runs[c->n_runs - 1][j] += values[j];
    c->kl[c->n++] = r->kl;
    return 0;
}

/* The logits of a model that has read the window, after its tokens [from, from + n): [n, vocab]. */
static const float *logits_of(const struct reader *r, int64_t from, int64_t n, struct llm_err *e)
{
    int64_t rows[LLM_SPAN_MAX];
    const int64_t width = r->engine->model->config.hidden_size;
    struct llm_tensor hidden = {.rows = n, .cols = width, .stride = width, .data = r->hidden + from * width};
    for (int64_t i = 0; i < n; i++) rows[i] = i;
    llm_ctx_reset(&r->engine->ctx);
    return llm_engine_logits(r->engine, &hidden, rows, n, e);
}

static int compare_span(void *arg, const struct llm_span *s, struct llm_err *e)
{
    struct comparing *c = arg;
    const struct llm_span_rows r = llm_quality_rows(c->window, s->first, s->n);
    if (r.n == 0) return 0;
    c->from = s->first + r.at;
    c->p = c->logits ? llm_logits_next(c->logits, c->ids + c->from, c->from, r.n, e) : logits_of(&c->base, c->from, r.n, e);
    c->q = s->logits + r.at * c->g->model->config.vocab_size;
    if (!c->p) return -1;
    if (c->against.engine && !(c->r = logits_of(&c->against, c->from, r.n, e))) return -1;
    llm_parallel((size_t)r.n, compare_row, c);
    llm_progress_set(&c->progress, c->first + s->first, NULL);
    for (int64_t i = 0; i < r.n; i++) {
        if (is_scored(c, c->from + i + 1) && add(c, i, e) < 0) return -1;
    }
    return 0;
}

static int run(struct llm_engine *g, const struct comparing *c, bool logits, llm_span_visit *visit, void *arg, struct llm_err *e)
{
    struct llm_kv kv;
    llm_kv_init(&kv, &g->pool);
    const int64_t read = c->window->n > g->context ? g->context : c->window->n;
    int status = llm_engine_prefill(g, &kv, c->ids, read, false, logits, visit, arg, e);
    llm_kv_release(&kv);
    return status;
}

static int compare_window(void *arg, const int32_t *ids, const struct llm_window *w, int64_t first, struct llm_err *e)
{
    struct comparing *c = arg;
    c->ids = ids;
    c->window = w;
    c->first = first;
    int status = c->base.engine ? run(c->base.engine, c, false, keep_hidden, &c->base, e) : 0;
    if (status == 0 && c->against.engine) status = run(c->against.engine, c, false, keep_hidden, &c->against, e);
    return status == 0 ? run(c->g, c, true, compare_span, c, e) : status;
}

/* The ratio of the sums of KL and AGAINST over the runs, and its interval. */
static int find_ratio(const struct comparing *c, struct llm_estimate *ratio, struct llm_err *e)
{
    double sums[2] = {0}, limits[2][2], (*pairs)[2] = llm_alloc(c->n_runs, sizeof *pairs, "runs", e);
    if (!pairs) return -1;
    for (size_t i = 0; i < c->n_runs; i++) {
        pairs[i][0] = c->runs[i][AGAINST];
        pairs[i][1] = c->runs[i][KL];
        for (int j = 0; j < 2; j++) sums[j] += pairs[i][j];
    }
    int status = llm_bootstrap_rows(pairs[0], c->n_runs, 2, RESAMPLES, 1, limits, e);
    *ratio = (struct llm_estimate){sums[1] / sums[0], limits[1][0], limits[1][1]};
    if (c->n_runs < 2) ratio->low = ratio->high = (double)NAN;
    free(pairs);
    return status;
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
    out->against_kl = of[AGAINST];
    return c->against.engine ? find_ratio(c, &out->kl_ratio, e) : 0;
}

static int check_network(const struct llm_engine *g, struct llm_err *e)
{
    if (llm_model_must_continue(g->model, e) < 0) return -1;
    return g->predictor->log_prob ? llm_fail(e, EX_UNAVAILABLE, "expected two networks to compare, found a table of n-grams") : 0;
}

/* Of a model that reads before `g`. */
static int start_reader(struct reader *r, const struct llm_engine *g, struct llm_err *e)
{
    if (!r->engine) return 0;
    const struct llm_config *config = &r->engine->model->config;
    if (check_network(r->engine, e) < 0) return -1;
    if (g->model->config.vocab_size != config->vocab_size) {
        return llm_fail(e, EX_DATAERR, "expected a vocabulary of the base's %" PRId64 " tokens, found %" PRId64, config->vocab_size,
                        g->model->config.vocab_size);
    }
    r->hidden = llm_alloc((size_t)g->context, (size_t)config->hidden_size * sizeof *r->hidden, "hidden states", e);
    return r->hidden ? 0 : -1;
}

int llm_compare(const struct llm_compare_base *base, struct llm_engine *g, const struct llm_quality_text *text, struct llm_comparison *out,
                struct llm_err *e)
{
    struct comparing c = {.base = {.engine = base->engine}, .against = {.engine = base->against}, .logits = base->logits, .g = g, .text = text};
    int status = check_network(g, e) < 0 || start_reader(&c.base, g, e) < 0 || start_reader(&c.against, g, e) < 0 ? -1 : 0;
    llm_progress_start(&c.progress, "compare", "tokens", text->n);
    if (status == 0) status = llm_quality_windows(text, g->context, compare_window, &c, e);
    llm_progress_end(&c.progress);
    if (status == 0 && c.n == 0) status = llm_fail(e, EX_DATAERR, "expected a text with tokens to score, found %" PRId64 " tokens", text->n);
    if (status == 0) status = summarize(&c, out, e);
    free(c.base.hidden);
    free(c.against.hidden);
    free(c.kl);
    free(c.runs);
    return status;
}
