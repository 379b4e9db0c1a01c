/* Attention forward over one job: the walk over chunks and tiles. Training, prefill and decoding use it. */
#include "tensor/op/attention_internal.h"

#include <math.h>
#include <string.h>
#include "cpu/dtype.h"
#include "cpu/pool.h"

/* One thread's work space, in one allocation. All sizes are in floats. */
struct attn_space {
    float *q;          /* [rows][units(d_k)], form A */
    float *k, *v;      /* the tile: [units(d_k)][64] and [units(64)][dv], form B */
    float *s, *p;      /* two of [ATTN_SUB_ROWS][64], and [ATTN_SUB_ROWS][units(64)] */
    float *bias, *keep; /* [64][64] */
    float *decoded_k, *decoded_v; /* [64][d_k], [64][d_v] from a cache */
};

static float *take(float **at, int64_t n)
{
    float *p = *at;
    *at += (n + 15) / 16 * 16;
    return p;
}

/* Lays the space out from `at`; returns its end. */
static float *layout(const struct attn_job *j, struct attn_space *w, float *at)
{
    const struct llm_attn *a = j->a;
    int64_t units = llm_attn_units(j->math, a->d_k), tile_units = llm_attn_units(j->math, ATTN_TILE);
    w->q = take(&at, attn_padded(attn_job_rows(j)) * units);
    w->k = take(&at, units * ATTN_TILE);
    w->v = take(&at, tile_units * attn_padded(a->d_v));
    w->s = take(&at, 2 * ATTN_SUB_ROWS * ATTN_TILE);
    w->p = take(&at, ATTN_SUB_ROWS * tile_units);
    w->bias = j->bias ? take(&at, ATTN_TILE * ATTN_TILE) : NULL;
    w->keep = j->dropout.p > 0 ? take(&at, ATTN_TILE * ATTN_TILE) : NULL;
    w->decoded_k = j->keys.view ? take(&at, ATTN_TILE * a->d_k) : NULL;
    w->decoded_v = j->keys.view ? take(&at, ATTN_TILE * a->d_v) : NULL;
    return at;
}

size_t attn_space_bytes(const struct attn_job *j)
{
    struct attn_space w;
    float origin[1];
    return (size_t)(layout(j, &w, origin) - origin) * sizeof(float);
}

struct attn_state attn_state_in(float *memory, int64_t rows)
{
    rows = attn_padded(rows);
    return (struct attn_state){memory, memory + rows, memory + 2 * rows};
}

void attn_keep(const struct attn_dropout *d, int64_t head, int64_t query, int64_t key, float *keep)
{
    struct llm_rng r = llm_rng_at(d->seed, d->step, LLM_RNG_DROPOUT_ATTN, d->layer, d->row, (uint32_t)(d->query_origin + query));
    uint32_t channel = (uint32_t)(d->first_head + head) * d->stride + (uint32_t)(d->key_origin + key), drop = (uint32_t)ceil((double)d->p * 0x1p24);
    llm_k.attention.keep(keep, r.key, r.counter, channel, drop, 1 / (1 - d->p), ATTN_TILE);
}

/* One KV head's 64 rows in a cached tile. */
static const void *cached_rows(const struct attn_job *j, void *const *tiles, enum llm_dtype type, int64_t t, int64_t width)
{
    return (const char *)tiles[t] + (size_t)j->keys.kv_head * llm_dtype_bytes(type, (uint64_t)(ATTN_TILE * width));
}

static const float *decoded(enum llm_dtype type, const void *rows, int64_t n, float *memory)
{
    if (type == LLM_F32) return rows;
    llm_k.attention.decode(type, rows, memory, n);
    return memory;
}

