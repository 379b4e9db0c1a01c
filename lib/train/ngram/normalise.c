/* From adjusted counts, sorted by context, to probabilities: a context's n-grams give its discounted probabilities and its backoff, and each takes
 * its share of what the context without its oldest token says, whose n-grams stand in the same order one level up. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/signals.h"
#include "cpu/pool.h"
#include "train/ngram/ngram_internal.h"

struct totals { uint64_t contexts[LLM_NGRAM_MAX_ORDER], ngrams[LLM_NGRAM_MAX_ORDER]; }; /* [k]: contexts of k tokens; n-grams of k + 1 */

struct normalise {
    struct llm_estimate *w;
    struct llm_ngram *g;
    struct totals *before;            /* [cuts.n + 1]: what stands before each piece */
    double *unigram;                  /* [n_ranks + 1] */
    uint32_t *first, *deeper;         /* [n_ranks + 2]: of contexts of one token, by rank; UINT32_MAX: none */
};

/* One context's records in a run of them. */
struct group { uint64_t begin, end, kept; };

static struct llm_ngram_key context_of(const struct normalise *z, int k, uint64_t i)
{
    return llm_key_first(((const struct llm_ngram_record *)z->w->records[k].data)[i].key, k * z->w->bits);
}

/* Counts are read before they make way for probabilities, of which pruned n-grams have none (NaN). */
static bool is_pruned(const struct llm_ngram_record *r) { return r->n & 1; }
static double probability(const struct llm_ngram_record *r)
{
    double p;
    memcpy(&p, &r->n, sizeof p);
    return p;
}

static void set_probability(struct llm_ngram_record *r, double p)
{
    memcpy(&r->n, &p, sizeof p);
}

static struct group group_at(const struct normalise *z, int k, uint64_t begin, uint64_t end)
{
    struct group g = {begin, begin, 0};
    if (begin == end) return g;
    struct llm_ngram_key context = context_of(z, k, begin);
    while (g.end < end && llm_key_equal(context_of(z, k, g.end), context)) g.end++;
    return g;
}

static struct llm_run run_of(const struct llm_estimate *w, int k)
{
    return (struct llm_run){w->records[k].data, w->n_records[k]};
}

static void count_piece(void *arg, size_t piece, int thread)
{
    struct normalise *z = arg;
    const struct llm_estimate *w = z->w;
    (void)thread;
    for (int k = 1; k < w->order; k++) {
        struct llm_run run = run_of(w, k);
        uint64_t at = llm_run_search(&run, w->cuts.rank[piece], w->bits), end = llm_run_search(&run, w->cuts.rank[piece + 1], w->bits);
        uint64_t contexts = 0, ngrams = 0;
        while (at < end) {
            struct group g = group_at(z, k, at, end);
            for (; at < g.end; at++) g.kept += !is_pruned(&run.r[at]);
            contexts += g.kept > 0;
            ngrams += g.kept;
        }
        z->before[piece + 1].contexts[k] = contexts;
        z->before[piece + 1].ngrams[k] = ngrams;
    }
}

/* ---- one context ---- */

struct shares { double sum, backoff; const double *discount; };

static struct shares shares_of(const struct normalise *z, int k, struct group *g)
{
    const struct llm_ngram_record *r = z->w->records[k].data;
    struct shares s = {.discount = z->w->report->order[k].discount};
    uint64_t sum = 0, pruned = 0, of_count[4] = {0};
    for (uint64_t i = g->begin; i < g->end; i++) {
        uint64_t n = r[i].n >> 1;
        sum += n;
        if (is_pruned(&r[i])) pruned += n;
        else g->kept++, of_count[n < 3 ? n : 3]++;
    }
    s.sum = (double)sum;
    s.backoff = (s.discount[1] * (double)of_count[1] + s.discount[2] * (double)of_count[2] + s.discount[3] * (double)of_count[3] + (double)pruned)
                / s.sum;
    return s;
}

/* What a shorter context says of `rank`: in its records, from *at on. */
static double lower(const struct normalise *z, int k, const struct group *parent, uint64_t *at, uint32_t rank)
{
    const struct llm_ngram_record *r = z->w->records[k - 1].data;
    uint64_t step = 1, low = *at, high;
    if (k == 1) return z->unigram[rank];
    while (low + step < parent->end && llm_key_token(r[low + step].key, k - 1, z->w->bits) <= rank) low += step, step *= 2;
    high = low + step < parent->end ? low + step : parent->end;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (llm_key_token(r[middle].key, k - 1, z->w->bits) <= rank) low = middle;
        else high = middle;
    }
    *at = low;
    return probability(&r[low]);
}

static void put_token(const struct llm_ngram_array *a, uint64_t i, int32_t id)
{
    if (a->dtype == LLM_U16) ((uint16_t *)a->data)[i] = (uint16_t)id;
    else ((uint32_t *)a->data)[i] = (uint32_t)id;
}

