/* Attention backward. The probabilities P are recomputed from the saved maximum and sum of each query. A tile is computed transposed (rows are keys,
 * columns are queries), so that no operand needs to be rearranged: Pᵀ and dSᵀ are the left operands of dV and dK, and dSᵀ is the right one of dQᵀ.
 *
 * Canonical orders. dK and dV of a key: the heads of its group in order, each summed over blocks of 64 queries from the document's start. dQ of a
 * query: tiles of keys in order. So one pass that computes all three and two passes (dK and dV, then dQ) give the same bits; the choice between them
 * is the one that keeps more threads busy. */
#include "tensor/op/attention_internal.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include "cpu/pool.h"
#include "cpu/profile.h"

#define GROUP 4 /* tiles of keys that are processed with a block of queries while it is in the cache */

struct backward {
    struct llm_ctx *c;
    const struct attn_op *op;
    struct llm_grad q, k, v; /* p NULL: it takes no gradient */
    const float *d_out; int64_t ldd;
    float *d;        /* [tokens, n_heads] Σ dout·out */
    float *d_bias;   /* [blocks of LLM_FOLD queries, n_heads, 2·rel_max - 1] or NULL */
    const struct attn_piece *items; /* keys or queries of a work item */
    atomic_bool no_memory;
};

/* What one work item computes: dK and dV of tiles [first_tile, end_tile), dQ of blocks [first_block, end_block) of 64 queries, or both. */
struct extent { int64_t first_tile, end_tile, first_block, end_block; bool keys, queries; };

/* A work item's memory for one head. For each block of 64 queries: q and dout in their packed forms, dQᵀ, and m, 1/l, d. */
struct space {
    float *q_t, *o_t;  /* form B of the transposes: [units(d_k)][64], [units(d_v)][64] */
    float *q_b, *o_b;  /* form B: [units(64)][dk], [units(64)][dv] */
    float *dq_t;       /* [dk][64] */
    float *m, *inv_l, *d;
    float *k_a, *v_a, *k_at; /* each tile of a group: [64][units(d_k)], [64][units(d_v)], [dk][units(64)], form A */
    float *dk, *dv;          /* sums of each tile of a group: [64][dk] and [64][dv] */
    float *s, *dp, *p_a, *ds_a, *ds_b, *bias, *keep, *d_score; /* scores and their gradients, of one tile with one block */
};

static float *take(float **at, int64_t n)
{
    float *p = *at;
    *at += (n + 15) / 16 * 16;
    return p;
}

struct sizes { int64_t units_k, units_v, units_tile, dk, dv; };
static struct sizes sizes_of(const struct attn_op *op)
{
    return (struct sizes){llm_attn_units(op->math, op->a.d_k), llm_attn_units(op->math, op->a.d_v), llm_attn_units(op->math, ATTN_TILE),
                          attn_padded(op->a.d_k), attn_padded(op->a.d_v)};
}

static float *layout(const struct backward *b, struct space *w, int64_t blocks, float *at)
{
    struct sizes z = sizes_of(b->op);
    int64_t square = ATTN_TILE * ATTN_TILE;
    w->q_t = take(&at, blocks * z.units_k * ATTN_TILE);
    w->o_t = take(&at, blocks * z.units_v * ATTN_TILE);
    w->q_b = take(&at, blocks * z.units_tile * z.dk);
    w->o_b = take(&at, blocks * z.units_tile * z.dv);
    w->dq_t = take(&at, blocks * z.dk * ATTN_TILE);
    w->m = take(&at, blocks * ATTN_TILE);
    w->inv_l = take(&at, blocks * ATTN_TILE);
    w->d = take(&at, blocks * ATTN_TILE);
    w->k_a = take(&at, GROUP * ATTN_TILE * z.units_k);
    w->v_a = take(&at, GROUP * ATTN_TILE * z.units_v);
    w->k_at = take(&at, GROUP * z.dk * z.units_tile);
    w->s = take(&at, square);
    w->dp = take(&at, square);
    w->p_a = take(&at, ATTN_TILE * z.units_tile);
    w->ds_a = take(&at, ATTN_TILE * z.units_tile);
    w->ds_b = b->op->math->per_unit == 1 ? w->ds_a : take(&at, z.units_tile * ATTN_TILE);
    w->dk = take(&at, GROUP * ATTN_TILE * z.dk);
    w->dv = take(&at, GROUP * ATTN_TILE * z.dv);
    w->bias = b->op->bias ? take(&at, square) : NULL;
    w->keep = b->op->dropout.p > 0 ? take(&at, square) : NULL;
    w->d_score = b->d_bias ? take(&at, square) : NULL;
    return at;
}

