#include "infer/beams.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/log.h"
#include "base/signals.h"
#include "cpu/kernels.h"
#include "cpu/pool.h"
#include "infer/generate_internal.h"
#include "infer/most.h"
#include "tensor/divergence.h"

/* A text that a search goes on with. */
struct beam {
    struct llm_kv kv;
    int32_t *ids;                /* [n] generated, of one length in all beams; the cache has all but the last */
    double score;                /* sum of log-probabilities */
    bool open;
};

/* A text that has ended. */
struct ended {
    int32_t *ids;                /* [n] */
    int64_t n;
    double score;                /* divided by the length's power */
    enum llm_finish finish;
};

struct choice {
    double score;
    int64_t beam;
    int32_t id;
};

struct group {
    struct beam *beams;          /* [size] the best first */
    struct ended *ended;         /* [n_ended] the best first, at most `size` */
    int64_t n_ended;
    bool done;
};

struct search {
    struct state s;              /* what functions of the generator read of it */
    const struct llm_beams *o;
    struct llm_prompt p;
    struct llm_sampler sampler;
    struct group *groups;        /* [o->groups] */
    int64_t size;                /* beams of a group */
    int64_t n;                   /* tokens generated so far */
    int64_t max;                 /* tokens that may be generated */
    int64_t prompt_tokens;
    double began, read;          /* seconds: when it began; of the prompt */
    struct llm_err *e;
};

static int64_t vocab_of(const struct search *x)
{
    return llm_generate_vocab(&x->s);
}

static bool ends(const struct search *x, int32_t id)
{
    for (size_t i = 0; i < x->p.n_ends; i++)
        if (x->p.ends[i] == id) return true;
    for (size_t i = 0; i < x->s.n_ends && !x->p.ignore_eos; i++)
        if (x->s.ends[i] == id) return true;
    return false;
}

static int32_t *with(const int32_t *ids, int64_t n, int32_t id, struct llm_err *e)
{
    int32_t *all = llm_alloc((size_t)n + 1, sizeof *all, "a text", e);
    if (!all) return NULL;
    if (n > 0) memcpy(all, ids, (size_t)n * sizeof *all);
    all[n] = id;
    return all;
}

/* Final hidden states of all tokens so far. */
struct states {
    float *rows;                 /* [n, width] each of length 1 */
    int64_t n, width;
    size_t room;
};

static int add_state(struct states *h, const float *row, struct llm_err *e)
{
    double sum = 0;
    if (llm_grow((void **)&h->rows, &h->room, (size_t)((h->n + 1) * h->width), sizeof *h->rows, e) < 0) return -1;
    float *to = h->rows + h->n++ * h->width;
    for (int64_t i = 0; i < h->width; i++) sum += (double)row[i] * row[i];
    for (int64_t i = 0; i < h->width; i++) to[i] = sum > 0 ? (float)(row[i] / sqrt(sum)) : 0;
    return 0;
}

static int note_states(void *arg, const struct llm_span *s, struct llm_err *e)
{
    struct states *h = arg;
    for (int64_t i = 0; i < s->n; i++)
        if (add_state(h, s->hidden + i * s->reading->hidden->stride, e) < 0) return -1;
    return 0;
}

/* Reads the prompt; notes its hidden states in `h`, unless that is NULL. *logits: [vocab_size] of what follows, on the arena. 0, 1 when a signal was
 * caught, -1. */
static int read_prompt(struct search *x, struct llm_kv *kv, struct states *h, float **logits)
{
    struct llm_engine *g = x->s.g->engine;
    struct job j = {.prompt = x->p};
    struct llm_reading r;
    bool together = g->model->config.prefix_lm;
    if (g->model->config.num_encoder_layers > 0) {
        j.source = x->p.ids;
        j.n_source = x->p.n;
        j.start = llm_config_answer_start(&g->model->config);
        j.prompt.ids = &j.start;
        j.prompt.n = 1;
    } else if (x->p.n == 0) {
        j.prompt.ids = x->p.begin->ids + x->p.begin->n - 1;
        j.prompt.n = 1;
    }
    if (llm_generate_open_cache(&x->s, &j, kv) < 0) return -1;
    if (h && x->p.begin) return llm_fail(x->e, EX_DATAERR, "contrastive search: a cache to begin with has no hidden states: expected a whole prompt");
    int64_t before = together ? 0 : j.prompt.n - 1;
    int status = before > 0 ? llm_engine_prefill(g, kv, j.prompt.ids, before, false, false, h ? note_states : NULL, h, x->e) : 0;
    if (status != 0) return status;
    struct llm_feed feed = {kv, j.prompt.ids + before, j.prompt.n - before, together};
    int64_t row = feed.n - 1;
    if (llm_engine_advance(g, &feed, 1, &r, x->e) < 0) return -1;
    if (h && !r.hidden) return llm_fail(x->e, EX_DATAERR, "contrastive search: expected a model with hidden states, found %s", g->predictor->name);
    for (int64_t i = 0; h && i < feed.n; i++)
        if (add_state(h, r.hidden->data + i * r.hidden->stride, x->e) < 0) return -1;
    x->prompt_tokens = j.source ? j.n_source : kv->n;
    x->max = g->context - kv->n;
    if (x->p.max_tokens >= 0 && x->p.max_tokens < x->max) x->max = x->p.max_tokens;
    x->read = llm_now() - x->began;
    *logits = llm_engine_predict(g, &r, &row, 1, x->e);
    return *logits ? 0 : -1;
}

