/* Drafts for the generator: by the model's own layers, by a smaller model, of what the text repeats, of what a constraint forces. */
#include <math.h>
#include <string.h>
#include "base/buf.h"
#include "base/log.h"
#include "cpu/pool.h"
#include "infer/generate_internal.h"
#include "infer/repeat.h"

#define FIRST_DEPTH 4 /* tokens of the first draft of a repetition */
#define WARM 6 /* passes whose mean time is known before depths follow it */
#define FORGETTING .05 /* weight of the newest value in a moving average */
#define MAX_BRANCH 4 /* tokens of a branch of a repetition */
#define MAX_FORCED 12 /* tokens of a draft of what is forced: a pass of so many rows costs hardly more than one of a single row */

/* How many drafts a completion needs room for. */
static int64_t room_for_drafts(const struct state *s, const struct llm_completion *c)
{
    int64_t n = s->g->drafts > 0 ? s->g->drafts : 0;
    return s->g->forced && c->prompt.constraint && n < MAX_FORCED ? MAX_FORCED : n;
}

int llm_generate_begin_drafts(const struct state *s, const struct job *j, struct llm_completion *c)
{
    const struct llm_engine *g = s->g->engine;
    int64_t room = room_for_drafts(s, c);
    if (room > 0) {
        c->depth = c->forced_depth = FIRST_DEPTH;
        c->right = .75;
        if (s->g->drafter) llm_kv_init(&c->draft_kv, &s->g->drafter->pool);
        c->drafts = llm_alloc((size_t)(2 * room), sizeof *c->drafts, "drafts", s->e);
        if (c->drafts && (s->g->drafter || s->g->repeats)) llm_generate_begin_branches(c, c->drafts + room);
        if (!c->drafts || !s->g->maximal) return c->drafts ? 0 : -1;
        c->drafted_from = llm_calloc((size_t)s->g->drafts, sizeof *c->drafted_from, "drafts", s->e);
        return c->drafted_from ? 0 : -1;
    }
    if (j->draft.n == 0) return 0;
    int64_t width = g->model->config.hidden_size;
    struct llm_tensor rows = {.data = j->draft.rows, .rows = j->draft.n, .cols = width, .stride = width};
    c->drafts = llm_alloc((size_t)g->draft, sizeof *c->drafts, "drafts", s->e);
    return c->drafts ? llm_draft_note(&c->draft, &rows, 0, j->draft.first, j->draft.n, s->e) : -1;
}

static int32_t next_of_completion(void *arg, int64_t position)
{
    const struct llm_completion *c = arg;
    return position + 1 < c->kv.n ? c->kv.ids[position + 1] : c->ids[c->n - 1];
}

static int32_t next_of_prompt(void *arg, int64_t position)
{
    const struct job *j = arg;
    return position + 1 < j->kv.n ? j->kv.ids[position + 1] : j->prompt.ids[j->fed];
}

/* How many of n tokens may be drafted after the completion's last one: at least one fewer than may still be generated, because the pass itself
 * generates one. */
static int64_t at_most(const struct state *s, const struct llm_completion *c, int64_t n)
{
    if (s->g->engine->pool.state_floats > 0 && llm_generate_is_guided(&c->prompt)) return 0; /* the guide's state is not kept */
    int64_t room = s->g->engine->context - c->kv.n - 1, wanted = c->prompt.max_tokens - c->n - 1;
    if (c->prompt.max_tokens >= 0 && wanted < n) n = wanted;
    return room < n ? (room > 0 ? room : 0) : n;
}

static int64_t may_draft(const struct state *s, const struct llm_completion *c)
{
    return at_most(s, c, s->g->drafts > 0 ? s->g->drafts : s->g->engine->draft);
}

/* Drafts what the constraint forces, if it does. Where the model chooses other tokens for the same bytes again and again, there is a pause. */
static bool draft_forced(const struct state *s, struct llm_completion *c)
{
    c->n_drafts = c->n_branch = 0;
    if (!s->g->forced || !c->matcher.constraint || c->kv.kept || c->prompt.trace_queries > 0) return false;
    int64_t wanted = at_most(s, c, c->forced_depth < MAX_FORCED ? c->forced_depth : MAX_FORCED);
    if (wanted <= 0) return false;
    int64_t n = llm_matcher_guess(&c->matcher, c->drafts, wanted);
    if (n > 0 && c->forced_pause > 0) {
        c->forced_pause--;
        return false;
    }
    c->n_drafts = n;
    c->source = LLM_DRAFT_FORCED;
    return n > 0;
}