/* Prefetches tile t, which is packed next. The hardware prefetcher does not, since tiles lie pages apart. */
static void prefetch_tile(const struct attn_job *j, void *const *tiles, enum llm_dtype type, int64_t t, int64_t width)
{
    if (!tiles || (t + 1) * ATTN_TILE >= j->keys.n) return;
    const char *rows = cached_rows(j, tiles, type, t + 1, width);
    int64_t bytes = attn_min(ATTN_TILE, j->keys.n - (t + 1) * ATTN_TILE) * (int64_t)llm_dtype_bytes(type, (uint64_t)width);
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(rows + i, 0, 2);
}

/* The type of the keys that products see: those of a rotated type as they are stored, as the queries are rotated, too. */
static enum llm_dtype key_type(const struct llm_kv_view *view)
{
    return llm_dtype_unrotated(view->k_type);
}

/* A tile's rows in a cache, and the row stride of v. */
struct stored { const void *k, *v; int64_t ldv; };

/* Tile t, and prefetches the next one. */
static struct stored stored_tile(const struct attn_job *j, int64_t t)
{
    const struct llm_attn *a = j->a;
    const struct llm_kv_view *view = j->keys.view;
    struct stored s = {.k = cached_rows(j, view->k, view->k_type, t, a->d_k)};
    prefetch_tile(j, view->k, view->k_type, t, a->d_k);
    prefetch_tile(j, view->v, view->v_type, t, a->d_v);
    s.v = view->v ? cached_rows(j, view->v, view->v_type, t, a->d_v) : s.k;
    s.ldv = view->v ? a->d_v : a->d_k;
    return s;
}

/* Packs the keys and values of tile t. */
static void pack_tile(const struct attn_job *j, const struct attn_space *w, int64_t t)
{
    const struct llm_attn *a = j->a;
    const struct llm_attention_math *math = j->math;
    int64_t at = t * ATTN_TILE, n = attn_min(ATTN_TILE, j->keys.n - at), dv = attn_padded(a->d_v);
    if (!j->keys.view) {
        int64_t later = at + ATTN_TILE, more = attn_max(0, attn_min(ATTN_TILE, j->keys.n - later));
        attn_prefetch(j->keys.k + later * j->keys.ldk, j->keys.ldk, more, a->d_k);
        attn_prefetch(j->keys.v + later * j->keys.ldv, j->keys.ldv, more, a->d_v);
        math->pack_bt(w->k, ATTN_TILE, j->keys.k + at * j->keys.ldk, j->keys.ldk, n, a->d_k);
        math->pack_b(w->v, dv, j->keys.v + at * j->keys.ldv, j->keys.ldv, n, a->d_v, ATTN_TILE);
        return;
    }
    const struct llm_kv_view *view = j->keys.view;
    const enum llm_dtype v_type = view->v ? view->v_type : view->k_type;
    const float *keys = NULL;
    struct stored s = stored_tile(j, t);
    if (math->pack_bt_of[key_type(view)]) {
        math->pack_bt_of[key_type(view)](w->k, ATTN_TILE, s.k, a->d_k, n, a->d_k);
    } else {
        keys = decoded(key_type(view), s.k, n * a->d_k, w->decoded_k);
        math->pack_bt(w->k, ATTN_TILE, keys, a->d_k, n, a->d_k);
    }
    if (math->pack_b_of[v_type]) {
        math->pack_b_of[v_type](w->v, dv, s.v, s.ldv, n, a->d_v, ATTN_TILE);
    } else {
        const bool latent = s.v == s.k; /* its decoded keys are the values, but for rotated ones */
        if (!latent || !keys || v_type != key_type(view)) {
            keys = decoded(v_type, s.v, n * (latent ? a->d_k : a->d_v), latent ? w->decoded_k : w->decoded_v);
        }
        math->pack_b(w->v, dv, keys, s.ldv, n, a->d_v, ATTN_TILE);
    }
}