/* Logits become log-probabilities. 0 or -1. */
static int normalise(const struct search *x, float *logits)
{
    const int64_t n = vocab_of(x);
    const double all = llm_log_sum(logits, n, 1);
    if (!isfinite(all)) return llm_fail(x->e, LLM_EX_FAILURE, "logits are not finite: no token can be chosen");
    for (int64_t i = 0; i < n; i++) logits[i] = (float)((double)logits[i] - all);
    return 0;
}

static void never_end(const struct search *x, float *logits)
{
    for (size_t i = 0; x->p.ignore_eos && i < x->s.n_ends; i++) logits[x->s.ends[i]] = -INFINITY;
}

/* 0 or -1. */
static int edit(struct search *x, float *logits, const struct llm_kv *kv)
{
    const struct llm_history h = {kv->ids, kv->n};
    return llm_sampler_edit(&x->sampler, &x->p.sampling, &h, logits, (size_t)vocab_of(x), x->e);
}

/* ---- beams ---- */

/* Puts a choice into the list of the best ones [at most `room`], in order. Of equal ones the first stays first. */
static void rank(struct choice *best, int64_t *n, int64_t room, struct choice c)
{
    int64_t at = *n;
    while (at > 0 && best[at - 1].score < c.score) at--;
    if (at == room) return;
    if (*n < room) ++*n;
    memmove(best + at + 1, best + at, (size_t)(*n - at - 1) * sizeof *best);
    best[at] = c;
}

/* Of the ended texts of a group the best ones stay. 0 or -1. */
static int end_text(struct search *x, struct group *g, const struct choice *c)
{
    double score = c->score / pow((double)(x->n + 1), x->o->length_penalty);
    int64_t at = g->n_ended;
    bool by_token = ends(x, c->id);
    while (at > 0 && g->ended[at - 1].score < score) at--;
    if (at == x->size) return 0;
    int32_t *ids = with(g->beams[c->beam].ids, x->n, c->id, x->e);
    if (!ids) return -1;
    if (g->n_ended == x->size) free(g->ended[--g->n_ended].ids);
    memmove(g->ended + at + 1, g->ended + at, (size_t)(g->n_ended - at) * sizeof *g->ended);
    enum llm_finish limit = x->p.max_tokens >= 0 && x->max == x->p.max_tokens ? LLM_FINISH_LENGTH : LLM_FINISH_CONTEXT;
    g->ended[at] = (struct ended){ids, x->n + !by_token, score, by_token ? LLM_FINISH_STOP : limit};
    g->n_ended++;
    return 0;
}

/* The group's beams become those that `chosen` continue. 0 or -1. */
static int continue_beams(struct search *x, struct group *g, const struct choice *chosen, int64_t n)
{
    struct beam *next = llm_calloc((size_t)x->size, sizeof *next, "beams", x->e);
    int status = next ? 0 : -1;
    for (int64_t i = 0; i < n && status == 0; i++) {
        const struct beam *from = &g->beams[chosen[i].beam];
        llm_kv_init(&next[i].kv, from->kv.pool);
        next[i].score = chosen[i].score;
        next[i].open = true;
        next[i].ids = with(from->ids, x->n, chosen[i].id, x->e);
        status = next[i].ids ? llm_kv_fork(&next[i].kv, &from->kv, x->e) : -1;
    }
    for (int64_t i = 0; i < x->size; i++) {
        if (g->beams[i].kv.pool) llm_kv_release(&g->beams[i].kv);
        free(g->beams[i].ids);
    }
    free(g->beams);
    g->beams = next;
    return status;
}