/* Of the `left` queries or keys from a block's or a tile's first one on, the rows that products compute: what lies beyond them is zeros. */
static int64_t computed(const struct attn_op *op, int64_t left)
{
    return attn_min(ATTN_TILE, attn_blocks(left, op->math->edge) * op->math->edge);
}

/* Packs the queries of block `block` of one head into their four forms. w: the memory of the whole work item, whose first block is `first`. */
static void pack_queries(const struct backward *b, const struct attn_job *j, const struct attn_document *doc, int64_t g, int64_t block,
                         int64_t first, const struct space *w)
{
    const struct attn_op *op = b->op;
    const struct llm_attn *a = &op->a;
    struct sizes z = sizes_of(op);
    int64_t at = block * ATTN_TILE, n = attn_min(ATTN_TILE, doc->n_queries - at), slot = block - first, head = j->head + g;
    const int64_t width = computed(op, n);
    const float *q = j->q + at * j->ldq + g * a->d_k, *d_out = b->d_out + (doc->query + at) * b->ldd + head * a->d_v;
    int64_t more = attn_max(0, attn_min(ATTN_TILE, doc->n_queries - at - ATTN_TILE));
    attn_prefetch(q + ATTN_TILE * j->ldq, j->ldq, more, a->d_k);
    attn_prefetch(d_out + ATTN_TILE * b->ldd, b->ldd, more, a->d_v);
    op->math->pack_bt(w->q_t + slot * z.units_k * ATTN_TILE, width, q, j->ldq, n, a->d_k);
    op->math->pack_bt(w->o_t + slot * z.units_v * ATTN_TILE, width, d_out, b->ldd, n, a->d_v);
    op->math->pack_b(w->q_b + slot * z.units_tile * z.dk, z.dk, q, j->ldq, n, a->d_k, width);
    op->math->pack_b(w->o_b + slot * z.units_tile * z.dv, z.dv, d_out, b->ldd, n, a->d_v, width);
    for (int64_t i = 0; i < width; i++) {
        int64_t to = slot * ATTN_TILE + i, from = (doc->query + at + i) * a->n_heads + head;
        w->m[to] = i < n ? op->stats[2 * from] : 0;
        w->inv_l[to] = i < n ? op->stats[2 * from + 1] : 0;
        w->d[to] = i < n ? b->d[from] : 0;
    }
}

/* The part of w that belongs to tile i of a group. */
static struct space tile_space(const struct attn_op *op, const struct space *w, int64_t i)
{
    struct sizes z = sizes_of(op);
    struct space t = *w;
    t.k_a += i * ATTN_TILE * z.units_k;
    t.v_a += i * ATTN_TILE * z.units_v;
    t.k_at += i * z.dk * z.units_tile;
    t.dk += i * ATTN_TILE * z.dk;
    t.dv += i * ATTN_TILE * z.dv;
    return t;
}

static void pack_keys(const struct attn_op *op, const struct attn_job *j, int64_t tile, const struct space *w)
{
    const struct llm_attn *a = &op->a;
    struct sizes z = sizes_of(op);
    int64_t at = tile * ATTN_TILE, n = attn_min(ATTN_TILE, j->keys.n - at), rows = computed(op, n);
    const float *k = j->keys.k + at * j->keys.ldk, *v = j->keys.v + at * j->keys.ldv;
    int64_t more = attn_max(0, attn_min(ATTN_TILE, j->keys.n - at - ATTN_TILE));
    attn_prefetch(k + ATTN_TILE * j->keys.ldk, j->keys.ldk, more, a->d_k);
    attn_prefetch(v + ATTN_TILE * j->keys.ldv, j->keys.ldv, more, a->d_v);
    if (n < rows) { /* keys that the last tile lacks */
        memset(w->k_a, 0, (size_t)(rows * z.units_k) * sizeof(float));
        memset(w->v_a, 0, (size_t)(rows * z.units_v) * sizeof(float));
    }
    op->math->pack_a(w->k_a, z.units_k, k, j->keys.ldk, n, a->d_k);
    op->math->pack_a(w->v_a, z.units_v, v, j->keys.ldv, n, a->d_v);
    op->math->pack_at(w->k_at, z.units_tile, k, j->keys.ldk, n, a->d_k, rows);
    memset(w->dk, 0, (size_t)(rows * z.dk) * sizeof(float));
    memset(w->dv, 0, (size_t)(rows * z.dv) * sizeof(float));
}

