#include "search/graph.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "base/pages.h"
#include "cpu/kernels.h"
#include "cpu/matmul.h"
#include "cpu/pool.h"

#define NONE UINT32_MAX
#define SEEN UINT32_C(0x80000000) /* of a candidate: its links were followed */
enum { FEWEST = 64, BATCH = 256 /* a batch is one of as many parts of the rows before it */ };
enum { AHEAD = 4 /* rows that a walk prefetches before it compares them */, HELD = 512 /* rows that are rounded together */ };

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

/* How near n rows are to the vector v: more is nearer. Rows take part rounded to BF16, whether the rounded ones are held or not. */
static void nearness(const struct llm_index *x, const float *v, const uint32_t *rows, int64_t n, float *out)
{
    if (x->graph.halves) llm_k.search.bf16(out, v, x->graph.halves, rows, n, x->dims);
    else llm_k.search.rounded(out, v, x->vectors, rows, n, x->dims);
    for (int64_t i = 0; x->metric == LLM_METRIC_L2 && i < n; i++) out[i] = 2 * out[i] - x->lengths[rows[i]];
}

static uint32_t row_of(const struct llm_graph_level *l, uint32_t slot)
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

/* A thread's memory: which slots its walk has met, those whose mark is the walk's number; while a graph is made, a vector, and rows that are compared
 * with it. */
struct walker {
    uint8_t *marks, walk;
    float *vector;   /* [dims] */
    uint32_t *rows;  /* [a batch] */
    float *near;     /* [a batch] */
};