/* Whether the group's ended texts can still be improved. */
static bool improves(const struct search *x, const struct group *g)
{
    int64_t length = x->o->early == LLM_EARLY_NEVER && x->o->length_penalty > 0 ? x->max : x->n + 1;
    if (!g->beams[0].open) return false;
    if (g->n_ended < x->size) return true;
    return x->o->early != LLM_EARLY_YES && g->beams[0].score / pow((double)length, x->o->length_penalty) > g->ended[g->n_ended - 1].score;
}

/* A step of a group. rows: the logits of its open beams, in order; chosen: [vocab_size] how many beams of earlier groups chose each token in this
 * step. 0 or -1. */
static int step_group(struct search *x, struct group *g, float *rows, int32_t *chosen)
{
    int64_t vocab = vocab_of(x), n_ends = (int64_t)(x->s.n_ends + x->p.n_ends), keep = (n_ends > 1 ? 1 + n_ends : 2) * x->size, n = 0, open = 0;
    int64_t counted = 0;
    int64_t each = keep < vocab ? keep : vocab;
    struct choice *best = llm_alloc((size_t)keep + 1, sizeof *best, "beams", x->e), *on = llm_alloc((size_t)x->size, sizeof *on, "beams", x->e);
    int32_t *ids = llm_alloc((size_t)each, sizeof *ids, "beams", x->e);
    int status = best && on && ids ? 0 : -1;
    for (int64_t b = 0; b < x->size && status == 0; b++) {
        if (!g->beams[b].open) continue;
        float *row = rows;
        rows += vocab;
        never_end(x, row);
        status = normalise(x, row);
        for (int64_t i = 0; i < vocab && x->o->groups > 1; i++) row[i] -= (float)(x->o->diversity_penalty * chosen[i]);
        if (status == 0) status = edit(x, row, &g->beams[b].kv); /* log-probabilities, as in transformers */
        llm_most_likely(row, vocab, each, ids);
        for (int64_t i = 0; i < each; i++) {
            if (row[ids[i]] != -INFINITY) rank(best, &n, keep, (struct choice){g->beams[b].score + (double)row[ids[i]], b, ids[i]});
        }
    }
    bool last = x->n + 1 >= x->max;
    for (int64_t i = 0; i < n && status == 0; i++) {
        bool by_token = ends(x, best[i].id), over = last || by_token;
        if (!by_token && counted < x->size) { /* those of the last step count against later groups, too */
            chosen[best[i].id]++;
            counted++;
        }
        if (over && i < x->size) status = end_text(x, g, &best[i]);
        if (!over && open < x->size) on[open++] = best[i];
    }
    if (status == 0) status = continue_beams(x, g, on, open);
    if (status == 0) g->done = open == 0 || !improves(x, g);
    free(best);
    free(on);
    free(ids);
    return status;
}

/* One pass over the last tokens of all open beams. Their logits, in order; NULL: see e. */
static float *run_beams(struct search *x)
{
    struct llm_engine *engine = x->s.g->engine;
    struct llm_feed *feeds = llm_alloc((size_t)x->o->beams, sizeof *feeds, "beams", x->e);
    int64_t *rows = llm_alloc((size_t)x->o->beams, sizeof *rows, "beams", x->e), n = 0;
    struct llm_reading r;
    for (int64_t i = 0; i < x->o->beams && feeds && rows; i++) {
        struct group *g = &x->groups[i / x->size];
        struct beam *b = &g->beams[i % x->size];
        if (g->done || !b->open) continue;
        rows[n] = n;
        feeds[n++] = (struct llm_feed){&b->kv, b->ids + x->n - 1, 1, false};
    }
    float *logits = feeds && rows && llm_engine_advance(engine, feeds, n, &r, x->e) == 0 ? llm_engine_predict(engine, &r, rows, n, x->e) : NULL;
    free(feeds);
    free(rows);
    return logits;
}

static int64_t open_beams(const struct search *x, const struct group *g)
{
    int64_t n = 0;
    for (int64_t b = 0; b < x->size; b++) n += g->beams[b].open;
    return g->done ? 0 : n;
}