/* Sets masks, bias and dropout of a transposed tile. */
static void set_tile(const struct backward *b, const struct attn_job *j, int64_t head, int64_t tile, int64_t block, const struct space *w,
                     struct llm_attn_back *t)
{
    const struct llm_attn *a = &b->op->a;
    int64_t key0 = tile * ATTN_TILE, query0 = block * ATTN_TILE, n_queries = attn_min(ATTN_TILE, j->n_queries - query0);
    t->full = n_queries == ATTN_TILE && attn_tile_full(a, j->prefix, key0, query0, query0 + ATTN_TILE - 1, j->keys.n);
    t->bias = w->bias;
    t->keep = w->keep;
    t->d_score = w->d_score;
    t->keys = (int)computed(b->op, j->keys.n - key0);
    t->queries = (int)computed(b->op, n_queries);
    for (int64_t r = 0; !t->full && r < t->keys; r++) {
        int64_t key = key0 + r, first = 0, last = key < j->keys.n ? n_queries : 0;
        if (key >= j->prefix) {
            if (a->causal) first = attn_max(first, key - query0);
            if (a->window > 0) {
                first = attn_max(first, key - a->window + 1 - query0);
                last = attn_min(last, key + a->window - query0);
            }
        }
        t->first[r] = (uint8_t)attn_min(first, ATTN_TILE);
        t->last[r] = (uint8_t)attn_max(0, last);
    }
    const float *table = b->op->bias ? b->op->bias + head * (2 * a->rel_max - 1) : NULL;
    for (int64_t i = 0; i < ATTN_TILE && (w->bias || w->keep); i++) {
        for (int64_t r = 0; w->bias && r < ATTN_TILE; r++) w->bias[r * ATTN_TILE + i] = attn_bias(table, a->rel_max, key0 + r, query0 + i);
        if (!w->keep) continue;
        float keep[ATTN_TILE];
        attn_keep(&j->dropout, head, query0 + i, key0, keep);
        for (int64_t r = 0; r < ATTN_TILE; r++) w->keep[r * ATTN_TILE + i] = keep[r];
    }
}

static void add_bias_gradient(const struct backward *b, const struct attn_document *doc, int64_t head, int64_t tile, int64_t block,
                              const struct llm_attn_back *t)
{
    const struct llm_attn *a = &b->op->a;
    int64_t width = 2 * a->rel_max - 1, partial = doc->grad_block + block * ATTN_TILE / LLM_FOLD;
    float *sum = b->d_bias + (partial * a->n_heads + head) * width;
    for (int64_t r = 0; r < t->keys; r++)
        for (int64_t i = t->full ? 0 : t->first[r]; i < (t->full ? ATTN_TILE : t->last[r]); i++) {
            int64_t d = attn_max(-(a->rel_max - 1), attn_min(a->rel_max - 1, (tile - block) * ATTN_TILE + r - i));
            sum[d + a->rel_max - 1] += t->d_score[r * ATTN_TILE + i];
        }
}

/* Whether no query of the block's first half sees a key of the tile's second half, and the kernels can leave that corner out. */
static bool corner_unseen(const struct attn_op *op, const struct llm_attn_back *t)
{
    bool unseen = !t->full && op->math->edge <= ATTN_TILE / 2 && t->keys > ATTN_TILE / 2 && t->queries > ATTN_TILE / 2;
    for (int r = ATTN_TILE / 2; r < t->keys && unseen; r++) unseen = t->first[r] >= ATTN_TILE / 2 || t->first[r] >= t->last[r];
    return unseen;
}

/* A factor of a product: its elements and its row stride. */
struct matrix { float *p; int64_t ld; };

/* c[keys][n] = or += a·b with a[keys][depth] and b[depth][n]. Of the keys of the second half, the first `skip` of c's columns are not computed if
 * they are queries, and the first `skip` of the depth are left out if that is queries. */
