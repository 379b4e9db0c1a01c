#include "infer/generate_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/log.h"
#include "base/signals.h"
#include "cpu/pool.h"
#include "cpu/profile.h"
#include "infer/most.h"

#define LOOK_AHEAD 4 /* with shared beginnings, up to LOOK_AHEAD · parallel completions wait beside those under way */
#define FIRST_CHUNK 64 /* tokens of prompts that a pass may have before the time of one is known, for llm_generate.latency */
#define HELD 16 /* up to HELD · parallel ended completions wait for an earlier one, as results are delivered in order */

const char *const llm_finish_names[] = {"stop", "length", "context", "stuck"};

static bool is_end(const struct state *s, const struct llm_prompt *p, int32_t id)
{
    for (size_t i = 0; i < p->n_ends; i++)
        if (p->ends[i] == id) return true;
    for (size_t i = 0; i < s->n_ends; i++)
        if (s->ends[i] == id) return true;
    return false;
}

/* ---- jobs ---- */

/* `drafts`: llm_generate.drafts. */
static void completion_release(struct llm_completion *c, int64_t drafts)
{
    if (c->kv.pool) llm_kv_release(&c->kv);
    llm_text_release(&c->text);
    llm_draft_release(&c->draft);
    for (int64_t i = 0; c->drafted_from && i < drafts; i++) llm_drafted_release(&c->drafted_from[i]);
    free(c->drafted_from);
    free(c->drafts);
    free(c->state);
    if (c->draft_kv.pool) llm_kv_release(&c->draft_kv);
    if (c->branch_kv.pool) llm_kv_release(&c->branch_kv);
    if (c->guide_kv.pool) llm_kv_release(&c->guide_kv);
    free(c->again);
    free(c->ids);
    free(c->log_probs);
    free(c->drawn_log_probs);
    free(c->top);
    c->drafts = c->ids = c->again = c->branch = NULL;
    c->log_probs = c->drawn_log_probs = c->state = NULL;
    c->top = NULL;
    c->drafted_from = NULL;
}

static void job_destroy(struct job *j, int64_t drafts)
{
    for (int64_t i = 0; j->completions && i < j->prompt.samples; i++) completion_release(&j->completions[i], drafts);
    free(j->completions);
    llm_kv_release(&j->kv);
    llm_draft_release(&j->draft);
    free(j->logits);
    free(j);
}

static int job_begin(struct state *s, const struct llm_prompt *p)
{
    struct llm_engine *g = s->g->engine;
    struct job *j = llm_calloc(1, sizeof *j, "a prompt", s->e);
    if (!j) return -1;
    j->prompt = *p;
    j->started = llm_now();
    llm_kv_init(&j->kv, &g->pool);
    *s->last = j;
    s->last = &j->next;
    s->waiting += p->samples;
    j->completions = llm_calloc((size_t)p->samples, sizeof *j->completions, "completions", s->e);
    if (!j->completions) return -1;
    if (g->model->config.num_encoder_layers > 0) { /* the encoder reads the prompt; the decoder begins with `start` */
        j->start = llm_config_answer_start(&g->model->config);
        j->source = p->ids;
        j->n_source = p->n;
        j->prompt.ids = &j->start;
        j->prompt.n = 1;
    } else if (p->n == 0) { /* the cache to begin with is the whole prompt: its last token is run again, because its logits are needed */
        j->prompt.ids = p->begin->ids + p->begin->n - 1;
        j->prompt.n = 1;
    }
    return 0;
}

static int admit(struct state *s)
{
    int64_t room = s->g->parallel + (s->g->share ? LOOK_AHEAD * s->g->parallel : 0);
    while (!s->no_more && s->running + s->waiting < room && s->held < HELD * s->g->parallel) {
        struct llm_prompt p = {0};
        if (s->first && s->g->ready && !s->g->ready(s->g->arg)) break;
        int got = s->g->next(s->g->arg, &p, &s->source_error);
        if (got == LLM_NEXT_LATER) break;
        if (got == LLM_NEXT_AGAIN) continue;
        if (got <= 0) s->no_more = true;
        else if (job_begin(s, &p) < 0) return -1;
    }
    return 0;
}

