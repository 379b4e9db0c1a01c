#include "measure/eval/continuations.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/signals.h"
#include "cpu/kernels.h"
#include "cpu/pool.h"

enum {
    LEAST_BASE = 16, /* tokens that all of a group must have in common to be worth a cache of their own */
    MAX_LIVE = 64,   /* caches of continuations at a time */
    LOGIT_ROWS = 64  /* rows of logits at a time */
};

/* Tokens [from, to) of one sequence, which follow what its cache holds. */
struct job {
    struct llm_kv kv;
    const struct llm_kv *begin;   /* what the cache begins with; NULL: nothing */
    const int32_t *ids;
    int64_t from, to, at;
    struct llm_continuation *v;   /* [n] the continuations with these tokens */
    size_t n;
};

/* A token whose probability is wanted, and the row of the pass after which it comes. */
struct want {
    struct llm_continuation *to;
    int64_t row;
    int32_t id;
    double log_prob;
    bool greedy;
};

struct rows {
    struct want *v;
    const size_t *first;          /* [n + 1] of the wants of each row of logits */
    float *logits;
    int64_t vocab;
};

void llm_continuations_init(struct llm_continuations *c, struct llm_engine *g)
{
    *c = (struct llm_continuations){.engine = g, .least = INFINITY, .greatest = -INFINITY};
    llm_kv_init(&c->base, &g->pool);
}

void llm_continuations_release(struct llm_continuations *c)
{
    if (c->engine) llm_kv_release(&c->base);
    c->engine = NULL;
}

/* All wants of one row of logits, which is overwritten. */
static void look_up(void *arg, size_t i, int thread)
{
    const struct rows *r = arg;
    float *logits = r->logits + (int64_t)i * r->vocab;
    size_t begin = r->first[i], end = r->first[i + 1];
    (void)thread;
    for (size_t k = begin; k < end; k++) {
        struct want *w = &r->v[k];
        float own = logits[w->id];
        w->log_prob = own; /* the logit: log Σ exp is subtracted below, after ce_forward has overwritten the row */
        w->greedy = true;
        for (int64_t j = 0; j < r->vocab && w->greedy; j++) w->greedy = !(logits[j] > own || (logits[j] == own && j < w->id));
    }
    struct llm_ce_row row = llm_k.rows.ce_forward(logits, 1, 0, (size_t)r->vocab);
    for (size_t k = begin; k < end; k++) r->v[k].log_prob -= (double)row.max + log((double)row.sum);
}

static void take(struct llm_continuations *c, const struct want *w)
{
    w->to->log_prob += w->log_prob;
    w->to->greedy &= w->greedy;
    c->tokens++;
    if (!(w->log_prob >= c->least)) c->least = w->log_prob;
    if (!(w->log_prob <= c->greatest)) c->greatest = w->log_prob;
}

/* The wants of a pass, in order of rows. */
static int answer(struct llm_continuations *c, const struct llm_reading *r, struct want *v, size_t n, struct llm_err *e)
{
    struct llm_engine *g = c->engine;
    for (size_t at = 0; at < n;) {
        int64_t rows[LOGIT_ROWS];
        size_t first[LOGIT_ROWS + 1], n_rows = 0, k = at, mark = llm_arena_mark(&g->ctx.acts);
        for (; k < n; k++) {
            if (k > at && v[k].row == v[k - 1].row) continue;
            if (n_rows == LOGIT_ROWS) break;
            first[n_rows] = k;
            rows[n_rows++] = v[k].row;
        }
        first[n_rows] = k;
        struct rows work = {.v = v, .first = first, .vocab = g->model->config.vocab_size};
        work.logits = llm_engine_predict(g, r, rows, (int64_t)n_rows, e);
        if (!work.logits) return -1;
        llm_parallel(n_rows, look_up, &work);
        llm_arena_pop(&g->ctx.acts, mark);
        at = k;
    }
    for (size_t k = 0; k < n; k++) take(c, &v[k]);
    return 0;
}

struct pass {
    struct llm_feed feeds[MAX_LIVE];
    struct job *jobs[MAX_LIVE];
    int64_t n, tokens;
    struct want *wants;
    size_t n_wants, room;
};

/* The tokens that a job's part of the pass predicts. */
static int want(struct pass *p, const struct job *j, int64_t n, struct llm_err *e)
{
    for (int64_t i = 0; i < n; i++) {
        for (size_t k = 0; k < j->n; k++) {
            struct llm_continuation *to = &j->v[k];
            int64_t target = j->at + i + 1;
            if (target < to->first || target >= to->n) continue;
            if (llm_grow((void **)&p->wants, &p->room, p->n_wants + 1, sizeof *p->wants, e) < 0) return -1;
            p->wants[p->n_wants++] = (struct want){.to = to, .row = p->tokens + i, .id = to->ids[target]};
        }
    }
    return 0;
}

/* Puts as much of a job into the pass as there is room for. */
static int put(struct pass *p, const struct llm_engine *g, struct job *j, struct llm_err *e)
{
    int64_t n = j->to - j->at < g->batch - p->tokens ? j->to - j->at : g->batch - p->tokens;
    if (j->at == j->from && j->begin && llm_kv_fork(&j->kv, j->begin, e) < 0) return -1;
    if (want(p, j, n, e) < 0) return -1;
    p->feeds[p->n] = (struct llm_feed){.kv = &j->kv, .ids = j->ids + j->at, .n = n};
    p->jobs[p->n++] = j;
    p->tokens += n;
    j->at += n;
    return 0;
}