/* 0, 1 when a signal was caught, -1. */
static int search_beams(struct search *x)
{
    int64_t vocab = vocab_of(x);
    float *logits = NULL;
    int32_t *chosen = llm_alloc((size_t)vocab, sizeof *chosen, "beams", x->e);
    float *first = llm_alloc((size_t)vocab, sizeof *first, "logits", x->e);
    struct llm_kv *kv = &x->groups[0].beams[0].kv;
    int status = chosen && first ? read_prompt(x, kv, NULL, &logits) : -1;
    if (status == 0) memcpy(first, logits, (size_t)vocab * sizeof *first);
    for (int64_t g = 0; g < x->o->groups && status == 0; g++) {
        x->groups[g].beams[0].open = true;
        if (g == 0) continue;
        llm_kv_init(&x->groups[g].beams[0].kv, kv->pool);
        status = llm_kv_fork(&x->groups[g].beams[0].kv, kv, x->e);
    }
    for (bool more = x->max > 0; more && status == 0; x->n++) {
        if (llm_signal_caught()) status = 1;
        if (status == 0 && x->n > 0 && !(logits = run_beams(x))) status = -1;
        if (status == 0) memset(chosen, 0, (size_t)vocab * sizeof *chosen);
        more = false;
        for (int64_t g = 0; g < x->o->groups && status == 0; g++) {
            int64_t n = open_beams(x, &x->groups[g]);
            if (n == 0) continue;
            if (x->n == 0) memcpy(logits, first, (size_t)vocab * sizeof *first); /* edits change them */
            status = step_group(x, &x->groups[g], logits, chosen);
            if (x->n > 0) logits += n * vocab;
            more |= !x->groups[g].done;
        }
    }
    free(chosen);
    free(first);
    return status;
}

/* ---- contrastive search ---- */

enum { COMPARED = 64 };          /* earlier states of a work item: they stay in a cache for all candidates */

struct comparison {
    const struct states *h;
    int64_t before, k;           /* states of the text; candidates, whose states follow */
    float *max;                  /* [work items, k] the largest cosine */
};

static void compare_piece(void *arg, size_t piece, int thread)
{
    const struct comparison *x = arg;
    const struct states *h = x->h;
    int64_t first = (int64_t)piece * COMPARED, end = first + COMPARED < x->before ? first + COMPARED : x->before;
    (void)thread;
    for (int64_t i = 0; i < x->k; i++) {
        float max = -1, *to = &x->max[(int64_t)piece * x->k + i];
        for (int64_t t = first; t < end; t++) {
            float dot = llm_k.attention.math[LLM_COMPUTE_F32].dot(h->rows + (x->before + i) * h->width, h->rows + t * h->width, h->width);
            max = dot > max ? dot : max;
        }
        *to = max;
    }
}

/* nearest[k]: the largest cosine of each of the last k states with those before them. 0 or -1. */
static int find_nearest(const struct states *h, int64_t k, float *nearest, struct llm_err *e)
{
    struct comparison x = {.h = h, .before = h->n - k, .k = k};
    int64_t pieces = (x.before + COMPARED - 1) / COMPARED;
    x.max = llm_alloc((size_t)(pieces * k) + 1, sizeof *x.max, "candidates", e);
    if (!x.max) return -1;
    llm_parallel((size_t)pieces, compare_piece, &x);
    for (int64_t i = 0; i < k; i++) {
        nearest[i] = -1;
        for (int64_t piece = 0; piece < pieces; piece++) nearest[i] = fmaxf(nearest[i], x.max[piece * k + i]);
    }
    free(x.max);
    return 0;
}

/* Tries `k` tokens after a cache: a pass of forks of it, one for each. *best: the index of the one that is taken, whose cache becomes *kv, and
 * *logits those after it. 0 or -1. */