/* Drafts what the text repeats, as deep as that was right of late. Where it was wrong there is a pause, so that texts without repetitions cost
 * little. */
static void draft_repeats(const struct state *s, struct llm_completion *c)
{
    int64_t wanted = may_draft(s, c);
    c->n_drafts = 0;
    c->source = LLM_DRAFT_REPEATED;
    if (c->pause > 0) c->pause--;
    else if (wanted > 0) c->n_drafts = llm_repeat_draft(c->kv.ids, c->kv.n, c->ids[c->n - 1], -1, wanted < c->depth ? wanted : c->depth, c->drafts);
    if (c->n_drafts == 0 || !llm_generate_may_branch(s, c)) return;
    wanted = c->n_drafts < MAX_BRANCH ? c->n_drafts : MAX_BRANCH;
    c->n_branch = llm_repeat_draft(c->kv.ids, c->kv.n, c->ids[c->n - 1], c->drafts[0], wanted, c->branch);
}

void llm_generate_adapt_depth(const struct state *s, struct llm_completion *c, int64_t n, int64_t right)
{
    if (n == 0 || c->source == LLM_DRAFT_LAYER) return;
    if (c->source == LLM_DRAFT_MODEL) {
        for (int64_t i = 0; i < n && i <= right; i++) c->right += FORGETTING * ((i < right) - c->right);
        return;
    }
    if (c->source == LLM_DRAFT_FORCED) {
        c->forced_depth = right == n ? 2 * c->forced_depth : right > 1 ? right : 2;
        if (c->forced_depth > MAX_FORCED) c->forced_depth = MAX_FORCED;
        c->forced_wrong = right > 0 ? 0 : c->forced_wrong + 1;
        c->forced_pause = c->forced_wrong > 1 ? (int64_t)1 << (c->forced_wrong < 6 ? c->forced_wrong : 6) : 0;
        return;
    }
    c->depth = right == n ? 2 * c->depth : right > 1 ? right : 1;
    if (c->depth > s->g->drafts) c->depth = s->g->drafts;
    c->wrong = right > 0 ? 0 : c->wrong + 1;
    c->pause = c->wrong > 0 ? (int64_t)1 << (c->wrong < 6 ? c->wrong : 6) : 0;
}

void llm_generate_note_cost(struct llm_cost *c, double seconds)
{
    if (c->n > 0 && seconds > 2 * c->seconds) seconds = 2 * c->seconds; /* other work on the machine */
    c->seconds += (seconds - c->seconds) * (c->n < WARM ? 1. / (double)(c->n + 1) : FORGETTING);
    c->n++;
}

/* How many tokens, at most n, the drafting model should draft, so that most tokens come in a second: d drafts give 1 + p + ... + p^d tokens, if each
 * is right with probability p, and take d passes of the drafting model and one of the model. Where none is worth its time, one is drafted now and
 * then, to see whether that has changed. With `maximal` the tokens depend on what was drafted, so the depth does not depend on time. */
static int64_t worth_drafting(const struct state *s, struct llm_completion *c, int64_t n)
{
    enum { ANEW = 32 };
    const struct llm_cost *pass = &s->pass_cost, *draft = &s->draft_cost;
    if (n == 0 || s->g->maximal || pass->n < WARM || draft->n < WARM) return n;
    double tokens = 1 + fmax(0, llm_generate_branch_gain(s, c, 2)), power = 1, best = 1 / pass->seconds;
    int64_t depth = 0;
    for (int64_t d = 1; d <= n; d++) {
        tokens += power *= c->right;
        double rate = tokens / (pass->seconds + (double)d * draft->seconds);
        if (rate <= best) continue;
        best = rate;
        depth = d;
    }
    c->undrafted = depth > 0 ? 0 : c->undrafted + 1;
    return depth == 0 && c->undrafted % ANEW == 0 ? 1 : depth;
}