static void by_keys(const struct attn_op *op, struct matrix c, struct matrix a, struct matrix b, int64_t keys, int64_t n, int64_t depth,
                    bool queries_deep, int64_t skip)
{
    int64_t half = skip ? ATTN_TILE / 2 : keys;
    op->math->product(c.p, c.ld, a.p, a.ld, b.p, b.ld, half, n, depth, queries_deep);
    if (!skip) return;
    float *c2 = c.p + half * c.ld, *a2 = a.p + half * a.ld;
    if (queries_deep) op->math->product(c2, c.ld, a2 + skip, a.ld, b.p + skip * b.ld, b.ld, keys - half, n, depth - skip, true);
    else op->math->product(c2 + skip, c.ld, a2, a.ld, b.p + skip, b.ld, keys - half, n - skip, depth, false);
}

/* Processes one tile of keys with one block of queries: five products. */
static void back_tile(const struct backward *b, const struct attn_job *j, const struct attn_document *doc, int64_t g, int64_t tile, int64_t block,
                      const struct extent *e, const struct space *w)
{
    const struct attn_op *op = b->op;
    struct sizes z = sizes_of(op);
    int64_t slot = block - e->first_block, head = j->head + g;
    struct llm_attn_back t = {.s = w->s, .dp = w->dp, .p_a = w->p_a, .ds_a = w->ds_a, .ds_b = w->ds_b, .m = w->m + slot * ATTN_TILE,
                              .inv_l = w->inv_l + slot * ATTN_TILE, .d = w->d + slot * ATTN_TILE, .scale = op->a.scale, .softcap = op->a.softcap};
    set_tile(b, j, head, tile, block, w, &t);
    t.corner = corner_unseen(op, &t);
    const int64_t skip = t.corner ? ATTN_TILE / 2 : 0;
    const int64_t queries_deep = llm_attn_units(op->math, t.queries), keys_deep = llm_attn_units(op->math, t.keys);
    const struct matrix s = {w->s, ATTN_TILE}, dp = {w->dp, ATTN_TILE}, p = {w->p_a, z.units_tile}, ds = {w->ds_a, z.units_tile};
    const struct matrix q_t = {w->q_t + slot * z.units_k * ATTN_TILE, t.queries}, o_t = {w->o_t + slot * z.units_v * ATTN_TILE, t.queries};
    const struct matrix q_b = {w->q_b + slot * z.units_tile * z.dk, z.dk}, o_b = {w->o_b + slot * z.units_tile * z.dv, z.dv};
    by_keys(op, s, (struct matrix){w->k_a, z.units_k}, q_t, t.keys, t.queries, z.units_k, false, skip);
    by_keys(op, dp, (struct matrix){w->v_a, z.units_v}, o_t, t.keys, t.queries, z.units_v, false, skip);
    op->math->back(&t);
    if (e->keys) {
        by_keys(op, (struct matrix){w->dv, z.dv}, p, o_b, t.keys, z.dv, queries_deep, true, skip);
        by_keys(op, (struct matrix){w->dk, z.dk}, ds, q_b, t.keys, z.dk, queries_deep, true, skip);
    }
    if (e->queries) {
        float *dq = w->dq_t + slot * z.dk * ATTN_TILE, *ds_b = w->ds_b;
        if (skip) op->math->product(dq, ATTN_TILE, w->k_at, z.units_tile, ds_b, ATTN_TILE, op->a.d_k, skip, skip, true);
        op->math->product(dq + skip, ATTN_TILE, w->k_at, z.units_tile, ds_b + skip, ATTN_TILE, op->a.d_k, t.queries - skip, keys_deep, true);
        if (w->d_score) add_bias_gradient(b, doc, head, tile, block, &t);
    }
}

/* Adds a tile's dK and dV to the gradients. The first head of a group writes those that have no value yet. */
static void add_dk_dv(const struct backward *b, const struct attn_job *j, const struct attn_document *doc, int64_t g, int64_t tile,
                      const struct space *w)
{
    const struct llm_attn *a = &b->op->a;
    struct sizes z = sizes_of(b->op);
    int64_t at = tile * ATTN_TILE, n = attn_min(ATTN_TILE, j->keys.n - at), kv_head = j->head / j->n_rep, row = doc->key + at;
    if (b->k.p) llm_k.attention.add(b->k.p + row * b->k.stride + kv_head * a->d_k, b->k.stride, w->dk, z.dk, n, a->d_k, g == 0 && !b->k.add);
    if (b->v.p) llm_k.attention.add(b->v.p + row * b->v.stride + kv_head * a->d_v, b->v.stride, w->dv, z.dv, n, a->d_v, g == 0 && !b->v.add);
}