/* Sets masks, bias and dropout of the rows [row, row + t->rows) for the tile that begins at key `at`. */
static void set_tile(const struct attn_job *j, const struct attn_space *w, int64_t row, int64_t at, struct llm_attn_softmax *t)
{
    const struct llm_attn *a = j->a;
    int64_t n = j->keys.n, first = j->pos + row / j->n_rep, last = j->pos + (row + t->rows - 1) / j->n_rep;
    t->full = attn_tile_full(a, j->prefix, at, first, last, n);
    t->prefix = (int)attn_max(0, attn_min(ATTN_TILE, attn_min(j->prefix, n) - at));
    t->bias = w->bias;
    t->keep = w->keep;
    if (t->full && !w->bias && !w->keep) return;
    for (int r = 0; r < t->rows; r++) {
        int64_t i = j->pos + (row + r) / j->n_rep, head = j->head + (row + r) % j->n_rep;
        struct attn_range seen = attn_seen(a, i, n);
        t->first[r] = (uint8_t)attn_max(0, attn_min(ATTN_TILE, seen.first - at));
        t->last[r] = (uint8_t)attn_max(0, attn_min(ATTN_TILE, seen.last - at));
        if (w->bias) {
            const float *table = j->bias + head * (2 * a->rel_max - 1);
            for (int key = 0; key < ATTN_TILE; key++) w->bias[r * ATTN_TILE + key] = attn_bias(table, a->rel_max, at + key, i);
        }
        if (w->keep) attn_keep(&j->dropout, head, i, at, w->keep + r * ATTN_TILE);
    }
}

/* A run of a job's rows: [at, at + n). */
struct rows { int64_t at, n; };

/* The first run of rows at or after `row` in which some row sees a key of the tile that begins at `at`; n = 0 if there is none. */
static struct rows next_rows(const struct attn_job *j, int64_t at, int64_t row)
{
    int64_t rows = attn_job_rows(j);
    for (; row < rows; row += ATTN_SUB_ROWS) {
        struct rows run = {row, attn_min(ATTN_SUB_ROWS, rows - row)};
        int64_t first = j->pos + row / j->n_rep, last = j->pos + (row + run.n - 1) / j->n_rep;
        if (attn_tile_seen(j->a, j->prefix, at, first, last, j->keys.n)) return run;
    }
    return (struct rows){rows, 0};
}

/* The keys of the tile that begins at `at` up to the last that a run of rows sees, rounded up to what the kernels can leave out. */
static int64_t keys_seen(const struct attn_job *j, int64_t at, struct rows run)
{
    int64_t last = attn_seen(j->a, j->pos + (run.at + run.n - 1) / j->n_rep, j->keys.n).last;
    int64_t seen = attn_max(attn_min(j->prefix, j->keys.n), last) - at, edge = j->math->edge;
    return attn_min(ATTN_TILE, attn_max(1, attn_blocks(seen, edge)) * edge);
}

/* The first rows of a run that one product takes: all of them if they see the same part of the tile. At the causal diagonal they are a few, so that
 * little is computed of keys that none of them sees. */
static struct rows slice_of(const struct attn_job *j, int64_t at, struct rows run)
{
    bool same = keys_seen(j, at, (struct rows){run.at, 1}) == keys_seen(j, at, run);
    return (struct rows){run.at, same ? run.n : attn_min(ATTN_SLICE, run.n)};
}

/* s[run.n][64] = the products of a run's queries with the tile that begins at key `at`, for the keys that they see. */
static void scores(const struct attn_job *j, const struct attn_space *w, int64_t at, struct rows run, float *s)
{
    int64_t units = llm_attn_units(j->math, j->a->d_k);
    for (struct rows part; run.n; run.at += part.n, run.n -= part.n, s += part.n * ATTN_TILE) {
        part = slice_of(j, at, run);
        j->math->product(s, ATTN_TILE, w->q + run.at * units, units, w->k, ATTN_TILE, part.n, keys_seen(j, at, part), units, false);
    }
}

