/* Classifier-free guidance: a second sequence, the negative prompt and what was generated, says what is not wanted. */
#include <math.h>
#include <string.h>
#include "base/buf.h"
#include "infer/generate_internal.h"
#include "tensor/divergence.h"

bool llm_generate_is_guided(const struct llm_prompt *p)
{
    return p->cfg_scale != 0 && p->cfg_scale != 1;
}

/* The tokens that guide a prompt: the negative prompt's, else its own last one. */
static const int32_t *negative_of(const struct llm_prompt *p, int64_t *n)
{
    *n = p->n_negative > 0 ? p->n_negative : 1;
    return p->n_negative > 0 ? p->negative : p->ids + p->n - 1;
}

int llm_generate_begin_guide(struct state *s, struct llm_completion *c, float **logits)
{
    struct llm_engine *g = s->g->engine;
    struct llm_reading r;
    int64_t n, row = 0;
    *logits = NULL;
    if (!llm_generate_is_guided(&c->prompt)) return 0;
    const int32_t *ids = negative_of(&c->prompt, &n);
    llm_kv_init(&c->guide_kv, &g->pool);
    c->guide_kv.adapters = c->prompt.adapters;
    c->guide_kv.strengths = c->prompt.strengths;
    int status = n > 1 ? llm_engine_prefill(g, &c->guide_kv, ids, n - 1, false, false, NULL, NULL, s->e) : 0;
    if (status != 0) return status;
    struct llm_feed last = {&c->guide_kv, ids + n - 1, 1, false};
    if (llm_engine_advance(g, &last, 1, &r, s->e) < 0) return -1;
    *logits = llm_engine_predict(g, &r, &row, 1, s->e);
    return *logits ? 0 : -1;
}

int llm_generate_catch_up_guides(struct state *s)
{
    int status = 0;
    for (struct job *j = s->first; j; j = j->next) {
        for (int64_t i = 0; i < j->begun && status == 0; i++) {
            struct llm_completion *c = &j->completions[i];
            if (!c->running || c->paused || !llm_generate_is_guided(&c->prompt)) continue;
            int64_t n, at = c->guide_kv.n;
            const int32_t *ids = negative_of(&c->prompt, &n);
            c->guide_kv.adapters = c->prompt.adapters;
            c->guide_kv.strengths = c->prompt.strengths;
            if (at < n) status = llm_engine_prefill(s->g->engine, &c->guide_kv, ids + at, n - at, false, false, NULL, NULL, s->e);
            at = c->guide_kv.n - n;
            if (status == 0 && at < c->n - 1) {
                status = llm_engine_prefill(s->g->engine, &c->guide_kv, c->ids + at, c->n - 1 - at, false, false, NULL, NULL, s->e);
            }
        }
    }
    return status;
}

void llm_generate_guide(double scale, float *logits, const float *guide, int64_t n)
{
    const double all = llm_log_sum(logits, n, 1), other = llm_log_sum(guide, n, 1);
    for (int64_t i = 0; i < n; i++) {
        double p = logits[i] - all, q = guide[i] - other;
        if (logits[i] != -INFINITY && guide[i] != -INFINITY) logits[i] = (float)(scale * (p - q) + q);
    }
}
