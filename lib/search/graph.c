#include "search/graph.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "cpu/kernels.h"
#include "cpu/matmul.h"
#include "cpu/pool.h"

#define NONE UINT32_MAX
#define SEEN UINT32_C(0x80000000) /* of a candidate: its links were followed */
enum { FEWEST = 64, BATCH = 256 /* a batch is one of as many parts of the rows before it */ };

struct candidate { float score; uint32_t slot; };

static bool before(struct candidate a, struct candidate b)
{
    return a.score != b.score ? a.score > b.score : (a.slot & ~SEEN) < (b.slot & ~SEEN);
}

static int by_score(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return before(*x, *y) ? -1 : before(*y, *x);
}

/* How near row `row` is to the vector v: more is nearer. */
static float nearness(const struct llm_index *x, const float *v, int64_t row)
{
    float dot = llm_k.attention.math[LLM_COMPUTE_F32].dot(v, x->vectors + row * x->dims, x->dims);
    return x->metric == LLM_METRIC_L2 ? 2 * dot - x->lengths[row] : dot;
}

static int64_t row_of(const struct llm_graph_level *l, uint32_t slot)
{
    return l->rows ? l->rows[slot] : slot;
}

int64_t llm_graph_full(int64_t n)
{
    int64_t s = 0;
    for (int64_t next = 1; next <= n; next = s + (s / BATCH > 1 ? s / BATCH : 1)) s = next;
    return s;
}

/* The level of a row: geometric with rate 1 / m, by the hash of its id. */
static int level_of(const struct llm_index *x, int64_t row)
{
    uint64_t hash = llm_xxh64(x->ids.bytes + x->ids.at[row], x->ids.at[row + 1] - x->ids.at[row], x->seed);
    int level = 0;
    for (uint64_t part = UINT64_MAX / (uint64_t)x->graph.m; level < LLM_GRAPH_LEVELS - 1 && hash < part; part /= (uint64_t)x->graph.m) level++;
    return level;
}

/* ---- walking ---- */

/* Which slots a walk has met: those whose mark is the walk's number. */
struct met { uint32_t *marks; uint32_t walk; };

static void begin_walk(struct met *v, int64_t n)
{
    if (++v->walk == 0) {
        memset(v->marks, 0, (size_t)n * sizeof *v->marks);
        v->walk = 1;
    }
}

/* Puts a candidate into its place among the best *n ≤ ef. Returns the place; ef: it is none of them. */
static int64_t put(struct candidate *best, int64_t *n, int64_t ef, struct candidate c)
{
    int64_t low = 0, high = *n;
    if (*n == ef && !before(c, best[ef - 1])) return ef;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (before(best[middle], c)) low = middle + 1;
        else high = middle;
    }
    if (*n < ef) ++*n;
    memmove(best + low + 1, best + low, (size_t)(*n - 1 - low) * sizeof *best);
    best[low] = c;
    return low;
}

/* The slots of the level nearest to v, from `start` on; best has room for ef. Returns how many. */
static int64_t walk(const struct llm_index *x, const struct llm_graph_level *l, const float *v, uint32_t start, int64_t ef, struct met *met,
                    struct candidate *best)
{
    uint32_t fresh[2 * LLM_MAX_NEIGHBOURS];
    int64_t n = 0, at = 0;
    begin_walk(met, x->n);
    met->marks[start] = met->walk;
    put(best, &n, ef, (struct candidate){nearness(x, v, row_of(l, start)), start});
    while (at < n) {
        const uint32_t *links = l->links + (int64_t)(best[at].slot & ~SEEN) * l->width;
        int n_fresh = 0;
        best[at].slot |= SEEN;
        for (int64_t i = 0; i < l->width && links[i] != NONE; i++) {
            if (met->marks[links[i]] == met->walk) continue;
            met->marks[links[i]] = met->walk;
            const char *p = (const char *)(x->vectors + row_of(l, links[i]) * x->dims);
            for (int64_t k = 0; k < x->dims * 4 && k < 512; k += 64) __builtin_prefetch(p + k);
            fresh[n_fresh++] = links[i];
        }
        int64_t first = n;
        for (int i = 0; i < n_fresh; i++) {
            int64_t place = put(best, &n, ef, (struct candidate){nearness(x, v, row_of(l, fresh[i])), fresh[i]});
            if (place < first) first = place;
        }
        if (first <= at) at = first;
        while (at < n && best[at].slot & SEEN) at++;
    }
    for (int64_t i = 0; i < n; i++) best[i].slot &= ~SEEN;
    return n;
}