static int try_tokens(struct search *x, struct llm_kv *kv, struct states *h, const int32_t *ids, const double *p, int64_t k, int64_t *best,
                      float **logits)
{
    struct llm_engine *engine = x->s.g->engine;
    struct llm_kv *kvs = llm_calloc((size_t)k, sizeof *kvs, "candidates", x->e);
    struct llm_feed *feeds = llm_alloc((size_t)k, sizeof *feeds, "candidates", x->e);
    float *nearest = llm_alloc((size_t)k, sizeof *nearest, "candidates", x->e);
    struct llm_reading r;
    int status = kvs && feeds && nearest ? 0 : -1;
    for (int64_t i = 0; i < k && status == 0; i++) {
        llm_kv_init(&kvs[i], kv->pool);
        status = llm_kv_fork(&kvs[i], kv, x->e);
        feeds[i] = (struct llm_feed){&kvs[i], &ids[i], 1, false};
    }
    if (status == 0) status = llm_engine_advance(engine, feeds, k, &r, x->e);
    int64_t before = h->n;
    double most = -INFINITY;
    for (int64_t i = 0; i < k && status == 0; i++) status = add_state(h, r.hidden->data + i * r.hidden->stride, x->e);
    if (status == 0) status = find_nearest(h, k, nearest, x->e);
    for (int64_t i = 0; i < k && status == 0; i++) {
        double score = (1 - x->o->alpha) * p[i] - x->o->alpha * (double)nearest[i];
        if (score <= most) continue;
        most = score;
        *best = i;
    }
    if (status == 0) {
        memmove(h->rows + before * h->width, h->rows + (before + *best) * h->width, (size_t)h->width * sizeof *h->rows);
        h->n = before + 1;
        struct llm_kv old = *kv;
        *kv = kvs[*best];
        kvs[*best] = old;
        *logits = llm_engine_predict(engine, &r, best, 1, x->e);
        if (!*logits) status = -1;
    }
    for (int64_t i = 0; i < k && kvs; i++)
        if (kvs[i].pool) llm_kv_release(&kvs[i]);
    free(kvs);
    free(feeds);
    free(nearest);
    return status;
}

/* 0, 1 when a signal was caught, -1. */
static int search_contrast(struct search *x, struct llm_completion *c)
{
    struct llm_engine *g = x->s.g->engine;
    int64_t vocab = vocab_of(x), k = x->p.sampling.top_k > 0 && x->p.sampling.top_k < vocab ? x->p.sampling.top_k : vocab, best = 0;
    struct states h = {.width = g->model->config.hidden_size};
    struct llm_kv *kv = &x->groups[0].beams[0].kv;
    float *logits = NULL;
    if (k > g->batch) k = g->batch;
    int32_t *ids = llm_alloc((size_t)k, sizeof *ids, "candidates", x->e);
    double *p = llm_alloc((size_t)k, sizeof *p, "candidates", x->e);
    int status = ids && p ? read_prompt(x, kv, &h, &logits) : -1;
    c->finish = x->p.max_tokens >= 0 && x->max == x->p.max_tokens ? LLM_FINISH_LENGTH : LLM_FINISH_CONTEXT;
    while (status == 0 && x->n < x->max) {
        if (llm_signal_caught()) status = 1;
        never_end(x, logits);
        if (status == 0) status = edit(x, logits, kv);
        if (status == 0) status = normalise(x, logits);
        if (status != 0) break;
        llm_most_likely(logits, vocab, k, ids);
        for (int64_t i = 0; i < k; i++) p[i] = exp((double)logits[ids[i]]);
        status = try_tokens(x, kv, &h, ids, p, k, &best, &logits);
        if (status < 0) break;
        if (ends(x, ids[best])) {
            c->finish = LLM_FINISH_STOP;
            break;
        }
        if (llm_grow((void **)&c->ids, &c->ids_room, (size_t)x->n + 1, sizeof *c->ids, x->e) < 0
            || llm_text_put_token(&c->text, g->model, ids[best], x->e) < 0) status = -1;
        if (status == 0) c->ids[x->n++] = ids[best];
        c->n = x->n;
        if (!c->text.stopped) continue;
        c->finish = LLM_FINISH_STOP;
        break;
    }
    free(ids);
    free(p);
    free(h.rows);
    return status;
}

/* ---- a prompt ---- */

static void begin_completion(const struct search *x, struct llm_completion *c, int64_t sample)
{
    *c = (struct llm_completion){.prompt = x->p, .sample = sample, .text = {.stops = x->p.stops, .n_stops = x->p.n_stops}};
    llm_kv_init(&c->kv, &x->s.g->engine->pool);
}

/* Shows a completion and hands it over. 0 or -1. */
static int deliver(const struct search *x, struct llm_completion *c)
{
    const struct llm_generate *g = x->s.g;
    c->prompt_tokens = x->prompt_tokens;
    c->prompt_seconds = x->read;
    c->decode_seconds = llm_now() - x->began - x->read;
    c->ended = true;
    int status = 0;
    if (g->text && !c->err.status && (c->n > 0 || c->text.bytes.n > 0)) status = g->text(g->arg, c, c->text.bytes.p, c->text.bytes.n, x->e);
    c->text.shown = c->text.bytes.n;
    c->ids_shown = c->n;
    if (status == 0) status = g->done(g->arg, c, x->e);
    free(c->ids);
    llm_text_release(&c->text);
    llm_kv_release(&c->kv);
    return status;
}