static void put_group(const struct normalise *z, int k, struct group *g, const struct group *parent, const struct shares *s, uint64_t out)
{
    const struct llm_estimate *w = z->w;
    struct llm_ngram_record *r = w->records[k].data;
    struct llm_ngram_level *l = &z->g->level[k];
    uint64_t at = parent->begin;
    for (uint64_t i = g->begin; i < g->end; i++) {
        uint64_t n = r[i].n >> 1;
        if (is_pruned(&r[i])) {
            set_probability(&r[i], NAN);
            continue;
        }
        uint32_t rank = llm_key_token(r[i].key, k, w->bits);
        double p = ((double)n - s->discount[n < 3 ? n : 3]) / s->sum + s->backoff * lower(z, k, parent, &at, rank);
        put_token(&l->word, out, w->id_of[rank]);
        ((float *)l->log_prob.data)[out++] = (float)log(p);
        set_probability(&r[i], p);
    }
}

/* ---- a piece ---- */

/* The contexts of k - 1 tokens of a piece, walked beside those of k. */
struct parents { struct group g; uint64_t end, index; };

static void next_parent(const struct normalise *z, int k, struct parents *p, uint64_t child)
{
    const struct llm_ngram_record *r = z->w->records[k - 1].data;
    while (p->g.end < p->end) {
        p->g = group_at(z, k - 1, p->g.end, p->end);
        for (uint64_t i = p->g.begin; i < p->g.end; i++) p->g.kept += !isnan(probability(&r[i]));
        if (p->g.kept == 0) continue;
        if (k > 2) ((uint32_t *)z->g->level[k - 1].deeper.data)[p->index++] = (uint32_t)child;
        return;
    }
    p->g.begin = p->g.end;
}

static void fill_level(const struct normalise *z, size_t piece, int k)
{
    const struct llm_estimate *w = z->w;
    struct llm_ngram_level *l = &z->g->level[k];
    struct llm_run run = run_of(w, k), up = run_of(w, k - 1);
    uint64_t at = llm_run_search(&run, w->cuts.rank[piece], w->bits), end = llm_run_search(&run, w->cuts.rank[piece + 1], w->bits);
    uint64_t context = z->before[piece].contexts[k], out = z->before[piece].ngrams[k];
    struct parents p = {.index = z->before[piece].contexts[k - 1]};
    if (k > 1) {
        p.g.end = llm_run_search(&up, w->cuts.rank[piece], w->bits);
        p.end = llm_run_search(&up, w->cuts.rank[piece + 1], w->bits);
        next_parent(z, k, &p, context);
    }
    for (struct group g; at < end; at = g.end) {
        g = group_at(z, k, at, end);
        struct shares s = shares_of(z, k, &g);
        struct llm_ngram_key key = context_of(z, k, at);
        uint32_t newest = llm_key_token(key, 0, w->bits);
        while (k > 1 && g.kept > 0 && !llm_key_equal(context_of(z, k - 1, p.g.begin), llm_key_first(key, (k - 1) * w->bits))) {
            next_parent(z, k, &p, context);
        }
        put_group(z, k, &g, &p.g, &s, out);
        if (g.kept == 0) continue;
        if (k == 1) {
            z->first[newest] = (uint32_t)out;
            ((float *)l->backoff.data)[w->id_of[newest]] = (float)log(s.backoff);
        } else {
            if (k == 2 && z->deeper[newest] == UINT32_MAX) z->deeper[newest] = (uint32_t)context;
            put_token(&l->oldest, context, w->id_of[llm_key_token(key, k - 1, w->bits)]);
            ((float *)l->backoff.data)[context] = (float)log(s.backoff);
            ((uint32_t *)l->first.data)[context++] = (uint32_t)out;
        }
        out += g.kept;
    }
    while (k > 1 && p.g.begin < p.g.end) next_parent(z, k, &p, context);
}

static void fill_piece(void *arg, size_t piece, int thread)
{
    (void)thread;
    for (int k = 1; k < ((struct normalise *)arg)->w->order && !llm_signal_caught(); k++) fill_level(arg, piece, k);
}

/* ---- the whole ---- */

static int make_array(struct llm_ngram_array *a, enum llm_dtype dtype, uint64_t n, struct llm_estimate *w, struct llm_err *e)
{
    struct llm_store s;
    if (n > UINT32_MAX) return llm_fail(e, EX_UNAVAILABLE, "n-grams of one order: expected at most 4294967295, found %llu", (unsigned long long)n);
    if (llm_store_init(&s, &w->budget, llm_dtype_bytes(dtype, n), e) < 0) return -1;
    *a = (struct llm_ngram_array){s.data, n, dtype, s.data ? LLM_NGRAM_MAPPED : LLM_NGRAM_BORROWED};
    return 0;
}