/* From the top down to the level above `level`; the slot there where a walk of `level` begins. */
static uint32_t descend(const struct llm_index *x, const float *v, int level, struct met *met)
{
    const struct llm_graph *g = &x->graph;
    int top = LLM_GRAPH_LEVELS - 1;
    uint32_t slot = 0;
    struct candidate best;
    while (top > level && g->level[top].n == 0) top--;
    for (; top > level; top--) {
        (void)walk(x, &g->level[top], v, slot, 1, met, &best);
        slot = g->level[top].down[best.slot];
    }
    return slot;
}

/* ---- making ---- */

struct link { uint32_t to, from; };
struct batch {
    struct llm_index *x;
    struct llm_graph_level *l;
    int depth;
    int64_t n, room;                /* rows of the batch on this level; candidates of each */
    int64_t *rows;
    struct candidate *candidates;   /* [n, room], sorted */
    int64_t *found;                 /* [n] */
    struct link *pairs;             /* new links to a slot from the slots of the batch, in order */
    int64_t n_pairs, *groups, n_groups; /* where the pairs of each target begin */
    uint16_t *children;             /* of each row; level 0 */
    struct met *met;                /* of each thread */
};

static int by_target(const void *a, const void *b)
{
    const struct link *x = a, *y = b;
    if (x->to != y->to) return x->to < y->to ? -1 : 1;
    return (x->from > y->from) - (x->from < y->from);
}

/* The candidates of one row of the batch: among the rows before the batch by a walk, in the batch by comparing all. */
static void find_candidates(void *arg, size_t i, int thread)
{
    struct batch *b = arg;
    struct llm_index *x = b->x;
    const float *v = x->vectors + b->rows[i] * x->dims;
    struct candidate *c = b->candidates + (int64_t)i * b->room;
    struct met *met = &b->met[thread];
    int64_t n = 0;
    if (b->l->n > 0) n = walk(x, b->l, v, descend(x, v, b->depth, met), b->room, met, c);
    for (int64_t j = 0; j < b->n; j++) {
        if (j != (int64_t)i) (void)put(c, &n, b->room, (struct candidate){nearness(x, v, b->rows[j]), (uint32_t)(b->l->n + j)});
    }
    b->found[i] = n;
}

static int64_t slot_row(const struct batch *b, uint32_t slot)
{
    return slot < b->l->n ? row_of(b->l, slot) : b->rows[slot - b->l->n];
}

/* The heuristic of HNSW: from near to far, a candidate is kept if it is nearer to the row than to any that is kept. kept[*n..] grows up to max. */
static void select_diverse(const struct batch *b, const struct candidate *c, int64_t n_c, struct candidate *kept, int64_t *n, int64_t max)
{
    for (int64_t i = 0; i < n_c && *n < max; i++) {
        const float *v = b->x->vectors + slot_row(b, c[i].slot) * b->x->dims;
        /* Nearness to the row and to kept ones compare as distances: for the dot product and the cosine they are of one scale. */
        float own = b->x->metric == LLM_METRIC_L2 ? c[i].score - b->x->lengths[slot_row(b, c[i].slot)] : c[i].score;
        bool good = true;
        for (int64_t k = 0; k < *n && good; k++) {
            int64_t row = slot_row(b, kept[k].slot);
            if (kept[k].slot == c[i].slot) good = false;
            else if (b->x->metric == LLM_METRIC_L2) {
                good = nearness(b->x, v, row) - 2 * b->x->lengths[slot_row(b, c[i].slot)] < own - b->x->lengths[slot_row(b, c[i].slot)];
            } else {
                good = nearness(b->x, v, row) < own;
            }
        }
        if (good) kept[(*n)++] = c[i];
    }
}

/* An earlier row with room for one more child: the nearest candidate of that kind, else the latest row. */
static uint32_t parent_of(const struct batch *b, int64_t i)
{
    const struct candidate *c = b->candidates + i * b->room;
    uint32_t own = (uint32_t)(b->l->n + i), slot;
    for (int64_t k = 0; k < b->found[i]; k++) {
        if (c[k].slot < own && b->children[c[k].slot] < b->x->graph.m) return c[k].slot;
    }
    for (slot = own - 1; b->children[slot] >= b->x->graph.m; slot--) {} /* there are fewer children than rows */
    return slot;
}