/* Brings the drafting model's cache to the completion's text but for at most MAX_CATCH_UP tokens. 0, 1 when a signal was caught, -1. */
static int catch_up(const struct state *s, struct llm_completion *c)
{
    enum { MAX_CATCH_UP = 8 };
    int64_t common = llm_prefix_common(c->draft_kv.ids, c->kv.ids, c->draft_kv.n < c->kv.n ? c->draft_kv.n : c->kv.n);
    if (c->draft_kv.n > 0) llm_kv_truncate(&c->draft_kv, common);
    if (c->kv.n - common <= MAX_CATCH_UP) return 0;
    return llm_engine_prefill(s->g->drafter, &c->draft_kv, c->kv.ids + common, c->kv.n - common, false, false, NULL, NULL, s->e);
}

/* The drafting model's second choice after c->drafts[0] becomes a branch. `logits` and sampler->state are those before the first choice. */
static void branch_of_model(const struct state *s, struct llm_completion *c, const struct llm_history *h, float *logits, struct llm_sampler *sampler)
{
    struct llm_err e = {0};
    logits[c->drafts[0]] = -INFINITY;
    int status = llm_sampler_choose(sampler, &c->prompt.sampling, h, logits, (size_t)llm_generate_vocab(s), (uint32_t)c->sample, (uint32_t)h->n,
                                    &c->branch[0], &e);
    c->n_branch = status == 0 && c->branch[0] != c->drafts[0]; /* there may be no other token */
}

/* One pass of the drafting model over completions whose drafts go on: token i of each. 0 or -1. */
static int draft_token(struct state *s, struct llm_completion **v, int64_t n, int64_t i)
{
    struct llm_engine *g = s->g->drafter;
    struct llm_reading r;
    int64_t at = 0, size = llm_generate_vocab(s);
    for (int64_t k = 0; k < n; k++) {
        struct llm_completion *c = v[k];
        int64_t old = i == 0 ? c->kv.n - c->draft_kv.n : 0; /* tokens that it has not read, then the last one */
        int32_t *ids = s->ids + at;
        if (old > 0) memcpy(ids, c->kv.ids + c->draft_kv.n, (size_t)old * sizeof *ids);
        ids[old] = i == 0 ? c->ids[c->n - 1] : c->drafts[i - 1];
        s->feeds[k] = (struct llm_feed){&c->draft_kv, ids, old + 1, false};
        at += old + 1;
        s->rows[k] = at - 1;
    }
    float *logits = llm_engine_advance(g, s->feeds, n, &r, s->e) < 0 ? NULL : llm_engine_predict(g, &r, s->rows, n, s->e);
    if (!logits) return -1;
    for (int64_t k = 0; k < n; k++) {
        struct llm_completion *c = v[k];
        struct llm_history h = {c->draft_kv.ids, c->draft_kv.n};
        float *x = logits + k * size;
        for (size_t end = 0; c->prompt.ignore_eos && end < s->n_ends; end++) x[s->ends[end]] = -INFINITY;
        struct llm_sampler *sampler = &s->samplers[0];
        sampler->limit = NULL;
        sampler->state = i == 0 ? c->sample_state : c->draft_state;
        const struct llm_sampling *p = &c->prompt.sampling;
        uint32_t sample = (uint32_t)c->sample, position = (uint32_t)h.n;
        float *other = i == 0 && llm_generate_may_branch(s, c) ? llm_scratch(0, (size_t)size * sizeof *other) : NULL;
        if (other) memcpy(other, x, (size_t)size * sizeof *other);
        int status = c->drafted_from && llm_accept_possible(p)
                         ? llm_accept_draft(sampler, p, &h, x, (size_t)size, sample, position, &c->drafted_from[i], &c->drafts[i], s->e)
                         : llm_sampler_choose(sampler, p, &h, x, (size_t)size, sample, position, &c->drafts[i], s->e);
        if (status < 0) return -1;
        c->draft_state = sampler->state;
        if (!other) continue;
        sampler->state = c->sample_state;
        branch_of_model(s, c, &h, other, sampler);
    }
    return 0;
}

/* Drafts with the smaller model, with the random numbers of the tokens to come, in passes over many completions. 0, 1 when a signal was caught,
 * -1. */
