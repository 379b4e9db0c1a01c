#include "infer/score.h"

#include <inttypes.h>
#include <math.h>
#include "cpu/pool.h"
#include "cpu/profile.h"

struct window {
    const struct llm_scorer *scorer;
    const int32_t *ids;          /* of this window */
    int64_t n, first, skip;      /* number of tokens; index of the first in the text; how many of them are not scored */
    int64_t vocab;
    const struct llm_span *span;
    struct llm_scored scored[LLM_SPAN_MAX];
};

static void score_row(void *arg, size_t i, int thread)
{
    struct window *w = arg;
    const struct llm_engine *g = w->scorer->engine;
    const struct llm_span *span = w->span;
    const int64_t target = span->first + (int64_t)i + 1;
    (void)thread;
    if (target >= w->n || target < w->skip) return;
    struct llm_scored *s = &w->scored[i];
    *s = (struct llm_scored){.entropy = (double)NAN};
    if (span->logits) {
        s->log_prob = llm_log_prob(span->logits + (int64_t)i * w->vocab, w->vocab, w->ids[target], w->scorer->entropy ? &s->entropy : NULL);
    }
    if (g->predictor->log_prob) s->log_prob = g->predictor->log_prob(g->model, span->reading, span->row + (int64_t)i, w->ids[target]);
}

static int score_span(void *arg, const struct llm_span *s, struct llm_err *e)
{
    struct window *w = arg;
    w->span = s;
    LLM_PROFILE("log-probabilities", 4 * (double)(s->n * w->vocab));
    llm_parallel((size_t)s->n, score_row, w);
    for (int64_t i = 0; i < s->n; i++) {
        int64_t target = s->first + i + 1;
        if (target >= w->n || target < w->skip) continue;
        if (isnan(w->scored[i].log_prob)) {
            return llm_fail(e, LLM_EX_FAILURE, "logits are not finite: token %" PRId64 " has no probability", w->first + target);
        }
        if (w->scorer->visit(w->scorer->arg, w->first + target, &w->scored[i], e) < 0) return -1;
    }
    return 0;
}

int llm_score_window(const struct llm_scorer *s, const int32_t *ids, int64_t n, int64_t first, int64_t skip, struct llm_err *e)
{
    struct llm_engine *g = s->engine;
    struct window w = {.scorer = s, .ids = ids, .n = n, .first = first, .skip = skip, .vocab = g->model->config.vocab_size};
    const int64_t held = s->begin ? s->begin->n : 0, read = n > g->context ? g->context : n;
    struct llm_kv kv;
    llm_kv_init(&kv, &g->pool);
    kv.adapters = s->begin ? s->begin->adapters : NULL;
    int status = held > 0 ? llm_kv_fork(&kv, s->begin, e) : 0;
    if (status == 0 && read > 0) {
        status = llm_engine_prefill(g, &kv, ids, read, false, s->entropy || !g->predictor->log_prob, score_span, &w, e);
    }
    llm_kv_release(&kv);
    return status;
}

bool llm_score_next(int64_t context, int64_t n, struct llm_score_part *p)
{
    const int64_t stride = context / 2 > 0 ? context / 2 : 1, end = p->at + p->n;
    if (end >= n) return false;
    *p = (struct llm_score_part){.at = p->n > 0 ? p->at + stride : 0, .skip = p->n > 0 ? context - stride : 1};
    p->n = n - p->at < context ? n - p->at : context;
    return true;
}

int llm_score(const struct llm_scorer *s, const int32_t *ids, int64_t n, struct llm_err *e)
{
    const struct llm_engine *g = s->engine;
    if (llm_model_must_continue(g->model, e) < 0) return -1;
    const int64_t held = s->begin ? s->begin->n : 0;
    struct llm_score_part p = {0};
    int status = 0;
    if (held > 0 && held + n > g->context) return llm_engine_too_long(g, held + n, e);
    while (status == 0 && llm_score_next(g->context, n, &p)) status = llm_score_window(s, ids + p.at, p.n, p.at, p.skip, e);
    return status;
}