/* The best ended texts of all groups, the best first. 0 or -1. */
static int deliver_beams(struct search *x)
{
    for (int64_t sample = 0; sample < x->p.samples; sample++) {
        struct llm_completion c;
        struct ended *best = NULL;
        begin_completion(x, &c, sample);
        for (int64_t g = 0; g < x->o->groups; g++) {
            for (int64_t i = 0; i < x->groups[g].n_ended; i++) {
                struct ended *one = &x->groups[g].ended[i];
                if (one->ids && (!best || one->score > best->score)) best = one;
            }
        }
        c.finish = LLM_FINISH_LENGTH; /* -n 0, or fewer texts than samples */
        if (best) {
            c.ids = best->ids;
            c.finish = best->finish;
            c.score = best->score;
            best->ids = NULL;
            for (; c.n < best->n && !c.text.stopped; c.n++) {
                if (llm_text_put_token(&c.text, x->s.g->engine->model, c.ids[c.n], x->e) < 0) return -1;
            }
            if (c.text.stopped) c.finish = LLM_FINISH_STOP;
        }
        if (deliver(x, &c) < 0) return -1;
    }
    return 0;
}

static void release(struct search *x)
{
    for (int64_t g = 0; x->groups && g < x->o->groups; g++) {
        for (int64_t b = 0; b < x->size && x->groups[g].beams; b++) {
            if (x->groups[g].beams[b].kv.pool) llm_kv_release(&x->groups[g].beams[b].kv);
            free(x->groups[g].beams[b].ids);
        }
        for (int64_t i = 0; i < x->groups[g].n_ended; i++) free(x->groups[g].ended[i].ids);
        free(x->groups[g].beams);
        free(x->groups[g].ended);
    }
    free(x->groups);
    x->groups = NULL;
    x->n = 0;
}

/* 0, 1 when a signal was caught, -1. */
static int search_prompt(struct search *x)
{
    struct llm_completion c;
    x->groups = llm_calloc((size_t)x->o->groups, sizeof *x->groups, "beams", x->e);
    x->began = llm_now();
    int status = x->groups ? 0 : -1;
    for (int64_t g = 0; g < x->o->groups && status == 0; g++) {
        x->groups[g].beams = llm_calloc((size_t)x->size, sizeof *x->groups[g].beams, "beams", x->e);
        x->groups[g].ended = llm_calloc((size_t)x->size + 1, sizeof *x->groups[g].ended, "beams", x->e);
        if (!x->groups[g].beams || !x->groups[g].ended) status = -1;
    }
    if (status == 0) llm_kv_init(&x->groups[0].beams[0].kv, &x->s.g->engine->pool);
    if (status == 0 && x->o->beams > 1) {
        status = search_beams(x);
        if (status == 0) status = deliver_beams(x);
    } else if (status == 0) {
        begin_completion(x, &c, 0);
        status = search_contrast(x, &c);
        if (status == 0) {
            status = deliver(x, &c);
        } else {
            free(c.ids);
            llm_text_release(&c.text);
        }
    }
    release(x);
    return status;
}

/* A prompt that fails alone is answered by its error. 0 or -1. */
static int deliver_failed(struct search *x)
{
    if (!x->s.g->fail_alone || x->e->status != LLM_EX_FAILURE) return -1;
    for (int64_t sample = 0; sample < x->p.samples; sample++) {
        struct llm_completion c;
        begin_completion(x, &c, sample);
        c.err = *x->e;
        if (deliver(x, &c) < 0) return -1;
    }
    *x->e = (struct llm_err){0};
    return 0;
}

int llm_beams_search(const struct llm_generate *g, const struct llm_beams *o, struct llm_err *e)
{
    int64_t beams = o->beams > 1 ? o->beams : 1;
    struct search x = {.s = {.g = g, .e = e}, .o = o, .size = beams / o->groups, .e = e};
    int status = 0, got = 1;
    x.s.n_ends = llm_model_ends(g->engine->model, x.s.ends);
    while (status == 0) {
        x.p = (struct llm_prompt){0};
        got = g->next(g->arg, &x.p, e);
        if (got <= 0) break;
        if (got != 1) continue;
        status = search_prompt(&x);
        if (status < 0) status = deliver_failed(&x);
    }
    llm_sampler_release(&x.sampler);
    return status != 0 ? status : got < 0 ? -1 : 0;
}
