#include "quant/kl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/progress.h"
#include "base/student.h"
#include "cpu/pool.h"

int64_t llm_kl_windows(const struct llm_kl_base *b) { return (b->n + b->context - 1) / b->context; }

static int64_t window_tokens(const struct llm_kl_base *b, int64_t window)
{
    const int64_t left = b->n - window * b->context;
    return left < b->context ? left : b->context;
}

/* Runs one window through a model. */
static int run_window(struct llm_engine *g, const struct llm_kl_base *b, int64_t window, bool logits, llm_span_visit *visit, void *arg,
                      struct llm_err *e)
{
    struct llm_kv kv;
    llm_kv_init(&kv, &g->pool);
    int status = llm_engine_prefill(g, &kv, b->ids + window * b->context, window_tokens(b, window), g->model->config.prefix_lm, logits, visit, arg,
                                    e);
    llm_kv_release(&kv);
    return status;
}

static int start(struct llm_engine *g, struct llm_model *m, int64_t context, const char *types, struct llm_err *e)
{
    const struct llm_engine_options o = {.compute = LLM_COMPUTE_F32, .cache = types, .context = context, .batch = context};
    return llm_engine_init(g, m, &o, e);
}

/* ---- the base ---- */

struct keeping { struct llm_kl_base *b; int64_t first; };

static int keep_hidden(void *arg, const struct llm_span *s, struct llm_err *e)
{
    struct keeping *k = arg;
    const int64_t width = k->b->engine.model->config.hidden_size;
    if (!s->hidden) return llm_fail(e, EX_UNAVAILABLE, "expected a model with hidden states, found an n-gram model");
    memcpy(k->b->hidden + (k->first + s->first) * width, s->hidden, (size_t)(s->n * width) * sizeof(float));
    return 0;
}

int llm_kl_base_init(struct llm_kl_base *b, struct llm_model *base, const int32_t *ids, int64_t n, int64_t context, struct llm_err *e)
{
    const int64_t longest = llm_config_default_context(&base->config);
    if (llm_model_must_continue(base, e) < 0) return -1;
    if (n < 2) return llm_fail(e, EX_DATAERR, "expected a text of at least 2 tokens, found %lld", (long long)n);
    b->context = context > 0 ? context : longest < 512 ? longest : 512;
    b->n = n;
    b->ids = llm_alloc((size_t)n, sizeof *b->ids, "tokens", e);
    if (!b->ids) return -1;
    memcpy(b->ids, ids, (size_t)n * sizeof *ids);
    b->hidden = llm_alloc((size_t)n, (size_t)base->config.hidden_size * sizeof *b->hidden, "hidden states", e);
    int status = b->hidden ? start(&b->engine, base, b->context, NULL, e) : -1;
    for (int64_t w = 0; status == 0 && w < llm_kl_windows(b); w++) {
        status = run_window(&b->engine, b, w, false, keep_hidden, &(struct keeping){b, w * b->context}, e);
    }
    return status;
}

void llm_kl_base_release(struct llm_kl_base *b)
{
    llm_engine_release(&b->engine);
    free(b->ids);
    free(b->hidden);
    memset(b, 0, sizeof *b);
}

/* ---- comparison ---- */

struct comparison {
    struct llm_kl_base *b;
    const float *p, *q;            /* [rows, vocab] logits of the span at hand */
    int64_t vocab, first, same;
    struct llm_kl_row rows[LLM_SPAN_MAX];
    double sum;
};

void llm_kl_of_row(const float *p, const float *q, int64_t n, int32_t target, struct llm_kl_row *out)
{
    int64_t top_p = 0, top_q = 0;
    double sum_p = 0, sum_q = 0, difference = 0;
    for (int64_t i = 1; i < n; i++) {
        top_p = p[i] > p[top_p] ? i : top_p;
        top_q = q[i] > q[top_q] ? i : top_q;
    }
    for (int64_t i = 0; i < n; i++) {
        const double weight = (double)expf(p[i] - p[top_p]);
        sum_p += weight;
        sum_q += (double)expf(q[i] - q[top_q]);
        difference += weight * ((double)(p[i] - p[top_p]) - (double)(q[i] - q[top_q]));
    }
    *out = (struct llm_kl_row){.kl = difference / sum_p - log(sum_p) + log(sum_q), .log_p = (double)p[target] - (double)p[top_p] - log(sum_p),
                               .log_q = (double)q[target] - (double)q[top_q] - log(sum_q), .same_top = top_p == top_q};
}