static int draft_by_model(struct state *s)
{
    int64_t n = 0, deepest = 0, rows = 0;
    for (struct job *j = s->first; j; j = j->next) {
        for (int64_t i = 0; i < j->begun; i++) {
            struct llm_completion *c = &j->completions[i];
            if (!c->running || c->paused || draft_forced(s, c)) continue;
            if (s->g->repeats) draft_repeats(s, c);
            if (c->n_drafts > 0) continue;
            c->source = LLM_DRAFT_MODEL;
            c->n_drafts = worth_drafting(s, c, may_draft(s, c));
            if (c->n_drafts == 0) continue;
            int status = catch_up(s, c);
            if (status != 0) return status;
            const int64_t reads = c->kv.n - c->draft_kv.n + 1;
            if (rows + reads > s->g->drafter->batch) { /* more would not fit a pass */
                c->n_drafts = 0;
                continue;
            }
            rows += reads;
            s->active[n++] = c;
            deepest = c->n_drafts > deepest ? c->n_drafts : deepest;
        }
    }
    for (int64_t i = 0; i < deepest; i++) {
        int64_t left = 0;
        for (int64_t k = 0; k < n; k++)
            if (s->active[k]->n_drafts > i) s->active[left++] = s->active[k];
        n = left;
        double began = llm_now();
        if (draft_token(s, s->active, n, i) < 0) return -1;
        llm_generate_note_cost(&s->draft_cost, llm_now() - began);
    }
    return 0;
}

/* Runs the drafting layer over the hidden states noted since its last run, and drafts tokens for the running completions. 0 or -1. */
int llm_generate_draft(struct state *s)
{
    int64_t n = 0;
    if (s->g->drafter) return draft_by_model(s);
    if (s->g->engine->draft == 0 && !s->g->repeats && !s->g->forced) return 0;
    for (struct job *j = s->first; j; j = j->next) {
        int64_t known = j->read ? j->draft.n - 1 : j->draft.n; /* the token after the prompt is not known: each completion chooses its own */
        if (known > 0) s->drafts[n++] = (struct llm_draft_feed){&j->draft, &j->kv, next_of_prompt, j, known, 0, NULL};
        for (int64_t i = 0; i < j->begun; i++) {
            struct llm_completion *c = &j->completions[i];
            if (!c->running || c->paused) continue;
            if (!draft_forced(s, c) && s->g->repeats) draft_repeats(s, c);
            if (c->draft.n == 0) continue;
            c->n_drafts = may_draft(s, c);
            c->source = LLM_DRAFT_LAYER;
            s->drafts[n++] = (struct llm_draft_feed){&c->draft, &c->kv, next_of_completion, c, c->draft.n, c->n_drafts, c->drafts};
        }
    }
    return n > 0 ? llm_engine_draft(s->g->engine, s->drafts, n, s->e) : 0;
}

/* ---- a pass ---- */

int llm_generate_keep_states(struct state *s)
{
    const size_t n = (size_t)s->g->engine->pool.state_floats;
    for (int64_t i = 0; i < s->n_active && n > 0; i++) {
        struct llm_completion *c = s->active[i];
        if (c->n_drafts == 0) continue;
        if (!c->state) c->state = llm_alloc(n, sizeof *c->state, "a sequence's state", s->e);
        if (!c->state) return -1;
        memcpy(c->state, c->kv.state, n * sizeof *c->state);
    }
    return 0;
}

void llm_generate_restore_state(struct llm_completion *c, int64_t n)
{
    llm_kv_truncate(&c->kv, c->kv.n - n);
    memcpy(c->kv.state, c->state, (size_t)c->kv.pool->state_floats * sizeof *c->state);
}

int llm_generate_keep_right(struct llm_completion *c, bool layer, const struct llm_tensor *hidden, int64_t row, int64_t fed, struct llm_err *e)
{
    int64_t before = c->kv.n - fed, right = c->n_drafts;
    llm_kv_truncate(&c->kv, before + 1 + right);
    if (c->guide_kv.pool) llm_kv_truncate(&c->guide_kv, c->guide_kv.n - fed + 1 + right);
    c->n_drafts = 0;
    if (!c->drafts || c->ended || !layer) return 0;
    return llm_draft_note(&c->draft, hidden, row, before, 1 + right, e);
}

int llm_generate_note_prompts(struct state *s, const struct llm_tensor *hidden)
{
    int64_t row = 0;
    for (int64_t i = 0; i < s->n_feeds; row += s->feeds[i++].n) {
        struct job *j = i < s->n_active ? NULL : s->prefilled[i - s->n_active];
        if (!j || s->g->engine->draft == 0 || j->prompt.trace_queries > 0 || j->kv.kept) continue; /* drafts count rows by positions */
        if (llm_draft_note(&j->draft, hidden, row, j->kv.n - s->feeds[i].n, s->feeds[i].n, s->e) < 0) return -1;
    }
    return 0;
}
