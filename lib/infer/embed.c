#include "infer/embed.h"

#include <stdlib.h>
#include "base/buf.h"

struct sum {
    double *v;
    int64_t width, n;
    enum llm_pool_kind pool;
};

static int take(void *arg, const struct llm_span *span, struct llm_err *e)
{
    struct sum *s = arg;
    (void)e;
    for (int64_t i = 0; i < span->n; i++) {
        for (int64_t k = 0; k < s->width; k++) s->v[k] = (s->pool == LLM_POOL_LAST ? 0 : s->v[k]) + (double)span->hidden[i * s->width + k];
    }
    s->n = s->pool == LLM_POOL_LAST ? 1 : s->n + span->n;
    return 0;
}

int llm_embed(struct llm_engine *g, struct llm_kv *kv, const int32_t *ids, int64_t n, enum llm_pool_kind pool, float *out, struct llm_err *e)
{
    struct sum s = {.width = g->model->config.hidden_size, .pool = pool};
    s.v = llm_calloc((size_t)s.width, sizeof *s.v, "an embedding", e);
    int status = s.v ? llm_engine_prefill(g, kv, ids, n, false, take, &s, e) : -1;
    for (int64_t k = 0; status == 0 && k < s.width; k++) out[k] = (float)(s.v[k] / (double)s.n);
    free(s.v);
    return status;
}
