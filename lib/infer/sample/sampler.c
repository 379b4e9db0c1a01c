#include "infer/sample/sampler.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include "base/buf.h"
#include "cpu/kernels.h"
#include "infer/engine.h"
#include "infer/sample/cut.h"
#include "infer/sample/draw.h"
#include "infer/sample/steps.h"

#define DEFAULT(type, member, field, standard, ...) .field = (standard),
const struct llm_sampling llm_sampling_defaults = {LLM_SAMPLE_TABLE(LLM_SAMPLE_NO_STEP, DEFAULT, DEFAULT, , )};

#define LISTED(name) &llm_sample_##name,
const struct llm_sample_step *const llm_sample_steps[] = {LLM_SAMPLE_TABLE(LISTED, LLM_SAMPLE_NO_OPTION, LLM_SAMPLE_NO_OPTION, , ) NULL};

static int check_range(const char *name, double v, double low, double high, struct llm_err *e)
{
    if (v >= low && v <= high) return 0;
    return llm_fail(e, LLM_EX_USAGE, "%s: expected %g to %g, found %g", name, low, high, v);
}

void llm_sampling_open(struct llm_sampling *p)
{
    p->temperature = p->top_p = p->typical = 1;
    p->top_k = 0;
    p->min_p = 0;
}

int llm_sampling_check(const struct llm_sampling *p, int64_t vocab_size, struct llm_err *e)
{
#define CHECK(type, member, field, standard, name, arg, help, least, greatest) \
    if (check_range(name, (double)p->field, least, greatest, e) < 0) return -1;
    LLM_SAMPLE_TABLE(LLM_SAMPLE_NO_STEP, CHECK, CHECK, , )
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

int llm_sampler_edit(struct llm_sampler *s, const struct llm_sampling *p, const struct llm_history *h, float *logits, size_t n,
                     struct llm_err *e)
{
    if (llm_grow((void **)&s->seen, &s->seen_room, (size_t)(h->n > 0 ? 3 * h->n : 1), sizeof *s->seen, e) < 0) return -1;
    for (const struct llm_sample_step *const *step = llm_sample_steps; *step; step++) {
        if ((*step)->edit && (*step)->active(p)) (*step)->edit(p, h, s->seen, logits, n);
    }
    return 0;
}

static int not_finite(struct llm_err *e)
{
    return llm_fail(e, LLM_EX_FAILURE, "logits are not finite: no token can be chosen");
}

/* Maxima of the blocks and of all logits. -1: a logit is NaN or +infinity, or none is finite. */
static int take_maxima(struct llm_sampler *s, const float *logits, size_t n, struct llm_logits *x, struct llm_err *e)
{
    size_t blocks = (n + LLM_MAX_BLOCK - 1) / LLM_MAX_BLOCK;
    if (llm_grow((void **)&s->block_max, &s->blocks_room, blocks, sizeof *s->block_max, e) < 0) return -1;
    llm_k.rows.block_max(s->block_max, logits, n);
    *x = (struct llm_logits){logits, s->block_max, n, -INFINITY};
    for (size_t b = 0; b < blocks; b++) x->max = s->block_max[b] > x->max ? s->block_max[b] : x->max;
    if (x->max == INFINITY || x->max == -INFINITY) return not_finite(e);
    return 0;
}

/* The lowest id among the largest. */
static int32_t argmax(const struct llm_logits *x)
{
    size_t i = 0;
    while (x->block_max[i] != x->max) i++;
    i *= LLM_MAX_BLOCK;
    while (x->v[i] != x->max) i++;
    return (int32_t)i;
}

/* Gathers every token whose logit is finite. */
static void gather_all(struct llm_candidates *c, const struct llm_logits *x)
{
    c->n = c->sorted = 0;
    for (size_t i = 0; i < x->n; i++) {
        if (x->v[i] != -INFINITY) c->v[c->n++] = (struct llm_candidate){x->v[i], (int32_t)i};
    }
}

/* The filter that turns the others off; NULL: none does. */
static const struct llm_sample_step *alone(const struct llm_sampling *p)
{
    for (const struct llm_sample_step *const *step = llm_sample_steps; *step; step++)
        if ((*step)->alone && (*step)->active(p)) return *step;
    return NULL;
}

static bool needs_all(const struct llm_sampling *p)
{
    for (const struct llm_sample_step *const *step = llm_sample_steps; *step; step++)
        if ((*step)->needs_all && (*step)->active(p)) return true;
    return false;
}

static int filter(struct llm_sampler *s, const struct llm_sampling *p, const struct llm_logits *x, uint32_t sample, uint32_t position,
                  struct llm_err *e)
{
    const struct llm_sample_step *only = alone(p);
    if (reserve(s, x->n, e) < 0) return -1;
    s->c.vocab = x->n;
    s->c.sample = sample;
    s->c.position = position;
    s->c.state = &s->state;
    enum llm_cut cut = s->plain || needs_all(p) ? LLM_CUT_NONE : llm_candidates_cut(&s->c, x, p);
    if (cut == LLM_CUT_NONE) gather_all(&s->c, x);
    for (const struct llm_sample_step *const *step = llm_sample_steps; *step; step++) {
        if (cut == LLM_CUT_TOP_P && *step == &llm_sample_top_p) continue;
        if (only && *step != only && *step != &llm_sample_temperature) continue;
        if ((*step)->filter && (*step)->active(p)) (*step)->filter(p, &s->c);
    }
    return 0;
}

/* The filters learn which token was drawn. */
static void remember(struct llm_sampler *s, const struct llm_sampling *p, int32_t id)
{
    const struct llm_sample_step *only = alone(p);
    for (const struct llm_sample_step *const *step = llm_sample_steps; *step; step++) {
        if (!(*step)->chosen || !(*step)->active(p) || (only && *step != only)) continue;
        for (size_t i = 0; i < s->c.n; i++) {
            if (s->c.v[i].id != id) continue;
            (*step)->chosen(p, &s->c, s->c.v[i]);
            break;
        }
    }
}

int llm_sampler_filter(struct llm_sampler *s, const struct llm_sampling *p, const struct llm_history *h, float *logits, size_t n,
                       struct llm_err *e)
{
    struct llm_logits x;
    if (llm_sampler_edit(s, p, h, logits, n, e) < 0 || take_maxima(s, logits, n, &x, e) < 0) return -1;
    return filter(s, p, &x, 0, 0, e);
}

/* Whether some filter other than a constant temperature may change the distribution or leave tokens of a vocabulary of n out. */
static bool filters(const struct llm_sampling *p, size_t n)
{
    for (const struct llm_sample_step *const *step = llm_sample_steps; *step; step++) {
        bool constant = *step == &llm_sample_temperature && p->dynatemp_range == 0;
        if (!(*step)->filter || constant || !(*step)->active(p)) continue;
        if (*step != &llm_sample_top_k || (uint64_t)p->top_k < n) return true;
    }
    return false;
}

bool llm_sampling_is_plain(const struct llm_sampling *p, int64_t vocab_size)
{
    for (const struct llm_sample_step *const *step = llm_sample_steps; *step; step++) {
        if ((*step)->edit && (*step)->active(p)) return false;
    }
    return p->temperature == 1 && !filters(p, (size_t)vocab_size);
}

/* Draws from the whole vocabulary, with the bits of what the temperature's step makes of all candidates. The most likely token enters first, so that
 * few of the others need a logarithm. */
static int32_t draw_of_all(const struct llm_sampling *p, const struct llm_logits *x, struct llm_draw d)
{
    const double max = x->max;
    const bool plain = p->temperature == 1;
    float tempered[LLM_MAX_BLOCK];
    llm_draw_enter(&d, argmax(x), plain ? max : 0);
    for (size_t first = 0; first < x->n; first += LLM_MAX_BLOCK) {
        size_t n = x->n - first < LLM_MAX_BLOCK ? x->n - first : LLM_MAX_BLOCK;
        const float *logits = x->v + first, *best = x->block_max + first / LLM_MAX_BLOCK;
        for (size_t i = 0; i < n && !plain; i++) tempered[i] = (float)((logits[i] - max) / p->temperature);
        llm_draw_enter_block(&d, (int32_t)first, plain ? logits : tempered, n, plain ? *best : (float)((*best - max) / p->temperature));
    }
    return d.id;
}

/* Whether the limit decides nothing: the most likely token is chosen, and may be. */
static bool may_choose_best(const struct llm_sampler *s, const struct llm_sampling *p, const struct llm_logits *x)
{
    return !s->limit || (p->temperature == 0 && s->limit->allows(s->limit->arg, argmax(x)));
}

int llm_sampler_choose(struct llm_sampler *s, const struct llm_sampling *p, const struct llm_history *h, float *logits, size_t n,
                       uint32_t sample, uint32_t position, int32_t *id, struct llm_err *e)
{
    struct llm_logits x;
    if (llm_sampler_edit(s, p, h, logits, n, e) < 0 || take_maxima(s, logits, n, &x, e) < 0) return -1;
    if (!may_choose_best(s, p, &x)
        && (s->limit->apply(s->limit->arg, logits, n, e) < 0 || take_maxima(s, logits, n, &x, e) < 0)) return -1;
    if (p->temperature == 0) {
        *id = argmax(&x);
        return 0;
    }
    struct llm_draw d = llm_draw_begin(p->seed, p->policy_step, p->prompt, sample, position);
    if (!s->plain && !filters(p, n)) {
        *id = draw_of_all(p, &x, d);
        return 0;
    }
    if (filter(s, p, &x, sample, position, e) < 0) return -1;
    for (size_t i = 0; i < s->c.n; i++) llm_draw_enter(&d, s->c.v[i].id, s->c.v[i].logit);
    *id = d.id;
    remember(s, p, d.id);
    return 0;
}

int llm_sampler_candidates(struct llm_sampler *s, const struct llm_sampling *p, const struct llm_history *h, float *logits, size_t n,
                           uint32_t sample, uint32_t position, struct llm_err *e)
{
    struct llm_logits x;
    if (llm_sampler_edit(s, p, h, logits, n, e) < 0 || take_maxima(s, logits, n, &x, e) < 0) return -1;
    if (s->limit && (s->limit->apply(s->limit->arg, logits, n, e) < 0 || take_maxima(s, logits, n, &x, e) < 0)) return -1;
    return filter(s, p, &x, sample, position, e);
}

float llm_sampler_log_prob(const struct llm_sampler *s, const struct llm_sampling *p, float *logits, size_t n, int32_t id)
{
    if (p->temperature == 0) return 0;
    if (!filters(p, n)) return llm_token_log_prob(logits, (float)(1 / p->temperature), (int64_t)n, id);
    double logit = -INFINITY;
    for (size_t i = 0; i < s->c.n; i++) logit = s->c.v[i].id == id ? s->c.v[i].logit : logit;
    return (float)(logit - llm_candidates_max(&s->c) - log(llm_candidates_mass(&s->c)));
}

void llm_sampler_release(struct llm_sampler *s)
{
    free(s->c.v);
    free(s->c.scratch);
    free(s->seen);
    free(s->block_max);
    *s = (struct llm_sampler){0};
}