/* ---- completions ---- */

static bool constraint_allows(void *arg, int32_t id)
{
    return llm_matcher_allows(arg, id);
}

static int constraint_apply(void *arg, float *logits, size_t n, struct llm_err *e)
{
    return llm_matcher_apply(arg, logits, n, e);
}

static void begin_constraint(const struct state *s, struct llm_completion *c)
{
    const struct llm_prompt *p = &c->prompt;
    if (!p->constraint) return;
    if (!p->trigger.text) llm_matcher_begin(&c->matcher, p->constraint);
    c->matcher.ends[0] = (struct llm_end_ids){s->ends, s->n_ends};
    c->matcher.ends[1] = (struct llm_end_ids){p->ends, p->n_ends};
    c->matcher.ignore_ends = p->ignore_eos;
    c->limit = (struct llm_limit){constraint_allows, constraint_apply, &c->matcher};
}

/* The text's end may have the trigger of the constraint, which then holds; `from`: bytes before the last token. Where what follows the trigger within
 * that token is not allowed, the text stays free. 0 or -1. */
static int look_for_trigger(struct llm_completion *c, int32_t id, size_t from)
{
    const struct llm_prompt *p = &c->prompt;
    const struct llm_trigger *x = &p->trigger;
    const struct llm_buf *text = &c->text.bytes;
    const char *end = NULL;
    if (!p->constraint || !x->text || c->matcher.constraint || c->untriggered) return 0;
    size_t n = strlen(x->text), at = x->first || from < n ? 0 : from - n;
    while (x->first && at < text->n && strchr(" \t\r\n", text->p[at]) && text->p[at]) at++;
    if (x->first) {
        size_t have = text->n - at < n ? text->n - at : n;
        if (have > 0) c->untriggered = memcmp(text->p + at, x->text, have) != 0;
        if (c->untriggered || have < n) return 0;
        end = text->p + at;
    } else if (id == x->id) {
        end = text->p ? text->p + text->n : NULL;
    } else if (text->n > at && (end = memmem(text->p + at, text->n - at, x->text, n)) != NULL) {
        end += n;
    }
    if (!end && id != x->id) return 0;
    llm_matcher_begin(&c->matcher, p->constraint);
    int status = end ? llm_matcher_take_text(&c->matcher, end, (size_t)(text->p + text->n - end), &c->err) : 0;
    c->untriggered = status > 0;
    if (c->untriggered) c->matcher.constraint = NULL;
    return status < 0 ? -1 : 0;
}

/* Whether the constraint leaves nothing to choose, which ends the completion. Rollouts choose the end token, as its log-probability is wanted. */
static bool constraint_ends(const struct llm_completion *c)
{
    const struct llm_prompt *p = &c->prompt;
    return c->matcher.constraint && (!p->rollout || p->ignore_eos) && llm_matcher_must_end(&c->matcher);
}

/* Notes the log-probabilities of the token at place `at` and of the most likely ones. 0 or -1. */
static int note_log_probs(struct llm_completion *c, const float *logits, int64_t n, size_t at, int32_t id)
{
    size_t k = (size_t)c->prompt.top < (size_t)n ? (size_t)c->prompt.top : (size_t)n;
    int32_t ids[LLM_MAX_TOP_LOG_PROBS];
    if (llm_grow((void **)&c->log_probs, &c->log_probs_room, at + 1, sizeof *c->log_probs, &c->err) < 0
        || llm_grow((void **)&c->top, &c->top_room, (at + 1) * (size_t)c->prompt.top, sizeof *c->top, &c->err) < 0) return -1;
    const double log_prob = llm_log_prob(logits, n, id, NULL), shift = log_prob - (double)logits[id]; /* the same for all tokens */
    c->log_probs[at] = (float)log_prob;
    llm_most_likely(logits, n, (int64_t)k, ids);
    for (size_t i = 0; i < k; i++) c->top[at * (size_t)c->prompt.top + i] = (struct llm_top_choice){ids[i], (float)(logits[ids[i]] + shift)};
    return 0;
}