/* Chooses the links of a row of the batch. */
static void link_own(void *arg, size_t i, int thread)
{
    struct batch *b = arg;
    uint32_t own = (uint32_t)(b->l->n + (int64_t)i), *links = b->l->links + (int64_t)own * b->l->width;
    struct candidate kept[2 * LLM_MAX_NEIGHBOURS];
    int64_t n = 0;
    (void)thread;
    if (b->depth == 0 && own > 0) {
        uint32_t parent = b->x->graph.parents[own];
        const float *v = b->x->vectors + b->rows[i] * b->x->dims;
        kept[n++] = (struct candidate){nearness(b->x, v, slot_row(b, parent)), parent};
    }
    select_diverse(b, b->candidates + (int64_t)i * b->room, b->found[i], kept, &n, b->x->graph.m);
    for (int64_t k = 0; k < b->l->width; k++) links[k] = k < n ? kept[k].slot : NONE;
}

/* Adds the links back to one target; beyond its width it chooses anew among old and new ones, keeping its parent and its children. */
static void link_back(void *arg, size_t group, int thread)
{
    struct batch *b = arg;
    const struct link *p = b->pairs + b->groups[group];
    int64_t n_new = b->groups[group + 1] - b->groups[group], width = b->l->width, n = 0, n_kept = 0, n_free = 0;
    uint32_t to = p->to, *links = b->l->links + (int64_t)to * width;
    const float *v = b->x->vectors + slot_row(b, to) * b->x->dims;
    struct candidate *all = llm_scratch(thread, (size_t)(n_new + width) * sizeof *all), kept[2 * LLM_MAX_NEIGHBOURS];
    if (!all) return; /* llm_graph_extend asked for it before */
    while (n < width && links[n] != NONE) {
        all[n] = (struct candidate){0, links[n]};
        n++;
    }
    int64_t old = n;
    for (int64_t i = 0; i < n_new; i++) {
        bool there = false;
        for (int64_t k = 0; k < old && !there; k++) there = links[k] == p[i].from;
        if (!there) all[n++] = (struct candidate){0, p[i].from};
    }
    if (n > width) {
        for (int64_t i = 0; i < n; i++) {
            all[i].score = nearness(b->x, v, slot_row(b, all[i].slot));
            bool tree = b->depth == 0 && (b->x->graph.parents[all[i].slot] == to || (to > 0 && b->x->graph.parents[to] == all[i].slot));
            if (tree) kept[n_kept++] = all[i];
            else all[n_free++] = all[i];
        }
        qsort(all, (size_t)n_free, sizeof *all, by_score);
        select_diverse(b, all, n_free, kept, &n_kept, width);
        memcpy(all, kept, (size_t)n_kept * sizeof *kept);
        n = n_kept;
    }
    for (int64_t k = 0; k < width; k++) links[k] = k < n ? all[k].slot : NONE;
}

static void collect_pairs(struct batch *b)
{
    b->n_pairs = b->n_groups = 0;
    for (int64_t i = 0; i < b->n; i++) {
        uint32_t own = (uint32_t)(b->l->n + i);
        const uint32_t *links = b->l->links + (int64_t)own * b->l->width;
        for (int64_t k = 0; k < b->l->width && links[k] != NONE; k++) b->pairs[b->n_pairs++] = (struct link){links[k], own};
    }
    if (b->n_pairs > 0) qsort(b->pairs, (size_t)b->n_pairs, sizeof *b->pairs, by_target);
    for (int64_t i = 0; i < b->n_pairs; i++) {
        if (i == 0 || b->pairs[i].to != b->pairs[i - 1].to) b->groups[b->n_groups++] = i;
    }
    b->groups[b->n_groups] = b->n_pairs;
}

/* One level of a batch. Lower levels come first, so that a slot's place on the level below is known; walks use levels as they were before. */
static void insert(struct batch *b, int64_t from, int64_t to, const uint8_t *levels, int depth)
{
    b->n = 0;
    b->depth = depth;
    b->l = &b->x->graph.level[depth];
    for (int64_t row = from; row < to; row++) {
        if (levels[row] >= depth) b->rows[b->n++] = row;
    }
    if (b->n == 0) return;
    llm_parallel((size_t)b->n, find_candidates, b);
    for (int64_t i = 0; i < b->n; i++) {
        uint32_t own = (uint32_t)(b->l->n + i);
        if (depth == 0) {
            b->x->graph.parents[own] = own ? parent_of(b, i) : 0;
            if (own) b->children[b->x->graph.parents[own]]++;
        } else {
            b->l->rows[own] = (uint32_t)b->rows[i];
        }
    }
    llm_parallel((size_t)b->n, link_own, b);
    collect_pairs(b);
    llm_parallel((size_t)b->n_groups, link_back, b);
}