static void add_dq(const struct backward *b, const struct attn_job *j, const struct attn_document *doc, int64_t g, const struct extent *e,
                   const struct space *w)
{
    int64_t d_k = b->op->a.d_k, dk = attn_padded(d_k);
    for (int64_t block = e->first_block; block < e->end_block; block++) {
        int64_t at = block * ATTN_TILE, n = attn_min(ATTN_TILE, doc->n_queries - at);
        float *to = b->q.p + (doc->query + at) * b->q.stride + (j->head + g) * d_k;
        llm_k.attention.add_transposed(to, b->q.stride, w->dq_t + (block - e->first_block) * dk * ATTN_TILE, n, d_k, !b->q.add);
    }
}

/* Prefetches one of GROUP parts of the packed queries of slot `slot`. A tile's products hide it; hardware would begin too late in each column. */
static void prefetch_queries(const struct backward *b, const struct space *w, int64_t slot, int64_t part)
{
    struct sizes z = sizes_of(b->op);
    int64_t t = z.units_k * ATTN_TILE, o = z.units_v * ATTN_TILE, q = z.units_tile * z.dk, v = z.units_tile * z.dv, d = z.dk * ATTN_TILE;
    attn_prefetch(w->q_t + slot * t + part * t / GROUP, 0, 1, t / GROUP);
    attn_prefetch(w->o_t + slot * o + part * o / GROUP, 0, 1, o / GROUP);
    attn_prefetch(w->q_b + slot * q + part * q / GROUP, 0, 1, q / GROUP);
    attn_prefetch(w->o_b + slot * v + part * v / GROUP, 0, 1, v / GROUP);
    attn_prefetch(w->dq_t + slot * d + part * d / GROUP, 0, 1, d / GROUP);
}

/* Processes tiles [first, end), at most GROUP, with all blocks of queries. */
static void back_group(const struct backward *b, const struct attn_job *j, const struct attn_document *doc, int64_t g, int64_t first, int64_t end,
                       const struct extent *e, const struct space *w)
{
    struct space tiles[GROUP];
    bool packed[GROUP] = {false};
    for (int64_t block = e->first_block; block < e->end_block; block++) {
        int64_t i0 = block * ATTN_TILE, i1 = attn_min(doc->n_queries, i0 + ATTN_TILE) - 1;
        for (int64_t tile = first; tile < end; tile++) {
            int64_t i = tile - first;
            if (!attn_tile_seen(&b->op->a, j->prefix, tile * ATTN_TILE, i0, i1, j->keys.n)) continue;
            if (!packed[i]) {
                tiles[i] = tile_space(b->op, w, i);
                pack_keys(b->op, j, tile, &tiles[i]);
                packed[i] = true;
            }
            if (block + 1 < e->end_block) prefetch_queries(b, w, block + 1 - e->first_block, i);
            back_tile(b, j, doc, g, tile, block, e, &tiles[i]);
        }
    }
    for (int64_t tile = first; tile < end && e->keys; tile++) {
        int64_t i = tile - first;
        if (!packed[i] && g > 0) continue;
        if (!packed[i]) { /* no query sees these keys: their gradients are zeros */
            tiles[i] = tile_space(b->op, w, i);
            pack_keys(b->op, j, tile, &tiles[i]);
        }
        add_dk_dv(b, j, doc, g, tile, &tiles[i]);
    }
}

static void back_head(const struct backward *b, const struct attn_job *j, const struct attn_document *doc, int64_t g, const struct extent *e,
                      const struct space *w)
{
    for (int64_t block = e->first_block; block < e->end_block; block++) pack_queries(b, j, doc, g, block, e->first_block, w);
    memset(w->dq_t, 0, (size_t)((e->end_block - e->first_block) * attn_padded(b->op->a.d_k) * ATTN_TILE) * sizeof(float));
    b->op->math->begin();
    for (int64_t tile = e->first_tile; tile < e->end_tile; tile += GROUP)
        back_group(b, j, doc, g, tile, attn_min(tile + GROUP, e->end_tile), e, w);
    b->op->math->end();
    if (e->queries && b->q.p) add_dq(b, j, doc, g, e, w);
}