/* Chooses the token and, if they are asked for, notes its log-probabilities. `logits` are changed; `guide`: the
 * guide's, NULL: it is not guided. */
static int choose_id(struct state *s, struct llm_completion *c, float *logits, const float *guide, int64_t n_before, int thread, int32_t *id)
{
    const struct llm_prompt *p = &c->prompt;
    struct llm_history h = {c->kv.ids, n_before};
    size_t n = (size_t)llm_generate_vocab(s), at = (size_t)c->n;
    bool keeps = p->rollout || p->log_probs;
    float *plain = keeps ? llm_scratch(thread, n * sizeof *plain) : NULL;
    if (keeps && !plain) return llm_no_memory(&c->err, "logits");
    if (plain) memcpy(plain, logits, n * sizeof *plain);
    if (guide) llm_generate_guide(p->cfg_scale, logits, guide, (int64_t)n);
    for (size_t i = 0; p->ignore_eos && i < s->n_ends; i++) logits[s->ends[i]] = -INFINITY;
    struct llm_sampler *sampler = &s->samplers[thread];
    sampler->limit = c->matcher.constraint ? &c->limit : NULL;
    sampler->state = c->sample_state;
    uint32_t sample = (uint32_t)c->sample, position = (uint32_t)n_before;
    int64_t draft = n_before - (c->kv.n - c->n_drafts); /* the index of the draft of this token */
    bool maximal = c->drafted_from && c->source == LLM_DRAFT_MODEL && draft >= 0 && draft < c->n_drafts && llm_accept_possible(&p->sampling);
    int status = maximal ? llm_accept_choose(sampler, &p->sampling, &h, logits, n, sample, position, &c->drafted_from[draft], c->drafts[draft], id,
                                             &c->err)
                         : llm_sampler_choose(sampler, &p->sampling, &h, logits, n, sample, position, id, &c->err);
    if (status < 0) return -1;
    c->sample_state = sampler->state;
    if (p->log_probs && note_log_probs(c, plain, (int64_t)n, at, *id) < 0) return -1;
    if (!p->rollout) return 0;
    if (llm_grow((void **)&c->log_probs, &c->log_probs_room, at + 1, sizeof *c->log_probs, &c->err) < 0
        || llm_grow((void **)&c->drawn_log_probs, &c->drawn_room, at + 1, sizeof *c->drawn_log_probs, &c->err) < 0) return -1;
    c->log_probs[at] = llm_token_log_prob(plain, 1, (int64_t)n, *id);
    c->drawn_log_probs[at] = llm_sampler_log_prob(sampler, &p->sampling, logits, n, *id);
    return 0;
}

/* Chooses the token after the first n_before of the cache from `logits` (changed), and decides whether the completion ends. Runs on any thread. */
static void choose(struct state *s, struct llm_completion *c, float *logits, const float *guide, int64_t n_before, int thread)
{
    const struct llm_prompt *p = &c->prompt;
    int32_t id;
    if (choose_id(s, c, logits, guide, n_before, thread, &id) < 0) {
        if (!c->matcher.stuck) return;
        c->err = (struct llm_err){0};
        c->ended = true;
        c->finish = LLM_FINISH_STUCK;
        return;
    }
    double now = llm_now();
    if (c->n > 0 && now - c->last > c->slowest_seconds) c->slowest_seconds = now - c->last;
    c->last = now;
    c->ended = true;
    c->finish = LLM_FINISH_STOP;
    bool ends = is_end(s, p, id) && !p->ignore_eos;
    if (ends && !p->rollout) return;
    if (llm_grow((void **)&c->ids, &c->ids_room, (size_t)c->n + 1, sizeof *c->ids, &c->err) < 0) return;
    c->ids[c->n++] = id;
    if (ends) return;
    if (c->matcher.constraint && llm_matcher_take(&c->matcher, id, &c->err) < 0) return;
    size_t before = c->text.bytes.n;
    if (llm_text_put_token(&c->text, s->g->engine->model, id, &c->err) < 0) return;
    if (look_for_trigger(c, id, before) < 0) return;
    if (c->text.stopped || constraint_ends(c)) return;
    c->finish = LLM_FINISH_LENGTH;
    if (p->max_tokens >= 0 && c->n >= p->max_tokens) return;
    c->finish = LLM_FINISH_CONTEXT;
    if (n_before + 1 >= s->g->engine->context) return;
    c->ended = false;
}

