#include "infer/sample/sampler.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include "base/buf.h"
#include "base/rng.h"
#include "infer/sample/steps.h"

const struct llm_sampling llm_sampling_defaults = {
    .temperature = .8, .top_k = 40, .top_p = .95, .min_p = .05, .typical = 1, .repeat_penalty = 1, .repeat_last_n = 64};

const struct llm_sample_step *const llm_sample_steps[] = {
    &llm_sample_logit_bias, &llm_sample_penalties, &llm_sample_top_k, &llm_sample_typical,
    &llm_sample_top_p,      &llm_sample_min_p,     &llm_sample_temperature, NULL};

static int check_range(const char *name, double v, double low, double high, struct llm_err *e)
{
    if (v >= low && v <= high) return 0;
    return llm_fail(e, LLM_EX_USAGE, "%s: expected %g to %g, found %g", name, low, high, v);
}

int llm_sampling_check(const struct llm_sampling *p, int64_t vocab_size, struct llm_err *e)
{
    if (check_range("temperature", p->temperature, 0, 1e6, e) < 0 || check_range("top-k", (double)p->top_k, 0, 1e12, e) < 0
        || check_range("top-p", p->top_p, 0, 1, e) < 0 || check_range("min-p", p->min_p, 0, 1, e) < 0
        || check_range("typical", p->typical, 0, 1, e) < 0 || check_range("repeat-last-n", (double)p->repeat_last_n, -1, 1e12, e) < 0
        || check_range("presence-penalty", p->presence_penalty, -1e6, 1e6, e) < 0
        || check_range("frequency-penalty", p->frequency_penalty, -1e6, 1e6, e) < 0) return -1;
    if (!(p->repeat_penalty > 0 && p->repeat_penalty <= 1e6)) {
        return llm_fail(e, LLM_EX_USAGE, "repeat-penalty: expected a positive number, found %g", p->repeat_penalty);
    }
    for (size_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].id < 0 || p->bias[i].id >= vocab_size) {
            return llm_fail(e, LLM_EX_USAGE, "logit-bias: expected a token id below %" PRId64 " (the vocabulary), found %" PRId32, vocab_size,
                            p->bias[i].id);
        }
    }
    return 0;
}

static int reserve(struct llm_sampler *s, size_t n, struct llm_err *e)
{
    if (n > s->room) {
        free(s->c.v);
        free(s->c.scratch);
        s->room = 0;
        s->c.v = llm_alloc(n, sizeof *s->c.v, "candidates", e);
        s->c.scratch = llm_alloc(n, sizeof *s->c.scratch, "candidates", e);
        if (!s->c.v || !s->c.scratch) return -1;
        s->room = n;
    }
    return 0;
}

static int edit(struct llm_sampler *s, const struct llm_sampling *p, const struct llm_history *h, float *logits, size_t n,
                struct llm_err *e)
{
    if (llm_grow((void **)&s->seen, &s->seen_room, (size_t)(h->n > 0 ? h->n : 1), sizeof *s->seen, e) < 0) return -1;
    for (const struct llm_sample_step *const *step = llm_sample_steps; *step; step++) {
        if ((*step)->edit && (*step)->active(p)) (*step)->edit(p, h, s->seen, logits, n);
    }
    return 0;
}

/* The lowest id among the largest; -1 where a logit is NaN or +infinity or none is finite. */
static int64_t argmax(const float *logits, size_t n)
{
    int64_t best = -1;
    float max = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        if (!(logits[i] <= FLT_MAX)) return -1;
        if (logits[i] > max) {
            max = logits[i];
            best = (int64_t)i;
        }
    }
    return best;
}

static int not_finite(struct llm_err *e)
{
    return llm_fail(e, LLM_EX_FAILURE, "logits are not finite: no token can be chosen");
}

int llm_sampler_filter(struct llm_sampler *s, const struct llm_sampling *p, const struct llm_history *h, float *logits, size_t n,
                       struct llm_err *e)
{
    if (edit(s, p, h, logits, n, e) < 0 || reserve(s, n, e) < 0) return -1;
    if (argmax(logits, n) < 0) return not_finite(e);
    s->c.n = s->c.sorted = 0;
    for (size_t i = 0; i < n; i++) {
        if (logits[i] != -INFINITY) s->c.v[s->c.n++] = (struct llm_candidate){logits[i], (int32_t)i};
    }
    for (const struct llm_sample_step *const *step = llm_sample_steps; *step; step++) {
        if ((*step)->filter && (*step)->active(p)) (*step)->filter(p, &s->c);
    }
    return 0;
}

static int by_id(const void *a, const void *b)
{
    const struct llm_candidate *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

int llm_sampler_choose(struct llm_sampler *s, const struct llm_sampling *p, const struct llm_history *h, float *logits, size_t n,
                       uint32_t sample, uint32_t position, int32_t *id, struct llm_err *e)
{
    if (p->temperature == 0) {
        if (edit(s, p, h, logits, n, e) < 0) return -1;
        int64_t best = argmax(logits, n);
        if (best < 0) return not_finite(e);
        *id = (int32_t)best;
        return 0;
    }
    if (llm_sampler_filter(s, p, h, logits, n, e) < 0) return -1;
    struct llm_candidates *c = &s->c;
    bool ascending = true;
    for (size_t i = 1; i < c->n && ascending; i++) ascending = c->v[i - 1].id < c->v[i].id;
    if (!ascending) qsort(c->v, c->n, sizeof *c->v, by_id);
    double max = llm_candidates_max(c), sum = 0;
    for (size_t i = 0; i < c->n; i++) sum += c->scratch[i] = exp(c->v[i].logit - max);
    struct llm_rng r = llm_rng_at(p->seed, 0, LLM_RNG_SAMPLE, 0, sample, position);
    double left = llm_rng_uniform64(&r, 0) * sum;
    size_t i = 0;
    while (i + 1 < c->n && left >= c->scratch[i]) left -= c->scratch[i++];
    while (c->scratch[i] == 0) i--; /* rounding may carry the walk past the last that has any probability; the largest has 1 */
    *id = c->v[i].id;
    return 0;
}

void llm_sampler_release(struct llm_sampler *s)
{
    free(s->c.v);
    free(s->c.scratch);
    free(s->seen);
    *s = (struct llm_sampler){0};
}
