#include "infer/sample/accept.h"

#include <math.h>
#include <stdlib.h>
#include "base/buf.h"
#include "infer/sample/draw.h"

void llm_drafted_release(struct llm_drafted *q)
{
    free(q->v);
    *q = (struct llm_drafted){0};
}

bool llm_accept_possible(const struct llm_sampling *p)
{
    return p->temperature > 0 && p->mirostat == 0 && p->adaptive_target == 0;
}

static int ascending(const void *a, const void *b)
{
    const struct llm_accept_entry *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* The probability of a token; 0: it was filtered out. */
static double probability(const struct llm_drafted *q, int32_t id)
{
    const struct llm_accept_entry key = {id, 0}, *found = q->n > 0 ? bsearch(&key, q->v, q->n, sizeof *q->v, ascending) : NULL;
    return found ? found->p : 0;
}

/* The sum that candidates' exp(logit - max) are divided by. */
static double mass_of(const struct llm_candidates *c, double *max)
{
    *max = llm_candidates_max(c);
    return llm_candidates_mass(c);
}

int llm_accept_draft(struct llm_sampler *s, const struct llm_sampling *p, const struct llm_history *h, float *logits, size_t n, uint32_t sample,
                     uint32_t position, struct llm_drafted *q, int32_t *id, struct llm_err *e)
{
    double max;
    if (llm_sampler_candidates(s, p, h, logits, n, sample, position, e) < 0) return -1;
    if (llm_grow((void **)&q->v, &q->room, s->c.n, sizeof *q->v, e) < 0) return -1;
    struct llm_draw d = llm_draw_begin(p->seed, p->policy_step, p->prompt, sample, position);
    double mass = mass_of(&s->c, &max);
    q->n = s->c.n;
    for (size_t i = 0; i < s->c.n; i++) {
        llm_draw_enter(&d, s->c.v[i].id, s->c.v[i].logit);
        q->v[i] = (struct llm_accept_entry){s->c.v[i].id, exp(s->c.v[i].logit - max) / mass};
    }
    qsort(q->v, q->n, sizeof *q->v, ascending);
    *id = d.id;
    return 0;
}

int llm_accept_choose(struct llm_sampler *s, const struct llm_sampling *p, const struct llm_history *h, float *logits, size_t n, uint32_t sample,
                      uint32_t position, const struct llm_drafted *q, int32_t draft, int32_t *id, struct llm_err *e)
{
    double max, target = 0;
    if (llm_sampler_candidates(s, p, h, logits, n, sample, position, e) < 0) return -1;
    const double mass = mass_of(&s->c, &max);
    struct llm_rng coin = llm_rng_of_item(p->seed, p->policy_step, p->prompt, LLM_RNG_ACCEPT, sample, position);
    for (size_t i = 0; i < s->c.n; i++)
        if (s->c.v[i].id == draft) target = exp(s->c.v[i].logit - max) / mass;
    *id = draft;
    if (llm_rng_uniform64(&coin, 0) * probability(q, draft) < target) return 0;
    struct llm_draw d = {.rng = llm_rng_of_item(p->seed, p->policy_step, p->prompt, LLM_RNG_RESIDUAL, sample, position), .best = -INFINITY, .id = -1};
    for (size_t i = 0; i < s->c.n; i++) {
        double left = exp(s->c.v[i].logit - max) / mass - probability(q, s->c.v[i].id);
        if (left > 0) llm_draw_enter(&d, s->c.v[i].id, log(left));
    }
    if (d.id >= 0) *id = d.id; /* else p = q but for rounding: the draft stands */
    else if (target == 0) *id = s->c.v[0].id;
    return 0;
}