static void begin_walk(struct walker *w, int64_t n)
{
    if (++w->walk == 0) {
        memset(w->marks, 0, (size_t)n);
        w->walk = 1;
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

static void prefetch(const struct llm_index *x, uint32_t row)
{
    const size_t bytes = (size_t)x->dims * (x->graph.halves ? 2 : 4);
    const char *p = (x->graph.halves ? (const char *)x->graph.halves : (const char *)x->vectors) + row * bytes;
    for (size_t k = 0; k < bytes; k += 64) __builtin_prefetch(p + k);
}

/* The slots of the level nearest to v, from `start` on; best has room for ef. Returns how many. */
static int64_t walk(const struct llm_index *x, const struct llm_graph_level *l, const float *v, uint32_t start, int64_t ef, struct walker *w,
                    struct candidate *best)
{
    uint32_t fresh[2 * LLM_MAX_NEIGHBOURS], rows[2 * LLM_MAX_NEIGHBOURS];
    float near[2 * LLM_MAX_NEIGHBOURS];
    int64_t n = 0, at = 0;
    begin_walk(w, x->n);
    w->marks[start] = w->walk;
    rows[0] = row_of(l, start);
    nearness(x, v, rows, 1, near);
    put(best, &n, ef, (struct candidate){near[0], start});
    while (at < n) {
        const uint32_t *links = l->links + (int64_t)(best[at].slot & ~SEEN) * l->width;
        int64_t n_fresh = 0;
        best[at].slot |= SEEN;
        for (int64_t i = 0; i < l->width && links[i] != NONE; i++) {
            if (w->marks[links[i]] == w->walk) continue;
            w->marks[links[i]] = w->walk;
            rows[n_fresh] = row_of(l, links[i]);
            if (n_fresh < AHEAD) prefetch(x, rows[n_fresh]);
            fresh[n_fresh++] = links[i];
        }
        nearness(x, v, rows, n_fresh, near);
        int64_t first = n;
        for (int64_t i = 0; i < n_fresh; i++) {
            int64_t place = put(best, &n, ef, (struct candidate){near[i], fresh[i]});
            if (place < first) first = place;
        }
        if (first <= at) at = first;
        while (at < n && best[at].slot & SEEN) at++;
    }
    for (int64_t i = 0; i < n; i++) best[i].slot &= ~SEEN;
    return n;
}

/* From the top down to the level above `level`; the slot there where a walk of `level` begins. */
static uint32_t descend(const struct llm_index *x, const float *v, int level, struct walker *w)
{
    const struct llm_graph *g = &x->graph;
    int top = LLM_GRAPH_LEVELS - 1;
    uint32_t slot = 0;
    struct candidate best;
    while (top > level && g->level[top].n == 0) top--;
    for (; top > level; top--) {
        (void)walk(x, &g->level[top], v, slot, 1, w, &best);
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
    uint32_t *rows;
    struct candidate *candidates;   /* [n, room], sorted */
    int64_t *found;                 /* [n] */
    struct link *pairs;             /* new links to a slot from the slots of the batch, in order */
    int64_t n_pairs, *groups, n_groups; /* where the pairs of each target begin */
    uint16_t *children;             /* of each row; level 0 */
    struct walker *walkers;         /* of each thread */
};

static int by_target(const void *a, const void *b)
{
    const struct link *x = a, *y = b;
    if (x->to != y->to) return x->to < y->to ? -1 : 1;
    return (x->from > y->from) - (x->from < y->from);
}

/* The vector of a row, rounded as in walks; valid until the thread asks for another. */
static const float *rounded(const struct batch *b, uint32_t row, int thread)
{
    llm_k.elementwise.from_bf16(b->walkers[thread].vector, b->x->graph.halves + row * b->x->dims, (size_t)b->x->dims);
    return b->walkers[thread].vector;
}

/* The candidates of one row of the batch: among the rows before the batch by a walk, in the batch by comparing all. */
static void find_candidates(void *arg, size_t i, int thread)
{
    struct batch *b = arg;
    struct llm_index *x = b->x;
    struct walker *w = &b->walkers[thread];
    const float *v = rounded(b, b->rows[i], thread);
    struct candidate *c = b->candidates + (int64_t)i * b->room;
    int64_t n = 0;
    if (b->l->n > 0) n = walk(x, b->l, v, descend(x, v, b->depth, w), b->room, w, c);
    nearness(x, v, b->rows, b->n, w->near);
    for (int64_t j = 0; j < b->n; j++) {
        if (j != (int64_t)i) (void)put(c, &n, b->room, (struct candidate){w->near[j], (uint32_t)(b->l->n + j)});
    }
    b->found[i] = n;
}

static uint32_t slot_row(const struct batch *b, uint32_t slot)
{
    return slot < b->l->n ? row_of(b->l, slot) : b->rows[slot - b->l->n];
}

/* The heuristic of HNSW: from near to far, a candidate is kept if it is nearer to `row` than to any that is kept. kept[*n..] grows up to max. */
static void select_diverse(const struct batch *b, uint32_t row, const struct candidate *c, int64_t n_c, struct candidate *kept, int64_t *n,
                           int64_t max, int thread)
{
    enum { TOGETHER = 4 };
    uint32_t rows[2 * LLM_MAX_NEIGHBOURS];
    float near[TOGETHER];
    for (int64_t k = 0; k < *n; k++) rows[k] = slot_row(b, kept[k].slot);
    for (int64_t i = 0; i < n_c && *n < max; i++) {
        const uint32_t own = slot_row(b, c[i].slot);
        const float *v = rounded(b, own, thread);
        /* Nearness compares as distances do if it is to one vector: of squared distances the length of `row` gives way to the candidate's. */
        float limit = b->x->metric == LLM_METRIC_L2 ? c[i].score - b->x->lengths[row] + b->x->lengths[own] : c[i].score;
        bool good = true;
        for (int64_t k = 0; k < *n && good; k += TOGETHER) {
            int64_t some = *n - k < TOGETHER ? *n - k : TOGETHER;
            nearness(b->x, v, rows + k, some, near);
            for (int64_t j = 0; j < some && good; j++) good = kept[k + j].slot != c[i].slot && near[j] < limit;
        }
        if (!good) continue;
        rows[*n] = own;
        kept[(*n)++] = c[i];
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
    if (b->depth == 0 && own > 0) kept[n++].slot = b->x->graph.parents[own];
    select_diverse(b, b->rows[i], b->candidates + (int64_t)i * b->room, b->found[i], kept, &n, b->x->graph.m, thread);
    for (int64_t k = 0; k < b->l->width; k++) links[k] = k < n ? kept[k].slot : NONE;
}

/* Adds the links back to one target; beyond its width it chooses anew among old and new ones, keeping its parent and its children. */
static void link_back(void *arg, size_t group, int thread)
{
    struct batch *b = arg;
    const struct link *p = b->pairs + b->groups[group];
    int64_t n_new = b->groups[group + 1] - b->groups[group], width = b->l->width, n = 0, n_kept = 0, n_free = 0;
    uint32_t to = p->to, *links = b->l->links + (int64_t)to * width;
    struct candidate *all = llm_scratch(thread, (size_t)(n_new + width) * sizeof *all), kept[2 * LLM_MAX_NEIGHBOURS];
    struct walker *w = &b->walkers[thread];
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
        for (int64_t i = 0; i < n; i++) w->rows[i] = slot_row(b, all[i].slot);
        nearness(b->x, rounded(b, slot_row(b, to), thread), w->rows, n, w->near);
        for (int64_t i = 0; i < n; i++) {
            all[i].score = w->near[i];
            bool tree = b->depth == 0 && (b->x->graph.parents[all[i].slot] == to || (to > 0 && b->x->graph.parents[to] == all[i].slot));
            if (tree) kept[n_kept++] = all[i];
            else all[n_free++] = all[i];
        }
        qsort(all, (size_t)n_free, sizeof *all, by_score);
        select_diverse(b, slot_row(b, to), all, n_free, kept, &n_kept, width, thread);
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
        if (levels[row] >= depth) b->rows[b->n++] = (uint32_t)row;
    }
    if (b->n == 0) return;
    llm_parallel((size_t)b->n, find_candidates, b);
    for (int64_t i = 0; i < b->n; i++) {
        uint32_t own = (uint32_t)(b->l->n + i);
        if (depth == 0) {
            b->x->graph.parents[own] = own ? parent_of(b, i) : 0;
            if (own) b->children[b->x->graph.parents[own]]++;
        } else {
            b->l->rows[own] = b->rows[i];
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

static void release_walkers(struct walker *w)
{
    for (int t = 0; w && t < llm_pool_threads(); t++) {
        free(w[t].marks);
        free(w[t].vector);
        free(w[t].rows);
        free(w[t].near);
    }
    free(w);
}

/* One for each thread, over n rows; with `batch` > 0 for making a graph, in which so many rows are compared together. */
static struct walker *make_walkers(const struct llm_index *x, int64_t batch, struct llm_err *e)
{
    struct walker *w = llm_calloc((size_t)llm_pool_threads(), sizeof *w, "a search", e);
    bool good = w;
    for (int t = 0; t < llm_pool_threads() && good; t++) {
        good = (w[t].marks = llm_calloc((size_t)x->n + 1, 1, "a search", e))
               && (batch == 0 || ((w[t].vector = llm_alloc((size_t)x->dims, sizeof *w->vector, "a search", e))
                                  && (w[t].rows = llm_alloc((size_t)batch, sizeof *w->rows, "a search", e))
                                  && (w[t].near = llm_alloc((size_t)batch, sizeof *w->near, "a search", e))));
    }
    if (good) return w;
    release_walkers(w);
    return NULL;
}

/* The vectors lie in a file that is mapped: their pages can be released. */
static bool is_mapped(const struct llm_index *x)
{
    const char *from, *end;
    if (!x->file || !llm_checkpoint_is_mapped(x->file)) return false;
    llm_checkpoint_mapping(x->file, &from, &end);
    return (uintptr_t)x->vectors >= (uintptr_t)from && (uintptr_t)x->vectors < (uintptr_t)end;
}

static void round_some(void *arg, size_t part, int thread)
{
    struct llm_index *x = arg;
    const int64_t from = (int64_t)part * HELD, n = x->n - from < HELD ? x->n - from : HELD;
    float *rows = x->vectors + from * x->dims;
    (void)thread;
    llm_k.elementwise.to_bf16(x->graph.halves + from * x->dims, rows, (size_t)(n * x->dims));
    if (is_mapped(x)) llm_pages_release_within(rows, (size_t)(n * x->dims) * sizeof *rows, 0);
}

int llm_graph_hold(struct llm_index *x, struct llm_err *e)
{
    if (x->graph.halves || x->graph.m == 0) return 0;
    x->graph.halves = llm_index_alloc(x, (size_t)x->n * (size_t)x->dims + 1, sizeof *x->graph.halves, e);
    if (!x->graph.halves) return -1;
    llm_parallel((size_t)((x->n + HELD - 1) / HELD), round_some, x);
    return 0;
}

int llm_graph_extend(struct llm_index *x, struct llm_err *e)
{
    struct llm_graph *g = &x->graph;
    int64_t full = llm_graph_full(x->n), largest = full / BATCH + 2;
    struct batch b = {.x = x, .room = g->ef_build};
    uint8_t *levels = llm_alloc((size_t)full + 1, 1, "levels", e);
    for (int64_t row = 0; levels && row < full; row++) levels[row] = (uint8_t)level_of(x, row);
    int status = levels && llm_graph_hold(x, e) == 0 ? make_room(x, full, levels, e) : -1;
    b.rows = llm_alloc((size_t)largest, sizeof *b.rows, "a batch", e);
    b.candidates = b.rows ? llm_alloc((size_t)largest * (size_t)b.room, sizeof *b.candidates, "a batch", e) : NULL;
    b.found = b.candidates ? llm_alloc((size_t)largest, sizeof *b.found, "a batch", e) : NULL;
    b.pairs = b.found ? llm_alloc((size_t)largest * (size_t)g->m, sizeof *b.pairs, "a batch", e) : NULL;
    b.groups = b.pairs ? llm_alloc((size_t)largest * (size_t)g->m + 1, sizeof *b.groups, "a batch", e) : NULL;
    b.children = b.groups ? llm_calloc((size_t)full + 1, sizeof *b.children, "a batch", e) : NULL;
    b.walkers = b.children ? make_walkers(x, largest + 2 * g->m, e) : NULL;
    if (!b.walkers) status = -1;
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
    release_walkers(b.walkers);
    return status;
}

/* ---- searching ---- */

/* A search goes through blocks of queries: first each of them walks, then the rows that the walks of all found are compared exactly, in the order of
 * the rows. So every page of a mapped file is read once for a block, and released. */
enum { TOGETHER = 4096, PICKS = 256 /* rows of a work item */, RELEASED = 1024 /* rows for which pages are released */, TAIL = 64 };
struct pick { uint32_t row, at; }; /* at: in `found` and `exact` */
struct run {
    const struct llm_index *x;
    const struct llm_lookup *s;
    struct llm_hit *hits;
    int64_t *n_hits, ef, keep;
    struct walker *walkers;
    float *prepared;            /* [block, dims] */
    double *square;             /* [block] */
    struct candidate *best;     /* of each thread [ef] */
    uint32_t *found;            /* [block, keep]: rows */
    float *exact;               /* [block, keep]: products with them */
    int64_t *n_found;           /* [block] */
    struct pick *picks;         /* [block * keep] */
    int64_t n_picks;
};

static void search_one(void *arg, size_t q, int thread)
{
    struct run *r = arg;
    const struct llm_index *x = r->x;
    const float *v = r->prepared + (int64_t)q * x->dims;
    struct candidate *best = r->best + (int64_t)thread * r->ef;
    uint32_t *found = r->found + (int64_t)q * r->keep, rows[TAIL];
    float near[TAIL];
    int64_t n = walk(x, &x->graph.level[0], v, descend(x, v, 0, &r->walkers[thread]), r->ef, &r->walkers[thread], best), n_found = 0;
    for (int64_t row = x->graph.n, some; row < x->n; row += some) {
        some = x->n - row < TAIL ? x->n - row : TAIL;
        for (int64_t i = 0; i < some; i++) rows[i] = (uint32_t)(row + i);
        nearness(x, v, rows, some, near);
        for (int64_t i = 0; i < some; i++) (void)put(best, &n, r->ef, (struct candidate){near[i], rows[i]});
    }
    for (int64_t i = 0; i < n && n_found < r->keep; i++) {
        if (!x->deleted[best[i].slot]) found[n_found++] = best[i].slot;
    }
    r->n_found[q] = n_found;
}

static void rank_some(void *arg, size_t part, int thread)
{
    struct run *r = arg;
    const struct llm_index *x = r->x;
    const int64_t from = (int64_t)part * PICKS, to = from + PICKS < r->n_picks ? from + PICKS : r->n_picks;
    (void)thread;
    for (int64_t i = from; i < to; i++) {
        const struct pick *p = &r->picks[i];
        llm_k.search.exact(&r->exact[p->at], r->prepared + p->at / r->keep * x->dims, x->vectors, &p->row, 1, x->dims);
    }
    if (r->n_picks < RELEASED || !is_mapped(x)) return;
    const int64_t first = r->picks[from].row, end = to < r->n_picks ? r->picks[to].row : x->n;
    llm_pages_release_within(x->vectors + first * x->dims, (size_t)((end - first) * x->dims) * sizeof *x->vectors, 0);
}

static int by_row(const void *a, const void *b)
{
    const struct pick *p = a, *q = b;
    if (p->row != q->row) return p->row < q->row ? -1 : 1;
    return (p->at > q->at) - (p->at < q->at);
}

static int prepare(struct run *r, const float *queries, int64_t m, struct llm_err *e)
{
    int64_t dims = r->x->dims;
    for (int64_t q = 0; q < m; q++) {
        double sum = 0;
        for (int64_t k = 0; k < dims; k++) sum += (double)queries[q * dims + k] * (double)queries[q * dims + k];
        if (!isfinite((float)sum)) return llm_fail(e, EX_DATAERR, "expected a query of finite numbers");
        double scale = r->x->metric == LLM_METRIC_COSINE && sum > 0 ? 1 / sqrt(sum) : 1;
        for (int64_t k = 0; k < dims; k++) r->prepared[q * dims + k] = (float)((double)queries[q * dims + k] * scale);
        r->square[q] = sum;
    }
    return 0;
}

/* Queries [at, at + m). */
static void search_block(struct run *r, int64_t at, int64_t m)
{
    const struct llm_index *x = r->x;
    llm_parallel((size_t)m, search_one, r);
    r->n_picks = 0;
    for (int64_t q = 0; q < m; q++) {
        for (int64_t i = q * r->keep; i < q * r->keep + r->n_found[q]; i++) r->picks[r->n_picks++] = (struct pick){r->found[i], (uint32_t)i};
    }
    if (r->n_picks > 0) qsort(r->picks, (size_t)r->n_picks, sizeof *r->picks, by_row);
    llm_parallel((size_t)((r->n_picks + PICKS - 1) / PICKS), rank_some, r);
    for (int64_t q = 0; q < m; q++) {
        struct llm_best out = {.hits = r->hits + (at + q) * r->s->k, .k = r->s->k};
        for (int64_t i = q * r->keep; i < q * r->keep + r->n_found[q]; i++) {
            llm_best_offer(&out, llm_score_of_product(x, r->found[i], r->square[q], (double)r->exact[i]), r->found[i]);
        }
        r->n_hits[at + q] = out.n;
    }
}

int64_t llm_graph_ef(const struct llm_index *x, const struct llm_lookup *s)
{
    int64_t ef = s->ef > 0 ? s->ef : 2 * s->k;
    if (s->ef == 0 && ef < FEWEST) ef = FEWEST;
    if (ef < s->k) ef = s->k;
    return x->n_deleted > 0 ? ef + ef / 2 : ef;
}

int llm_graph_search(const struct llm_index *x, const float *queries, int64_t m, const struct llm_lookup *s, struct llm_hit *hits, int64_t *n_hits,
                     struct llm_err *e)
{
    struct run r = {.x = x, .s = s, .hits = hits, .n_hits = n_hits};
    int64_t live = x->n - x->n_deleted;
    r.ef = llm_graph_ef(x, s);
    r.keep = s->candidates > 0 ? s->candidates : 4 * s->k + 32;
    if (r.keep < s->k) r.keep = s->k;
    if (r.keep > r.ef) r.keep = r.ef;
    int64_t block = TOGETHER * 64 / r.keep < 1 ? 1 : TOGETHER * 64 / r.keep;
    if (block > TOGETHER) block = TOGETHER;
    if (block > m) block = m;
    size_t rows = (size_t)block * (size_t)r.keep;
    r.prepared = llm_alloc((size_t)block * (size_t)x->dims, sizeof *r.prepared, "queries", e);
    r.square = r.prepared ? llm_alloc((size_t)block, sizeof *r.square, "queries", e) : NULL;
    r.best = r.square ? llm_alloc((size_t)llm_pool_threads() * (size_t)r.ef, sizeof *r.best, "a search", e) : NULL;
    r.found = r.best ? llm_alloc(rows, sizeof *r.found, "a search", e) : NULL;
    r.exact = r.found ? llm_alloc(rows, sizeof *r.exact, "a search", e) : NULL;
    r.n_found = r.exact ? llm_alloc((size_t)block, sizeof *r.n_found, "a search", e) : NULL;
    r.picks = r.n_found ? llm_alloc(rows, sizeof *r.picks, "a search", e) : NULL;
    r.walkers = r.picks ? make_walkers(x, 0, e) : NULL;
    int status = r.walkers ? 0 : -1;
    for (int64_t at = 0; at < m && status == 0; at += block) {
        int64_t n = m - at < block ? m - at : block;
        status = prepare(&r, queries + at * x->dims, n, e);
        if (status == 0) search_block(&r, at, n);
    }
    for (int64_t q = 0; q < m && status == 0; q++) {
        if (n_hits[q] < s->k && n_hits[q] < live) status = llm_search_flat(x, queries + q * x->dims, 1, s, hits + q * s->k, n_hits + q, e);
    }
    free(r.prepared);
    free(r.square);
    free(r.best);
    free(r.found);
    free(r.exact);
    free(r.n_found);
    free(r.picks);
    release_walkers(r.walkers);
    return status;
}