/* Slots of the rows of a batch on each level, after all levels were linked. */
static void append(struct llm_index *x, int64_t from, int64_t to, const uint8_t *levels)
{
    for (int64_t row = from; row < to; row++) {
        uint32_t below = 0;
        for (int l = 0; l <= levels[row]; l++) {
            struct llm_graph_level *level = &x->graph.level[l];
            if (l > 0) level->down[level->n] = below;
            below = (uint32_t)level->n++;
        }
    }
    x->graph.n = to;
}

static void *keep(struct llm_index *x, const void *old, size_t n_old, size_t n, struct llm_err *e)
{
    uint32_t *p = llm_index_alloc(x, n + 1, sizeof *p, e);
    if (p && n_old > 0) memcpy(p, old, n_old * sizeof *p);
    return p;
}

/* Room for all levels of `full` rows; what is there stays. */
static int make_room(struct llm_index *x, int64_t full, const uint8_t *levels, struct llm_err *e)
{
    struct llm_graph *g = &x->graph;
    for (int l = 0; l < LLM_GRAPH_LEVELS; l++) {
        struct llm_graph_level *v = &g->level[l];
        size_t n = 0, old = (size_t)v->n;
        for (int64_t row = 0; row < full; row++) n += levels[row] >= l;
        v->width = l == 0 ? 2 * g->m : g->m;
        if (!(v->links = keep(x, v->links, old * (size_t)v->width, n * (size_t)v->width, e))) return -1;
        if (l == 0 && !(g->parents = keep(x, g->parents, old, n, e))) return -1;
        if (l > 0 && (!(v->rows = keep(x, v->rows, old, n, e)) || !(v->down = keep(x, v->down, old, n, e)))) return -1;
    }
    return 0;
}

static void release_met(struct met *met)
{
    for (int t = 0; met && t < llm_pool_threads(); t++) free(met[t].marks);
    free(met);
}

static struct met *make_met(int64_t n, struct llm_err *e)
{
    struct met *met = llm_calloc((size_t)llm_pool_threads(), sizeof *met, "a search", e);
    for (int t = 0; met && t < llm_pool_threads(); t++) {
        if ((met[t].marks = llm_calloc((size_t)n + 1, sizeof *met[t].marks, "a search", e))) continue;
        release_met(met);
        return NULL;
    }
    return met;
}

int llm_graph_extend(struct llm_index *x, struct llm_err *e)
{
    struct llm_graph *g = &x->graph;
    int64_t full = llm_graph_full(x->n), largest = full / BATCH + 2;
    struct batch b = {.x = x, .room = g->ef_build};
    uint8_t *levels = llm_alloc((size_t)full + 1, 1, "levels", e);
    for (int64_t row = 0; levels && row < full; row++) levels[row] = (uint8_t)level_of(x, row);
    int status = levels ? make_room(x, full, levels, e) : -1;
    b.rows = llm_alloc((size_t)largest, sizeof *b.rows, "a batch", e);
    b.candidates = b.rows ? llm_alloc((size_t)largest * (size_t)b.room, sizeof *b.candidates, "a batch", e) : NULL;
    b.found = b.candidates ? llm_alloc((size_t)largest, sizeof *b.found, "a batch", e) : NULL;
    b.pairs = b.found ? llm_alloc((size_t)largest * (size_t)g->m, sizeof *b.pairs, "a batch", e) : NULL;
    b.groups = b.pairs ? llm_alloc((size_t)largest * (size_t)g->m + 1, sizeof *b.groups, "a batch", e) : NULL;
    b.children = b.groups ? llm_calloc((size_t)full + 1, sizeof *b.children, "a batch", e) : NULL;
    b.met = b.children ? make_met(x->n, e) : NULL;
    if (!b.met) status = -1;
    for (int t = 0; t < llm_pool_threads() && status == 0; t++) {
        if (!llm_scratch(t, (size_t)(largest + 2 * g->m) * sizeof(struct candidate))) status = llm_no_memory(e, "a batch");
    }
    for (int64_t row = 1; row < g->n && status == 0; row++) b.children[g->parents[row]]++;
    while (status == 0 && g->n < full) {
        int64_t from = g->n, to = from + (from / BATCH > 1 ? from / BATCH : 1);
        for (int depth = 0; depth < LLM_GRAPH_LEVELS; depth++) insert(&b, from, to, levels, depth);
        append(x, from, to, levels);
    }
    free(levels);
    free(b.rows);
    free(b.candidates);
    free(b.found);
    free(b.pairs);
    free(b.groups);
    free(b.children);
    release_met(b.met);
    return status;
}