/* Takes a completion that has ended out of the running ones. -1: it has failed, and s->e says how. */
static int finish_ended(struct state *s, struct llm_completion *c)
{
    const bool alone = s->g->fail_alone && (c->err.status == LLM_EX_FAILURE || c->matcher.failed);
    if (c->err.status && !alone) {
        if (s->e) *s->e = c->err;
        return -1;
    }
    if (c->err.status) c->ended = true;
    if (!c->ended) return 0;
    c->running = false;
    c->decode_seconds = llm_now() - c->started;
    if (!c->prompt.keep_cache) llm_kv_release(&c->kv);
    s->running--;
    s->held++;
    return 0;
}

/* Chooses a completion's first token from the prompt's logits, and the guide's if it has one. Choosing changes logits, so all completions but the
 * last work on a copy. 0 or -1. */
static int choose_first(struct state *s, struct job *j, struct llm_completion *c, const float *guide)
{
    if (j->begun == j->prompt.samples) {
        choose(s, c, j->logits, guide, c->kv.n, 0);
        free(j->logits);
        j->logits = NULL;
        return 0;
    }
    if (!s->spare) s->spare = llm_alloc((size_t)llm_generate_vocab(s), sizeof *s->spare, "logits", s->e);
    if (!s->spare) return -1;
    memcpy(s->spare, j->logits, (size_t)llm_generate_vocab(s) * sizeof *s->spare);
    choose(s, c, s->spare, guide, c->kv.n, 0);
    return 0;
}

/* 0, 1 when a signal was caught, -1. */
static int begin_completion(struct state *s, struct job *j)
{
    struct llm_completion *c = &j->completions[j->begun];
    c->prompt = j->prompt;
    c->sample = j->begun++;
    c->prompt_seconds = j->seconds;
    c->prompt_tokens = j->source ? j->n_source : j->kv.n;
    c->started = llm_now();
    c->text.stops = j->prompt.stops;
    c->text.n_stops = j->prompt.n_stops;
    begin_constraint(s, c);
    c->running = true;
    s->waiting--;
    s->starting--;
    s->running++;
    c->shared_tokens = j->shared;
    if (j->begun == j->prompt.samples) {
        c->kv = j->kv;
        llm_kv_init(&j->kv, c->kv.pool);
    } else {
        llm_kv_init(&c->kv, j->kv.pool);
        if (llm_kv_fork(&c->kv, &j->kv, s->e) < 0) return -1;
    }
    if (llm_generate_begin_drafts(s, j, c) < 0) return -1;
    if (j->prompt.max_tokens == 0) {
        c->ended = true;
        c->finish = LLM_FINISH_LENGTH;
    } else if (c->kv.n >= s->g->engine->context) {
        c->ended = true;
        c->finish = LLM_FINISH_CONTEXT;
    } else {
        float *guide = NULL;
        int status = llm_generate_begin_guide(s, c, &guide);
        if (status == 0) status = choose_first(s, j, c, guide);
        if (status != 0) return status;
    }
    return finish_ended(s, c);
}

/* Whether memory has room for the next token of one more completion. Where no other one goes on, it begins anyway. */
static bool may_begin(const struct state *s, const struct job *j)
{
    bool forks = j->begun + 1 < j->prompt.samples;
    int64_t more = llm_kv_growth(&j->kv, 1) + (forks ? llm_kv_sequence_bytes(j->kv.pool, 1) : 0);
    return s->g->memory == 0 || s->running == s->n_paused || more <= llm_generate_free(s);
}

static int begin_completions(struct state *s)
{
    for (struct job *j = s->first; j; j = j->next) {
        while (j->logits && j->begun < j->prompt.samples && s->running < s->g->parallel) {
            if (!may_begin(s, j)) return 0;
            int status = begin_completion(s, j);
            if (status != 0) return status;
        }
    }
    return 0;
}