static void back_extent(struct backward *b, const struct attn_document *doc, int64_t kv_head, const struct extent *e, int thread)
{
    struct space w;
    float origin[1];
    struct attn_job j = attn_job_of(b->op, doc, kv_head, 0, doc->n_queries);
    size_t bytes = (size_t)(layout(b, &w, e->end_block - e->first_block, origin) - origin) * sizeof(float);
    float *memory = llm_scratch(thread, bytes);
    if (!memory) {
        atomic_store(&b->no_memory, true);
        return;
    }
    layout(b, &w, e->end_block - e->first_block, memory);
    for (int64_t g = 0; g < j.n_rep; g++) back_head(b, &j, doc, g, e, &w);
}

static struct extent whole(const struct attn_document *d)
{
    return (struct extent){0, attn_blocks(d->n_keys, ATTN_TILE), 0, attn_blocks(d->n_queries, ATTN_TILE), true, true};
}

static void document_piece(void *arg, size_t i, int thread)
{
    struct backward *b = arg;
    int64_t heads = b->op->a.n_kv_heads;
    const struct attn_document *d = &b->op->documents[(int64_t)i / heads];
    struct extent e = whole(d);
    back_extent(b, d, (int64_t)i % heads, &e, thread);
}

/* dK and dV of a run of keys, from all queries. */
static void keys_piece(void *arg, size_t i, int thread)
{
    struct backward *b = arg;
    const int64_t heads = b->op->a.n_kv_heads;
    const struct attn_piece *item = &b->items[(int64_t)i / heads];
    struct extent e = whole(item->d);
    e.queries = false;
    e.first_tile = item->from / ATTN_TILE;
    e.end_tile = attn_blocks(item->end, ATTN_TILE);
    if (b->op->a.causal && item->d->prefix == 0) e.first_block = attn_min(e.first_tile, e.end_block);
    back_extent(b, item->d, (int64_t)i % heads, &e, thread);
}

/* dQ of a run of queries, from all keys. */
static void queries_piece(void *arg, size_t i, int thread)
{
    struct backward *b = arg;
    const int64_t heads = b->op->a.n_kv_heads;
    const struct attn_piece *item = &b->items[(int64_t)i / heads];
    struct extent e = whole(item->d);
    e.keys = false;
    e.first_block = item->from / ATTN_TILE;
    e.end_block = attn_blocks(item->end, ATTN_TILE);
    back_extent(b, item->d, (int64_t)i % heads, &e, thread);
}

/* Runs a piece for each run of at most `size` keys or queries and each KV head. */
static void run_cut(struct backward *b, int64_t size, bool keys, void (*piece)(void *, size_t, int))
{
    int64_t n;
    b->items = attn_cut(b->c, b->op, size, keys, &n);
    if (b->items) llm_parallel((size_t)(n * b->op->a.n_kv_heads), piece, b);
}

/* D = Σ dout·out of each head of tokens [from, to). */
static void d_rows(void *arg, int64_t from, int64_t to, int thread)
{
    struct backward *b = arg;
    const struct llm_attn *a = &b->op->a;
    (void)thread;
    for (int64_t t = from; t < to; t++)
        for (int64_t h = 0; h < a->n_heads && attn_owns(a, t); h++)
            b->d[t * a->n_heads + h] = b->op->math->dot(b->d_out + t * b->ldd + h * a->d_v,
                                                        b->op->out->data + t * b->op->out->stride + h * a->d_v, a->d_v);
}

/* The gradient of a sink is -Σ p_sink·D, summed in blocks of queries. */
static void add_sink_gradient(const struct backward *b, float *grad)
{
    const struct attn_op *op = b->op;
    for (int64_t i = 0; i < op->n_documents; i++) {
        const struct attn_document *d = &op->documents[i];
        for (int64_t from = 0; from < d->n_queries; from += LLM_FOLD)
            for (int64_t h = 0; h < op->a.n_heads; h++) {
                double sum = 0;
                for (int64_t t = from; t < attn_min(d->n_queries, from + LLM_FOLD); t++) {
                    int64_t at = (d->query + t) * op->a.n_heads + h;
                    sum -= exp((double)op->sinks[h] - op->stats[2 * at]) * op->stats[2 * at + 1] * b->d[at];
                }
                grad[h] += (float)sum;
            }
    }
}