static void compare_row(void *arg, size_t row, int thread)
{
    struct comparison *c = arg;
    (void)thread;
    llm_kl_of_row(c->p + (int64_t)row * c->vocab, c->q + (int64_t)row * c->vocab, c->vocab, 0, &c->rows[row]);
}

static int compare(void *arg, const struct llm_span *s, struct llm_err *e)
{
    struct comparison *c = arg;
    struct llm_engine *base = &c->b->engine;
    const int64_t width = base->model->config.hidden_size;
    int64_t rows[LLM_SPAN_MAX];
    struct llm_tensor hidden = {.rows = s->n, .cols = width, .stride = width, .data = c->b->hidden + (c->first + s->first) * width};
    for (int64_t i = 0; i < s->n; i++) rows[i] = i;
    llm_ctx_reset(&base->ctx);
    c->p = llm_engine_logits(base, &hidden, rows, s->n, e);
    c->q = s->logits;
    if (!c->p) return -1;
    llm_parallel((size_t)s->n, compare_row, c);
    for (int64_t i = 0; i < s->n; i++) {
        if (!isfinite(c->rows[i].kl)) {
            return llm_fail(e, LLM_EX_FAILURE, "token %lld: the divergence is not finite", (long long)(c->first + s->first + i));
        }
        c->sum += c->rows[i].kl;
        c->same += c->rows[i].same_top;
    }
    return 0;
}

struct llm_kl_mean llm_kl_mean_of(const double *v, int64_t n)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += v[i];
    const double mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (v[i] - mean) * (v[i] - mean);
    return (struct llm_kl_mean){mean, n > 1 ? llm_student975((size_t)n - 1) * sqrt(squares / (double)(n - 1) / (double)n) : (double)NAN};
}

struct llm_kl_interval llm_kl_interval(double half)
{
    struct llm_kl_interval shown = {.text = ""};
    if (!isnan(half)) snprintf(shown.text, sizeof shown.text, " ± %.6f", half);
    return shown;
}

int llm_kl_measure(struct llm_kl_base *b, struct llm_model *m, struct llm_kl *out, double *windows, struct llm_err *e)
{
    return llm_kl_measure_cache(b, m, NULL, out, windows, e);
}

int llm_kl_measure_cache(struct llm_kl_base *b, struct llm_model *m, const char *types, struct llm_kl *out, double *windows, struct llm_err *e)
{
    struct llm_engine engine = {0};
    struct comparison c = {.b = b, .vocab = b->engine.model->config.vocab_size};
    const int64_t n = llm_kl_windows(b);
    double *means = llm_calloc((size_t)n, sizeof *means, "divergences", e), sum = 0;
    if (means && m->config.vocab_size != c.vocab) {
        free(means);
        return llm_fail(e, EX_DATAERR, "expected a vocabulary of %lld tokens, found %lld", (long long)c.vocab, (long long)m->config.vocab_size);
    }
    int status = means ? start(&engine, m, b->context, types, e) : -1;
    for (int64_t w = 0; status == 0 && w < n; w++) {
        c.first = w * b->context;
        c.sum = 0;
        status = run_window(&engine, b, w, true, compare, &c, e);
        means[w] = c.sum / (double)window_tokens(b, w);
        sum += c.sum;
    }
    llm_engine_release(&engine);
    if (status == 0) *out = (struct llm_kl){sum / (double)b->n, llm_kl_mean_of(means, n).half, (double)c.same / (double)b->n, b->n};
    if (status == 0 && windows) memcpy(windows, means, (size_t)n * sizeof *means);
    free(means);
    return status;
}