/* ---- which prompt is read next ---- */

static bool in_this_pass(const struct state *s, const struct job *j)
{
    for (int64_t i = s->n_active; i < s->n_feeds; i++)
        if (s->prefilled[i - s->n_active] == j) return true;
    return false;
}

/* A prompt joins this pass: those that wait learn how much they have in common with it. */
static void note_in_pass(struct state *s, const struct job *joins)
{
    if (!llm_generate_is_sharing(s, joins)) return;
    for (struct job *j = s->first; j; j = j->next) {
        if (j->starts || !llm_generate_is_sharing(s, j)) continue;
        int64_t n = llm_prefix_common(j->prompt.ids, joins->prompt.ids, j->prompt.n < joins->prompt.n ? j->prompt.n : joins->prompt.n);
        j->in_pass = n > j->in_pass ? n : j->in_pass;
    }
}

/* Tokens of the prompt that need not be computed. The last one always is, because its logits are needed. */
static int64_t shared_length(const struct state *s, struct job *j)
{
    if (!llm_generate_is_sharing(s, j)) return 0;
    if (j->matched_at != s->g->share->version + 1) {
        j->matched = llm_generate_shared(s, j, j->prompt.ids, j->prompt.n - 1);
        j->matched_at = s->g->share->version + 1;
    }
    return j->matched;
}

/* The prompt that this pass reads next: one that has started; else the one that shares most with what is in memory, and the oldest if none does, or
 * if it was passed over too often. A prompt that shares more with one that this very pass reads waits for the next pass. NULL: none. */
static struct job *next_to_read(struct state *s)
{
    struct job *best = NULL, *oldest = NULL;
    int64_t most = -1;
    for (struct job *j = s->first; j; j = j->next)
        if (j->starts && !j->read && !in_this_pass(s, j)) return j;
    if (s->running + s->starting >= s->g->parallel || s->n_paused > 0) return NULL;
    for (struct job *j = s->first; j; j = j->next) {
        if (j->starts) continue;
        int64_t shared = shared_length(s, j);
        if (j->in_pass >= shared + LLM_LEAST_SHARED) continue;
        if (!oldest) oldest = j;
        if (shared > most) {
            most = shared;
            best = j;
        }
    }
    if (!oldest || oldest == best) return oldest;
    if (oldest->passed_over++ < LOOK_AHEAD * s->g->parallel) return best;
    return oldest;
}

/* The prompt takes the beginning that the index has of it. 0 or -1. */
static int start(struct state *s, struct job *j)
{
    if (j->starts) return 0;
    j->starts = true;
    s->starting += j->prompt.samples - j->begun;
    if (llm_generate_open_cache(s, j, &j->kv) < 0) return -1;
    j->shared = j->fed = shared_length(s, j);
    return j->shared > 0 ? llm_prefix_take(s->g->share, &j->kv, j->prompt.ids, j->shared, s->e) : 0;
}

