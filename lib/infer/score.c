#include "infer/score.h"

#include <inttypes.h>
#include "cpu/pool.h"
#include "cpu/profile.h"

struct window {
    const int32_t *ids;          /* of this window */
    int64_t n, first, skip;      /* number of tokens; index of the first in the text; how many of them an earlier window has scored */
    int64_t vocab;
    const struct llm_model *model;
    const struct llm_predictor *predictor;
    llm_score_visit *visit;
    void *arg;
    const struct llm_span *span;
    double log_prob[LLM_SPAN_MAX];
};

static void score_row(void *arg, size_t i, int thread)
{
    struct window *w = arg;
    int64_t target = w->span->first + (int64_t)i + 1;
    (void)thread;
    if (target >= w->n || target < w->skip) return;
    if (!w->span->logits) w->log_prob[i] = w->predictor->log_prob(w->model, w->span->reading, w->span->row + (int64_t)i, w->ids[target]);
    else w->log_prob[i] = llm_log_prob(w->span->logits + (int64_t)i * w->vocab, w->vocab, w->ids[target]);
}

static int score_span(void *arg, const struct llm_span *s, struct llm_err *e)
{
    struct window *w = arg;
    w->span = s;
    LLM_PROFILE("log-probabilities", 4 * (double)(s->n * w->vocab));
    llm_parallel((size_t)s->n, score_row, w);
    for (int64_t i = 0; i < s->n; i++) {
        int64_t target = s->first + i + 1;
        if (target < w->n && target >= w->skip && w->visit(w->arg, w->first + target, w->log_prob[i], e) < 0) return -1;
    }
    return 0;
}

int llm_score(struct llm_engine *g, const struct llm_kv *begin, const int32_t *ids, int64_t n, llm_score_visit *visit, void *arg, struct llm_err *e)
{
    if (llm_model_must_continue(g->model, e) < 0) return -1;
    int64_t held = begin ? begin->n : 0, stride = g->context / 2 > 0 ? g->context / 2 : 1;
    if (held > 0 && held + n > g->context) return llm_engine_too_long(g, held + n, e);
    for (int64_t at = 0;; at += stride) {
        struct window w = {.ids = ids + at, .n = n - at < g->context ? n - at : g->context, .first = at, .visit = visit, .arg = arg};
        w.skip = at == 0 ? 1 : g->context - stride;
        w.vocab = g->model->config.vocab_size;
        w.model = g->model;
        w.predictor = g->predictor;
        struct llm_kv kv;
        llm_kv_init(&kv, &g->pool);
        kv.adapters = begin ? begin->adapters : NULL;
        int status = held > 0 ? llm_kv_fork(&kv, begin, e) : 0;
        if (status == 0 && w.n > 0) status = llm_engine_prefill(g, &kv, w.ids, w.n, false, !g->predictor->log_prob, score_span, &w, e);
        llm_kv_release(&kv);
        if (status != 0 || at + w.n >= n) return status;
    }
}