/* o[run.n][dv] += the probabilities of a run's queries times the tile's values. */
static void add_values(const struct attn_job *j, const struct attn_space *w, int64_t at, struct rows run, float *o)
{
    int64_t dv = attn_padded(j->a->d_v), units = llm_attn_units(j->math, ATTN_TILE);
    const float *p = w->p;
    for (struct rows part; run.n; run.at += part.n, run.n -= part.n, o += part.n * dv, p += part.n * units) {
        part = slice_of(j, at, run);
        j->math->product(o, dv, p, units, w->v, dv, part.n, dv, keys_seen(j, at, part) / j->math->per_unit, true);
    }
}

/* Processes tile t with all rows that see any of its keys, a few rows at a time. The scores of the next rows are computed before the probabilities of
 * these rows are used, so that the stores of the probabilities have completed by then. */
static void attend_tile(const struct attn_job *j, const struct attn_space *w, int64_t t, struct attn_state state)
{
    const struct llm_attn *a = j->a;
    int64_t at = t * ATTN_TILE, dv = attn_padded(a->d_v);
    float *s = w->s, *other = w->s + ATTN_SUB_ROWS * ATTN_TILE;
    struct rows run = next_rows(j, at, 0), next;
    scores(j, w, at, run, s);
    for (; run.n; run = next) {
        struct llm_attn_softmax x = {.rows = (int)run.n, .keys = (int)keys_seen(j, at, run), .s = s, .p = w->p, .m = state.m + run.at,
                                     .l = state.l + run.at, .o = state.o + run.at * dv, .ldo = dv, .scale = a->scale, .softcap = a->softcap};
        set_tile(j, w, run.at, at, &x);
        j->math->softmax(&x);
        next = next_rows(j, at, run.at + ATTN_SUB_ROWS);
        scores(j, w, at, next, other);
        add_values(j, w, at, run, x.o);
        other = s;
        s = s == w->s ? w->s + ATTN_SUB_ROWS * ATTN_TILE : w->s;
    }
}

/* Whether the job has so few rows that tiles are not packed. */
static bool has_few_rows(const struct attn_job *j)
{
    const struct llm_attn *a = j->a;
    const struct llm_kv_view *view = j->keys.view;
    return attn_job_rows(j) <= LLM_ATTN_FEW && view && j->math->scores_of[key_type(view)] && j->math->values_of[view->v ? view->v_type : view->k_type]
           && a->d_k % LLM_ATTN_LANES == 0 && a->d_v % LLM_ATTN_LANES == 0;
}

/* As attend_tile, of a job with few rows: reads tile t as it is stored. */
static void attend_stored(const struct attn_job *j, const struct attn_space *w, int64_t t, struct attn_state state)
{
    const struct llm_attn *a = j->a;
    const struct llm_kv_view *view = j->keys.view;
    const struct rows run = {0, attn_job_rows(j)};
    int64_t at = t * ATTN_TILE, have = attn_min(ATTN_TILE, j->keys.n - at), units = llm_attn_units(j->math, a->d_k);
    struct stored tile = stored_tile(j, t);
    struct llm_attn_softmax x = {.rows = (int)run.n, .keys = (int)keys_seen(j, at, run), .s = w->s, .p = w->p, .m = state.m, .l = state.l,
                                 .o = state.o, .ldo = attn_padded(a->d_v), .scale = a->scale, .softcap = a->softcap};
    j->math->scores_of[key_type(view)](w->s, w->q, units, run.n, tile.k, a->d_k, have, a->d_k, x.keys);
    set_tile(j, w, 0, at, &x);
    j->math->softmax(&x);
    j->math->values_of[view->v ? view->v_type : view->k_type](x.o, x.ldo, w->p, run.n, tile.v, tile.ldv, attn_min(have, x.keys), a->d_v);
}