static int assemble(struct state *s)
{
    int64_t left = s->g->engine->batch, at = 0, wanted = 0;
    s->n_active = s->n_feeds = 0;
    for (struct job *j = s->first; j; j = j->next) j->in_pass = 0;
    for (struct job *j = s->first; j; j = j->next) {
        for (int64_t i = 0; i < j->begun && left > 0; i++) {
            struct llm_completion *c = &j->completions[i];
            if (!c->running || c->paused) continue;
            int64_t feeds = llm_generate_is_guided(&c->prompt) ? 2 : 1; /* the guide reads the same tokens */
            if (left < feeds) continue;
            int64_t n = 1 + (c->n_drafts < left / feeds ? c->n_drafts : left / feeds - 1);
            int32_t *ids = s->ids + at;
            ids[0] = c->ids[c->n - 1];
            for (int64_t k = 1; k < n; k++) ids[k] = c->drafts[k - 1];
            c->n_drafts = n - 1;
            c->first_logits = wanted;
            s->active[s->n_active] = c;
            s->feeds[s->n_active++] = (struct llm_feed){&c->kv, ids, n, false};
            left -= feeds * n;
            for (; n > 0; n--) s->rows[wanted++] = at++;
        }
    }
    s->n_feeds = s->n_active;
    for (int64_t i = 0; i < s->n_active; i++) {
        struct llm_completion *c = s->active[i];
        if (!llm_generate_is_guided(&c->prompt)) continue;
        c->guide_logits = wanted;
        s->prefilled[s->n_feeds - s->n_active] = NULL;
        s->feeds[s->n_feeds] = (struct llm_feed){&c->guide_kv, s->feeds[i].ids, s->feeds[i].n, false};
        for (int64_t k = s->feeds[s->n_feeds++].n; k > 0; k--) s->rows[wanted++] = at++;
    }
    s->free = llm_generate_free(s);
    if (llm_generate_feed_branches(s, &left, &at, &wanted) < 0) return -1;
    s->n_chosen = wanted;
    s->n_own = s->n_feeds;
    s->own_rows = at;
    if (s->n_active > 0 && s->g->latency > 0 && s->chunk < left) left = s->chunk;
    if (llm_generate_feed_paused(s, &left, &at) < 0) return -1;
    for (struct job *j; left > 0 && (j = next_to_read(s)) != NULL;) {
        if (!j->starts && !llm_generate_may_start(s, j, shared_length(s, j))) break;
        if (start(s, j) < 0) return -1;
        bool together = s->g->engine->model->config.prefix_lm && j->kv.n == 0; /* a prefix LM reads a prompt in one pass */
        int64_t n = j->prompt.n - j->fed < left ? j->prompt.n - j->fed : left;
        if (together && n < j->prompt.n) break; /* it waits for a pass with enough room */
        n = llm_generate_fit(s, &j->kv, n);
        if (n == 0 || (together && n < j->prompt.n)) break;
        s->feeds[s->n_feeds] = (struct llm_feed){&j->kv, j->prompt.ids + j->fed, n, together};
        left -= n;
        at += n;
        j->fed += n;
        s->prefilled[s->n_feeds - s->n_active] = j;
        note_in_pass(s, j);
        if (j->fed == j->prompt.n) s->rows[wanted++] = at - 1;
        s->n_feeds++;
    }
    s->n_wanted = wanted;
    return 0;
}

static void choose_piece(void *arg, size_t i, int thread)
{
    struct state *s = arg;
    struct llm_completion *c = s->active[i];
    int64_t before = c->kv.n - c->n_drafts, n = c->n_drafts;
    const int32_t *drafts = c->drafts;
    float *logits = s->logits + c->first_logits * llm_generate_vocab(s);
    const float *guide = llm_generate_is_guided(&c->prompt) ? s->logits + c->guide_logits * llm_generate_vocab(s) : NULL;
    c->drafted += c->n_drafts + c->n_branch;
    for (int64_t k = 0;; k++) {
        choose(s, c, logits + k * llm_generate_vocab(s), guide ? guide + k * llm_generate_vocab(s) : NULL, before + k, thread);
        const bool ends = c->err.status || c->ended;
        if (!ends && k == 0 && llm_generate_takes_branch(c)) {
            drafts = c->branch;
            n = c->n_branch;
            logits = s->logits + (c->branch_logits - 1) * llm_generate_vocab(s);
        }
        if (ends || k == n || c->ids[c->n - 1] != drafts[k]) {
            llm_generate_adapt_depth(s, c, c->n_drafts, c->on_branch && c->source == LLM_DRAFT_MODEL ? 0 : k);
            llm_generate_learn_branch(c, c->on_branch ? k : 0);
            c->n_drafts = k; /* the number of right drafts */
            c->accepted += k;
            return;
        }
    }
}

static void choose_all(struct state *s)
{
    LLM_PROFILE("sampling", 4 * (double)(s->n_active * llm_generate_vocab(s)));
    llm_parallel((size_t)s->n_active, choose_piece, s);
}