/* Runs all jobs, pass after pass. keep: their caches stay. */
static int run(struct llm_continuations *c, struct job *jobs, size_t n, bool keep, struct llm_err *e)
{
    struct pass p = {0};
    int status = 0;
    for (size_t next = 0; next < n && status == 0;) {
        p.n = p.tokens = 0;
        p.n_wants = 0;
        for (size_t k = next; k < n && p.n < MAX_LIVE && p.tokens < c->engine->batch && status == 0; k++) {
            if (jobs[k].at < jobs[k].to) status = put(&p, c->engine, &jobs[k], e);
        }
        struct llm_reading r;
        if (status == 0 && p.n > 0) status = llm_signal_caught() ? 1 : llm_engine_advance(c->engine, p.feeds, p.n, &r, e);
        if (status == 0 && p.n > 0) status = answer(c, &r, p.wants, p.n_wants, e);
        for (int64_t i = 0; i < p.n && !keep; i++) {
            if (p.jobs[i]->at == p.jobs[i]->to) llm_kv_release(&p.jobs[i]->kv);
        }
        while (next < n && jobs[next].at == jobs[next].to) next++;
    }
    free(p.wants);
    return status;
}

static int64_t common(const int32_t *a, int64_t n, const int32_t *b, int64_t m)
{
    int64_t i = 0;
    while (i < n && i < m && a[i] == b[i]) i++;
    return i;
}

/* The length of what v[0..n) begin with and have to feed: their last tokens are only predicted. */
static int64_t shared(const struct llm_continuation *v, size_t n)
{
    int64_t length = v[0].n - 1;
    for (size_t i = 1; i < n; i++) length = common(v[0].ids, length, v[i].ids, v[i].n - 1);
    return length;
}

/* Makes c->base hold ids[0..n), from which no probability is wanted. */
static int make_base(struct llm_continuations *c, const int32_t *ids, int64_t n, struct llm_err *e)
{
    int64_t same = common(c->base.ids, c->base.n, ids, n);
    if (same < c->base.n && llm_kv_can_truncate(&c->base, same)) llm_kv_truncate(&c->base, same);
    if (same < c->base.n) {
        llm_kv_release(&c->base);
        same = 0;
    }
    return same < n ? llm_engine_prefill(c->engine, &c->base, ids + same, n - same, false, false, NULL, NULL, e) : 0;
}

/* The beginnings of all families, then what follows in each continuation. */
static int score_families(struct llm_continuations *c, struct llm_continuation *v, size_t n, struct job *begins, size_t n_begins, struct job *ends,
                          struct llm_err *e)
{
    int64_t base = INT64_MAX;
    for (size_t k = 0; k < n_begins; k++) {
        for (size_t i = 0; i < begins[k].n; i++) {
            int64_t same = common(v[0].ids, v[0].n, begins[k].v[i].ids, begins[k].v[i].first - 1);
            base = same < base ? same : base;
        }
    }
    if (base < LEAST_BASE) base = 0;
    int status = base > 0 ? make_base(c, v[0].ids, base, e) : 0;
    for (size_t k = 0; k < n_begins; k++) {
        begins[k].from = begins[k].at = base;
        begins[k].begin = base > 0 ? &c->base : NULL;
    }
    if (status == 0) status = run(c, begins, n_begins, true, e);
    for (size_t k = 0, i = 0; k < n_begins; k++) {
        for (size_t own = 0; own < begins[k].n; own++, i++) {
            struct job *j = &ends[i];
            *j = (struct job){.ids = v[i].ids, .from = begins[k].to, .at = begins[k].to, .to = v[i].n - 1, .v = &v[i], .n = 1};
            llm_kv_init(&j->kv, &c->engine->pool);
            j->begin = begins[k].kv.n > 0 ? &begins[k].kv : base > 0 && begins[k].to == base ? &c->base : NULL;
        }
    }
    return status == 0 ? run(c, ends, n, false, e) : status;
}

int llm_continuations_score(struct llm_continuations *c, struct llm_continuation *v, size_t n, struct llm_err *e)
{
    struct job *begins = llm_calloc(n, sizeof *begins, "sequences", e), *ends = llm_calloc(n, sizeof *ends, "sequences", e);
    size_t n_begins = 0;
    int status = begins && ends ? 0 : -1;
    for (size_t i = 0; i < n && status == 0; n_begins++) {
        size_t own = 1;
        while (i + own < n && v[i + own].family == v[i].family) own++;
        begins[n_begins] = (struct job){.ids = v[i].ids, .v = &v[i], .n = own, .to = shared(&v[i], own)};
        llm_kv_init(&begins[n_begins].kv, &c->engine->pool);
        i += own;
    }
    for (size_t i = 0; i < n && status == 0; i++) {
        v[i].log_prob = 0;
        v[i].greedy = true;
        llm_kv_init(&ends[i].kv, &c->engine->pool);
    }
    if (status == 0 && n > 0) status = score_families(c, v, n, begins, n_begins, ends, e);
    for (size_t i = 0; i < n && begins && ends; i++) {
        if (ends[i].kv.pool) llm_kv_release(&ends[i].kv);
        if (i < n_begins) llm_kv_release(&begins[i].kv);
    }
    free(begins);
    free(ends);
    return status;
}