void attn_tiles(const struct attn_job *j, int64_t from, int64_t to, struct attn_state state, void *space)
{
    const struct llm_attn *a = j->a;
    struct attn_space w;
    layout(j, &w, space);
    int64_t rows = attn_job_rows(j), units = llm_attn_units(j->math, a->d_k);
    for (int64_t g = 0; g < j->n_rep; g++)
        j->math->pack_a(w.q + g * units, j->n_rep * units, j->q + g * a->d_k, j->ldq, j->n_queries, a->d_k);
    const bool anew = from % (ATTN_CHUNK / ATTN_TILE) == 0;
    for (int64_t r = 0; anew && r < rows; r++) {
        state.m[r] = -INFINITY;
        state.l[r] = 0;
    }
    if (anew) memset(state.o, 0, (size_t)(rows * attn_padded(a->d_v)) * sizeof(float));
    int64_t end = attn_min(j->keys.n, to * ATTN_TILE);
    const bool few = has_few_rows(j);
    j->math->begin();
    for (int64_t at = from * ATTN_TILE; at < end; at += ATTN_TILE) {
        if (!attn_tile_seen(a, j->prefix, at, j->pos, j->pos + j->n_queries - 1, j->keys.n)) continue;
        if (few) {
            attend_stored(j, &w, at / ATTN_TILE, state);
        } else {
            pack_tile(j, &w, at / ATTN_TILE);
            attend_tile(j, &w, at / ATTN_TILE, state);
        }
    }
    j->math->end();
}

void attn_chunk(const struct attn_job *j, int64_t chunk, struct attn_state state, void *space)
{
    const int64_t tiles = ATTN_CHUNK / ATTN_TILE;
    attn_tiles(j, chunk * tiles, (chunk + 1) * tiles, state, space);
}

void attn_state_merge(const struct attn_job *j, struct attn_state all, struct attn_state next)
{
    int64_t dv = attn_padded(j->a->d_v), rows = attn_job_rows(j);
    for (int64_t r = 0; r < rows; r++)
        llm_k.attention.merge(all.m + r, all.l + r, all.o + r * dv, next.m + r, next.l + r, next.o + r * dv, dv);
}

void attn_finish(const struct attn_job *j, struct attn_state all)
{
    const struct llm_attn *a = j->a;
    int64_t dv = attn_padded(a->d_v);
    for (int64_t i = 0; i < j->n_queries; i++)
        for (int64_t g = 0; g < j->n_rep; g++) {
            int64_t r = i * j->n_rep + g, head = j->head + g;
            float *o = all.o + r * dv, *out = j->out + i * j->ldo + g * a->d_v;
            if (j->sinks) llm_k.attention.sink(&all.m[r], &all.l[r], o, j->sinks[head], dv);
            bool seen = all.l[r] > 0 || all.l[r] != all.l[r]; /* a NaN reaches the output */
            float inv = seen ? 1 / all.l[r] : 0;
            llm_k.attention.divide(out, o, inv, a->d_v);
            if (j->packed) llm_panels_put(out, j->token + i, head * a->d_v, a->d_v, a->n_heads * a->d_v, j->packed);
            if (j->stats) {
                float *stats = j->stats + 2 * (i * a->n_heads + head);
                stats[0] = seen ? all.m[r] : 0;
                stats[1] = inv;
            }
            if (j->lse) j->lse[i * a->n_heads + head] = seen ? (float)(all.m[r] + log(all.l[r])) : -INFINITY;
        }
}

bool attn_run(const struct attn_job *j, int thread)
{
    int64_t rows = attn_job_rows(j), state = attn_state_floats(rows, j->a->d_v);
    float *memory = llm_scratch(thread, 2 * (size_t)state * sizeof(float) + attn_space_bytes(j));
    if (!memory) return false;
    struct attn_state all = attn_state_in(memory, rows), next = attn_state_in(memory + state, rows);
    int64_t first = attn_job_first_chunk(j), end = attn_job_end_chunk(j);
    attn_chunk(j, first, all, memory + 2 * state);
    for (int64_t chunk = first + 1; chunk < end; chunk++) {
        attn_chunk(j, chunk, next, memory + 2 * state);
        attn_state_merge(j, all, next);
    }
    attn_finish(j, all);
    return true;
}
