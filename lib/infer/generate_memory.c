/* The generator's bound of memory: which prompts may start, and whose cache is released where the running completions outgrow the bound. What was
 * released is computed again from the tokens, with the same bits. */
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "infer/generate_internal.h"

static int64_t used_bytes(const struct state *s)
{
    return llm_kv_used_bytes(&s->g->engine->pool) + (s->g->drafter ? llm_kv_used_bytes(&s->g->drafter->pool) : 0);
}

/* Bytes that the next pass of a running completion takes, its drafts included. */
static int64_t next_bytes(const struct state *s, const struct llm_completion *c)
{
    int64_t drafts = s->g->drafts > s->g->engine->draft ? s->g->drafts : s->g->engine->draft;
    if (c->n_drafts > drafts) drafts = c->n_drafts;
    int64_t n = llm_kv_growth(&c->kv, 1 + drafts);
    int64_t negative = c->prompt.n_negative > 0 ? c->prompt.n_negative : 1;
    if (c->guide_kv.pool) n += llm_kv_growth(&c->guide_kv, negative + c->n + drafts - c->guide_kv.n);
    if (s->g->drafter && c->draft_kv.pool) n += llm_kv_growth(&c->draft_kv, c->kv.n - c->draft_kv.n + 1 + drafts);
    return n;
}

int64_t llm_generate_free(const struct state *s)
{
    if (s->g->memory == 0) return INT64_MAX;
    int64_t n = s->g->memory - used_bytes(s);
    for (const struct job *j = s->first; j; j = j->next) {
        for (int64_t i = 0; i < j->begun; i++)
            if (j->completions[i].running && !j->completions[i].paused) n -= next_bytes(s, &j->completions[i]);
    }
    return n;
}

/* A prompt that was read, or read in part, is one that has not started. Its completions that have begun go on. */
static void restart(struct state *s, struct job *j)
{
    llm_kv_release(&j->kv);
    llm_draft_release(&j->draft);
    free(j->logits);
    j->logits = NULL;
    j->fed = j->shared = 0;
    j->matched_at = 0;
    j->starts = j->read = false;
    s->starting -= j->prompt.samples - j->begun;
}

/* The completion waits until its cache has been computed again. The model's own layers draft no more for it, as the hidden states are lost. */
static void pause_completion(struct state *s, struct llm_completion *c)
{
    llm_kv_release(&c->kv);
    if (c->draft_kv.pool) llm_kv_release(&c->draft_kv);
    if (c->guide_kv.pool) llm_kv_release(&c->guide_kv);
    if (s->g->engine->draft > 0) {
        llm_draft_release(&c->draft);
        free(c->drafts);
        c->drafts = NULL;
    }
    free(c->again);
    c->again = NULL;
    c->n_drafts = 0;
    if (!c->paused) s->n_paused++;
    c->paused = true;
}

/* Releases the cache of what came last, except of the first prompt or completion under way, which always goes on. false: there is no other. */
static bool release_last(struct state *s)
{
    struct job *prompt = NULL;
    struct llm_completion *last = NULL;
    bool first = true;
    for (struct job *j = s->first; j; j = j->next) {
        for (int64_t i = 0; i < j->begun; i++) {
            struct llm_completion *c = &j->completions[i];
            if (!c->running) continue;
            if (!first && c->kv.n > 0) {
                last = c;
                prompt = NULL;
            }
            first = false;
        }
        if (!j->starts || j->begun == j->prompt.samples) continue;
        if (!first) prompt = j;
        first = false;
    }
    if (prompt) restart(s, prompt);
    else if (last) pause_completion(s, last);
    return prompt || last;
}

void llm_generate_make_room(struct state *s)
{
    if (s->g->memory == 0) return;
    while (llm_generate_free(s) < 0) {
        if (s->g->share && llm_prefix_free(s->g->share)) continue;
        if (!release_last(s)) return;
    }
}

void llm_generate_release_all(struct state *s)
{
    if (s->g->memory == 0) return;
    while (s->g->share && llm_prefix_free(s->g->share)) continue;
    while (release_last(s)) continue;
}

/* Bytes that the rest of the prompts that have started will take, and one page for each completion that runs: they grow. */
static int64_t promised(const struct state *s)
{
    int64_t n = 0, page = llm_kv_sequence_bytes(&s->g->engine->pool, 1);
    for (const struct job *j = s->first; j; j = j->next) {
        if (j->starts && !j->read) n += llm_kv_growth(&j->kv, j->prompt.n - j->fed);
        for (int64_t i = 0; i < j->begun; i++) n += j->completions[i].running && !j->completions[i].paused ? page : 0;
    }
    return n;
}