static int make_arrays(const struct normalise *z, struct llm_err *e)
{
    struct llm_estimate *w = z->w;
    uint64_t vocab = (uint64_t)w->source->vocab_size;
    enum llm_dtype token = vocab < 65536 ? LLM_U16 : LLM_U32;
    if (make_array(&z->g->unigram, LLM_F32, vocab + 1, w, e) < 0) return -1;
    for (int k = 1; k < w->order; k++) {
        struct llm_ngram_level *l = &z->g->level[k];
        uint64_t contexts = k == 1 ? vocab + 1 : z->before[w->cuts.n].contexts[k], ngrams = z->before[w->cuts.n].ngrams[k];
        w->report->order[k].kept = ngrams;
        if ((k > 1 && make_array(&l->oldest, token, contexts, w, e) < 0) || make_array(&l->backoff, LLM_F32, contexts, w, e) < 0
            || (k < w->order - 1 && make_array(&l->deeper, LLM_U32, contexts + 1, w, e) < 0)
            || make_array(&l->first, LLM_U32, contexts + 1, w, e) < 0 || make_array(&l->word, token, ngrams, w, e) < 0
            || make_array(&l->log_prob, LLM_F32, ngrams, w, e) < 0) return -1;
    }
    return 0;
}

/* The uniform distribution is over all ids that can come, and one for what no id stands for. A token that begins texts and is nothing else cannot. */
static void unigrams(const struct normalise *z)
{
    const struct llm_estimate *w = z->w;
    int64_t vocab = w->source->vocab_size;
    const double *d = w->report->order[0].discount;
    float *out = (float *)z->g->unigram.data;
    bool never = w->begin < vocab && w->begin == w->source->bos && w->begin != w->source->eos && w->unigram[w->begin_rank] == 0;
    uint64_t sum = 0;
    double backoff = 0;
    for (uint32_t r = 1; r <= w->n_ranks; r++) {
        uint64_t n = w->unigram[r];
        sum += n;
        backoff += d[n < 3 ? n : 3];
    }
    double share = (sum ? backoff / (double)sum : 1) / (double)(vocab + 1 - never);
    for (int64_t id = 0; id <= vocab; id++) {
        uint32_t rank = w->rank_of[id];
        uint64_t n = rank ? w->unigram[rank] : 0;
        double p = (n ? ((double)n - d[n < 3 ? n : 3]) / (double)sum : 0) + share;
        if (rank) z->unigram[rank] = p;
        out[id] = never && id == w->begin ? -INFINITY : (float)log(p);
    }
    w->report->order[0].kept = w->report->order[0].types;
}

/* Offsets of contexts of one token, for all ids, and the ends of all. */
static void offsets(const struct normalise *z)
{
    const struct llm_estimate *w = z->w;
    const struct totals *all = &z->before[w->cuts.n];
    struct llm_ngram_level *l = z->g->level;
    uint32_t first = (uint32_t)all->ngrams[1], deeper = (uint32_t)all->contexts[2];
    for (int k = 1; k < w->order; k++) {
        ((uint32_t *)l[k].first.data)[l[k].first.n - 1] = (uint32_t)all->ngrams[k];
        if (k < w->order - 1) ((uint32_t *)l[k].deeper.data)[l[k].deeper.n - 1] = (uint32_t)all->contexts[k + 1];
    }
    for (int64_t id = w->source->vocab_size; id >= 0 && w->order > 1; id--) {
        uint32_t rank = w->rank_of[id];
        if (rank && z->first[rank] != UINT32_MAX) first = z->first[rank];
        if (rank && z->deeper[rank] != UINT32_MAX) deeper = z->deeper[rank];
        ((uint32_t *)l[1].first.data)[id] = first;
        if (w->order > 2) ((uint32_t *)l[1].deeper.data)[id] = deeper;
    }
}

int llm_ngram_normalise(struct llm_estimate *w, struct llm_ngram *g, struct llm_err *e)
{
    struct normalise z = {.w = w, .g = g};
    size_t ranks = (size_t)w->n_ranks + 2;
    z.before = llm_calloc(w->cuts.n + 1, sizeof *z.before, "n-grams", e);
    z.unigram = llm_calloc(ranks, sizeof *z.unigram, "n-grams", e);
    z.first = llm_alloc(ranks, sizeof *z.first, "n-grams", e);
    z.deeper = llm_alloc(ranks, sizeof *z.deeper, "n-grams", e);
    int got = z.before && z.unigram && z.first && z.deeper ? 0 : -1;
    if (got == 0) {
        memset(z.first, 0xff, ranks * sizeof *z.first);
        memset(z.deeper, 0xff, ranks * sizeof *z.deeper);
        llm_parallel(w->cuts.n, count_piece, &z);
        for (size_t i = 0; i < w->cuts.n; i++) {
            for (int k = 1; k < w->order; k++) {
                z.before[i + 1].contexts[k] += z.before[i].contexts[k];
                z.before[i + 1].ngrams[k] += z.before[i].ngrams[k];
            }
        }
        got = make_arrays(&z, e);
    }
    if (got == 0) {
        unigrams(&z);
        llm_parallel(w->cuts.n, fill_piece, &z);
        offsets(&z);
        if (llm_signal_caught()) got = 1;
    }
    free(z.before);
    free(z.unigram);
    free(z.first);
    free(z.deeper);
    return got;
}