static void run_backward(struct backward *b)
{
    const struct attn_op *op = b->op;
    const bool busy = op->n_documents * op->a.n_kv_heads >= 2 * llm_pool_threads() || llm_pool_threads() == 1;
    if (busy && !op->a.members) {
        llm_parallel((size_t)(op->n_documents * op->a.n_kv_heads), document_piece, b);
    } else {
        run_cut(b, ATTN_CHUNK, true, keys_piece);
        run_cut(b, LLM_FOLD, false, queries_piece);
    }
    if (atomic_load(&b->no_memory)) llm_op_fail(b->c, EX_UNAVAILABLE, "out of memory in attention's backward");
}

/* Adds the bias gradients of all blocks, in order, to that of each distance, or of the distance's bucket. */
static void fold_bias_gradient(const struct llm_attn *a, const float *blocks, int64_t n_blocks, float *grad)
{
    int64_t per_head = 2 * a->rel_max - 1, width = a->n_heads * per_head;
    for (int64_t i = 0; i < n_blocks; i++) {
        for (int64_t x = 0; x < width; x++) {
            int64_t at = a->rel_map ? a->rel_map[x % per_head] * a->n_heads + x / per_head : x;
            grad[at] += blocks[i * width + x];
        }
    }
}

/* Opens the gradients of q, k and v. They are written where they have no value yet. Keys beyond kv_len are in no document, tensors that overlap have
 * both gradients added in no order, and other members write their tokens' elsewhere, so those begin as zeros. */
static void open_gradients(struct llm_ctx *c, struct backward *b)
{
    const struct attn_op *op = b->op;
    bool apart = op->q->data != op->k->data && op->q->data != op->v->data && op->k->data != op->v->data && !op->a.members;
    bool (*open)(struct llm_ctx *, struct llm_tensor *, struct llm_grad *) = apart ? llm_grad_open : llm_grad_open_zeroed;
    bool (*open_keys)(struct llm_ctx *, struct llm_tensor *, struct llm_grad *) = op->a.kv_len ? llm_grad_open_zeroed : open;
    if (!open(c, op->q, &b->q)) b->q.p = NULL;
    if (!open_keys(c, op->k, &b->k)) b->k.p = NULL;
    if (!open_keys(c, op->v, &b->v)) b->v.p = NULL;
}

void attn_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("attention backward", 3 * llm_tensor_bytes(n->in[0]) + 2 * (llm_tensor_bytes(n->in[1]) + llm_tensor_bytes(n->in[2]))
                                      + llm_tensor_bytes(n->out));
    const struct attn_op *op = n->args;
    const struct llm_attn *a = &op->a;
    struct backward b = {.c = c, .op = op, .d_out = n->out->grad, .ldd = n->out->grad_stride};
    float *sinks = a->sinks ? a->sinks->grad : NULL, *bias = a->rel_bias ? llm_param_use(a->rel_bias, a->rel_use) : NULL;
    if (a->rel_bias && !bias) bias = a->rel_bias->grad;
    int64_t width = a->n_heads * (2 * a->rel_max - 1), blocks = 0;
    open_gradients(c, &b);
    if (op->n_documents) blocks = op->documents[op->n_documents - 1].grad_block + attn_blocks(op->documents[op->n_documents - 1].n_queries, LLM_FOLD);
    b.d = llm_op_alloc(c, op->q->rows * a->n_heads, sizeof *b.d);
    b.d_bias = bias ? llm_op_alloc(c, blocks * width, sizeof *b.d_bias) : NULL;
    if (llm_ctx_failed(c)) return;
    if (b.d_bias) memset(b.d_bias, 0, (size_t)(blocks * width) * sizeof *b.d_bias);
    llm_for_rows(op->q->rows, a->n_heads * a->d_v, d_rows, &b);
    if (a->members && !attn_exchange_statistics(c, a, op->q->rows, op->stats, b.d)) return;
    if (llm_profiling) attn_count(c, a, attn_op_pairs(op), 2, 0); /* four products; the recomputation of scores is not counted */
    run_backward(&b);
    if (sinks) add_sink_gradient(&b, sinks);
    if (bias) fold_bias_gradient(a, b.d_bias, blocks, bias);
}