/* Copies the logits after each prompt that this pass has read to its end; in s->logits they follow those of completions. 0 or -1. */
static int keep_logits(struct state *s)
{
    const float *logits = s->logits + s->n_chosen * llm_generate_vocab(s);
    for (int64_t i = 0; i < s->n_feeds - s->n_active; i++) {
        struct job *j = s->prefilled[i];
        if (!j || j->fed < j->prompt.n) continue;
        j->read = true;
        if (llm_generate_is_sharing(s, j) && llm_prefix_put(s->g->share, &j->kv, s->e) < 0) return -1;
        j->seconds = llm_now() - j->started;
        j->logits = llm_alloc((size_t)llm_generate_vocab(s), sizeof *j->logits, "logits", s->e);
        if (!j->logits) return -1;
        memcpy(j->logits, logits, (size_t)llm_generate_vocab(s) * sizeof *j->logits);
        logits += llm_generate_vocab(s);
    }
    return 0;
}

/* The chunk of prompts follows the time of a pass: a pass that took too long lowers it in proportion, one that leaves time raises it. */
static void adapt_chunk(struct state *s, double seconds)
{
    enum { LEAST = 8 };
    if (s->n_active == 0 || s->n_feeds == s->n_own || s->g->latency <= 0) return;
    if (seconds > s->g->latency) s->chunk = (int64_t)(.9 * (double)s->chunk * s->g->latency / seconds);
    else if (seconds < .8 * s->g->latency) s->chunk += s->chunk / 4 + 1;
    if (s->chunk < LEAST) s->chunk = LEAST;
    if (s->chunk > s->g->engine->batch) s->chunk = s->g->engine->batch;
}

static int pass(struct state *s)
{
    struct llm_engine *g = s->g->engine;
    int64_t row = 0, n_again = 0;
    struct llm_reading r;
    double began = llm_now();
    if (llm_generate_keep_states(s) < 0 || llm_engine_advance(g, s->feeds, s->n_feeds, &r, s->e) < 0) return -1;
    if (llm_generate_note_prompts(s, r.hidden) < 0) return -1;
    llm_generate_resume(s);
    for (int64_t i = 0; i < s->n_feeds - s->n_active; i++) {
        struct job *j = s->prefilled[i];
        if (j && !j->prompt.keep_cache && !llm_generate_is_sharing(s, j)) llm_kv_release_passed(&j->kv);
    }
    if (s->n_wanted == 0) return 0;
    s->logits = llm_engine_predict(g, &r, s->rows, s->n_wanted, s->e);
    if (!s->logits || keep_logits(s) < 0) return -1;
    choose_all(s);
    double seconds = llm_now() - began;
    adapt_chunk(s, seconds);
    if (s->n_feeds == s->n_own) {
        int64_t tokens = s->n_active;
        for (int64_t i = 0; i < s->n_active; i++) tokens += s->active[i]->n_drafts;
        llm_generate_note_cost(&s->pass_cost, seconds);
        llm_generate_note_rows(s, s->own_rows, tokens, seconds);
    }
    for (int64_t i = 0, fed; i < s->n_active; i++, row += fed) {
        struct llm_completion *c = s->active[i];
        const int64_t right = 1 + c->n_drafts;
        fed = s->feeds[i].n;
        if (llm_generate_keep_right(c, g->draft > 0, r.hidden, row, c->on_branch ? 1 + c->n_branch : fed, s->e) < 0) return -1;
        llm_generate_end_branch(c);
        if (finish_ended(s, c) < 0) return -1;
        if (g->pool.state_floats > 0 && right < fed && c->kv.state) { /* no state: it has ended */
            llm_generate_restore_state(c, right);
            s->feeds[n_again++] = (struct llm_feed){&c->kv, s->feeds[i].ids, right, false};
        } else if (!c->ended && !c->prompt.keep_cache) {
            llm_kv_release_passed(&c->kv);
        }
    }
    return n_again > 0 ? llm_engine_advance(g, s->feeds, n_again, &r, s->e) : 0;
}

/* ---- delivery, in the order of prompts ---- */

static int show(struct state *s, struct llm_completion *c)
{
    size_t n = llm_text_ready(&c->text, c->ended);
    const char *bytes = n > 0 ? c->text.bytes.p + c->text.shown : "";
    if ((n > 0 || c->n > c->ids_shown) && s->g->text && s->g->text(s->g->arg, c, bytes, n, s->e) < 0) return -1;
    c->text.shown += n;
    c->ids_shown = c->n;
    return 0;
}