/* ---- searching ---- */

struct run {
    const struct llm_index *x;
    const struct llm_lookup *s;
    const float *queries;       /* [m, dims] */
    struct llm_hit *hits;
    int64_t *n_hits, ef;
    struct met *met;
    float *prepared;            /* [m, dims] */
    double *square;             /* [m] */
    struct candidate *best;     /* of each thread [ef] */
};

static void search_one(void *arg, size_t q, int thread)
{
    struct run *r = arg;
    const struct llm_index *x = r->x;
    const float *v = r->prepared + (int64_t)q * x->dims;
    struct candidate *best = r->best + (int64_t)thread * r->ef;
    struct llm_best out = {.hits = r->hits + (int64_t)q * r->s->k, .k = r->s->k};
    bool l2 = x->metric == LLM_METRIC_L2;
    int64_t n = walk(x, &x->graph.level[0], v, descend(x, v, 0, &r->met[thread]), r->ef, &r->met[thread], best);
    for (int64_t i = 0; i < n; i++) {
        if (!x->deleted[best[i].slot]) llm_best_offer(&out, (double)best[i].score - (l2 ? r->square[q] : 0), best[i].slot);
    }
    for (int64_t row = x->graph.n; row < x->n; row++) {
        if (!x->deleted[row]) llm_best_offer(&out, (double)nearness(x, v, row) - (l2 ? r->square[q] : 0), row);
    }
    r->n_hits[q] = out.n;
}

static int prepare(struct run *r, int64_t m, struct llm_err *e)
{
    int64_t dims = r->x->dims;
    for (int64_t q = 0; q < m; q++) {
        double sum = 0;
        for (int64_t k = 0; k < dims; k++) sum += (double)r->queries[q * dims + k] * (double)r->queries[q * dims + k];
        if (!isfinite((float)sum)) return llm_fail(e, EX_DATAERR, "expected a query of finite numbers");
        double scale = r->x->metric == LLM_METRIC_COSINE && sum > 0 ? 1 / sqrt(sum) : 1;
        for (int64_t k = 0; k < dims; k++) r->prepared[q * dims + k] = (float)((double)r->queries[q * dims + k] * scale);
        r->square[q] = sum;
    }
    return 0;
}

int llm_graph_search(const struct llm_index *x, const float *queries, int64_t m, const struct llm_lookup *s, struct llm_hit *hits, int64_t *n_hits,
                     struct llm_err *e)
{
    struct run r = {.x = x, .s = s, .queries = queries, .hits = hits, .n_hits = n_hits};
    r.ef = s->ef > 0 ? s->ef : 2 * s->k;
    if (s->ef == 0 && r.ef < FEWEST) r.ef = FEWEST;
    if (r.ef < s->k) r.ef = s->k;
    if (x->n_deleted > 0) r.ef += r.ef / 2;
    r.prepared = llm_alloc((size_t)m * (size_t)x->dims, sizeof *r.prepared, "queries", e);
    r.square = r.prepared ? llm_alloc((size_t)m, sizeof *r.square, "queries", e) : NULL;
    r.best = r.square ? llm_alloc((size_t)llm_pool_threads() * (size_t)r.ef, sizeof *r.best, "a search", e) : NULL;
    r.met = r.best ? make_met(x->n, e) : NULL;
    int status = r.met ? prepare(&r, m, e) : -1;
    if (status == 0) llm_parallel((size_t)m, search_one, &r);
    int64_t live = x->n - x->n_deleted;
    for (int64_t q = 0; q < m && status == 0; q++) {
        if (n_hits[q] < s->k && n_hits[q] < live) status = llm_search_flat(x, queries + q * x->dims, 1, s, hits + q * s->k, n_hits + q, e);
    }
    free(r.prepared);
    free(r.square);
    free(r.best);
    release_met(r.met);
    return status;
}