/* Whether nothing runs or is read, so that what comes next is the oldest and may take all. */
static bool is_idle(const struct state *s)
{
    if (s->n_feeds > 0) return false;
    for (const struct job *j = s->first; j; j = j->next)
        if (j->starts && j->begun < j->prompt.samples) return false;
    return true;
}

/* Whether `bytes` more are free after what is promised; beginnings that nobody uses leave for them. */
static bool has_room(struct state *s, int64_t bytes)
{
    for (;;) {
        if (s->free - promised(s) >= bytes) return true;
        int64_t before = used_bytes(s);
        if (!s->g->share || !llm_prefix_free(s->g->share)) return false;
        s->free += before - used_bytes(s);
    }
}

bool llm_generate_may_start(struct state *s, const struct job *j, int64_t shared)
{
    const struct llm_kv_pool *p = &s->g->engine->pool;
    if (s->g->memory == 0 || is_idle(s)) return true;
    int64_t n = llm_kv_sequence_bytes(p, j->prompt.n + 1) + llm_kv_sequence_bytes(p, j->n_source);
    if (shared >= LLM_KV_TILE) n -= llm_kv_sequence_bytes(p, shared / LLM_KV_TILE * LLM_KV_TILE);
    return has_room(s, n);
}

int64_t llm_generate_fit(struct state *s, const struct llm_kv *kv, int64_t n)
{
    if (s->g->memory == 0) return n;
    bool alone = s->n_feeds == 0; /* nothing else could be released for it */
    while (!alone && n > 0 && llm_kv_growth(kv, n) > s->free) n -= n % LLM_KV_TILE > 0 ? n % LLM_KV_TILE : LLM_KV_TILE;
    if (n > 0) s->free -= llm_kv_growth(kv, n);
    return n;
}

/* Begins to compute the cache of a paused completion again. 0 or -1. */
static int begin_again(struct state *s, const struct job *j, struct llm_completion *c)
{
    if (llm_generate_open_cache(s, j, &c->kv) < 0) return -1;
    int64_t begun = c->kv.n, made = c->n - 1;
    c->n_again = begun + j->prompt.n + made;
    c->again = llm_alloc((size_t)c->n_again, sizeof *c->again, "tokens", s->e);
    if (!c->again) return -1;
    if (begun > 0) memcpy(c->again, c->kv.ids, (size_t)begun * sizeof *c->again);
    memcpy(c->again + begun, j->prompt.ids, (size_t)j->prompt.n * sizeof *c->again);
    if (made > 0) memcpy(c->again + begun + j->prompt.n, c->ids, (size_t)made * sizeof *c->again);
    int64_t shared = llm_generate_shared(s, j, c->again, c->n_again);
    return shared > 0 ? llm_prefix_take(s->g->share, &c->kv, c->again, shared, s->e) : 0;
}

int llm_generate_feed_paused(struct state *s, int64_t *left, int64_t *at)
{
    bool prefix_lm = s->g->engine->model->config.prefix_lm;
    if (s->n_paused == 0) return 0;
    for (struct job *j = s->first; j; j = j->next) {
        for (int64_t i = 0; i < j->begun && *left > 0; i++) {
            struct llm_completion *c = &j->completions[i];
            if (!c->running || !c->paused) continue;
            int64_t whole = j->prompt.n + c->n + (j->prompt.begin ? j->prompt.begin->n : 0);
            if (!c->again) {
                int64_t bytes = llm_kv_sequence_bytes(&s->g->engine->pool, whole) + llm_kv_sequence_bytes(&s->g->engine->pool, j->n_source);
                if (!is_idle(s) && !has_room(s, bytes)) return 0;
                if (begin_again(s, j, c) < 0) return -1;
            }
            bool together = prefix_lm && c->kv.n == 0;
            int64_t n = (together ? j->prompt.n : c->n_again) - c->kv.n;
            if (n > *left && together) return 0;
            n = llm_generate_fit(s, &c->kv, n < *left ? n : *left);
            if (n == 0 || (together && n < j->prompt.n)) return 0;
            s->prefilled[s->n_feeds - s->n_active] = NULL;
            s->feeds[s->n_feeds++] = (struct llm_feed){&c->kv, c->again + c->kv.n, n, together};
            c->recomputed_tokens += n;
            *left -= n;
            *at += n;
        }
    }
    return 0;
}

void llm_generate_resume(struct state *s)
{
    if (s->n_paused == 0) return;
    for (struct job *j = s->first; j; j = j->next) {
        for (int64_t i = 0; i < j->begun; i++) {
            struct llm_completion *c = &j->completions[i];
            if (!c->running || !c->paused || !c->again || c->kv.n < c->n_again) continue;
            free(c->again);
            c->again = NULL;
            c->paused = false;
            s->n_paused--;
        }
    }
}