/* Delivers the job's completions up to the first that has not ended. 1: all are delivered; 0: not; -1. */
static int deliver_job(struct state *s, struct job *j)
{
    for (; j->delivered < j->begun; j->delivered++) {
        struct llm_completion *c = &j->completions[j->delivered];
        if (show(s, c) < 0) return -1;
        if (!c->ended) return 0;
        if (s->g->done(s->g->arg, c, s->e) < 0) return -1;
        completion_release(c, s->g->drafts);
        c->kv.pool = NULL;
        s->held--;
    }
    return j->delivered == j->prompt.samples;
}

static int deliver(struct state *s)
{
    for (struct job **at = &s->first; *at;) {
        struct job *j = *at;
        int got = deliver_job(s, j);
        if (got < 0) return -1;
        if (got == 0 && !s->g->unordered) return 0;
        if (got == 0) {
            at = &j->next;
            continue;
        }
        *at = j->next;
        if (!*at) s->last = at;
        job_destroy(j, s->g->drafts);
    }
    return 0;
}

static int run(struct state *s)
{
    int status = 0;
    while (status == 0) {
        if (llm_signal_caught()) {
            status = 1;
            break;
        }
        llm_generate_make_room(s);
        status = llm_generate_draft(s);
        if (status == 0) status = admit(s);
        if (status == 0) status = begin_completions(s);
        if (status == 0) status = deliver(s);
        if (status == 0) status = llm_generate_catch_up_guides(s);
        if (status != 0) break;
        if (assemble(s) < 0) {
            status = -1;
            break;
        }
        if (s->n_feeds > 0) status = pass(s);
        else if (s->no_more && !s->first) break;
        else llm_generate_release_all(s);
    }
    return status;
}

/* Offers the caches of a job that a signal ends. */
static void drop(const struct llm_generate *g, struct job *j)
{
    if (!g->dropped || !j->prompt.keep_cache) return;
    if (j->begun == 0) g->dropped(g->arg, NULL, &j->kv);
    for (int64_t i = j->delivered; i < j->begun; i++) {
        struct llm_completion *c = &j->completions[i];
        if (!c->ended) c->decode_seconds = llm_now() - c->started;
        g->dropped(g->arg, c, &c->kv);
    }
}

int llm_generate(const struct llm_generate *g, struct llm_err *e)
{
    struct state s = {.g = g, .e = e, .last = &s.first, .chunk = g->engine->batch < FIRST_CHUNK ? g->engine->batch : FIRST_CHUNK};
    size_t room = (size_t)(g->parallel + g->engine->batch) + 1;
    s.n_ends = llm_model_ends(g->engine->model, s.ends);
    s.feeds = llm_alloc(room, sizeof *s.feeds, "a pass", e);
    s.rows = llm_alloc(room, sizeof *s.rows, "a pass", e);
    s.drafts = llm_alloc(room, sizeof *s.drafts, "a pass", e);
    s.ids = llm_alloc(room, sizeof *s.ids, "a pass", e);
    s.active = llm_alloc(room, sizeof *s.active, "a pass", e);
    s.prefilled = llm_alloc(room, sizeof *s.prefilled, "a pass", e);
    s.samplers = llm_calloc((size_t)llm_pool_threads(), sizeof *s.samplers, "sampling", e);
    int status = s.samplers && s.feeds && s.rows && s.drafts && s.ids && s.active && s.prefilled ? run(&s) : -1;
    while (s.first) {
        struct job *j = s.first;
        s.first = j->next;
        if (status == 1) drop(g, j);
        job_destroy(j, g->drafts);
    }
    for (int i = 0; s.samplers && i < llm_pool_threads(); i++) llm_sampler_release(&s.samplers[i]);
    free(s.samplers);
    free(s.spare);
    free(s.feeds);
    free(s.rows);
    free(s.drafts);
    free(s.ids);
    free(s.active);
    free(s.prefilled);
    if (status == 0 && s.source_error.status) {
        if (e) *e = s.source_error;
        return -1;
    }
    return status;
}
