/* Attention of new tokens over a KV cache: prefill in one call or several, decoding, and sequences of any lengths in one call. It walks over tiles as
 * llm_attention does, so a token's row has the bits that it has there.
 *
 * Sequences that decode beside each other may share pages of their beginnings. Each shared tile is then packed once for the queries of all of them,
 * and each goes on alone from the running softmax that it has after these tiles. */
#include "tensor/op/attention_internal.h"

#include <stdatomic.h>
#include <string.h>
#include "cpu/dtype.h"
#include "cpu/pool.h"
#include "cpu/profile.h"

#define FEW 16 /* a run of at most this many new tokens is divided along the keys too, so that a long context keeps all threads busy */

#define LEAST_SHARED 2 /* tiles: fewer are not worth copies of the states */
#define SHARED_ROWS 128 /* the maximum of query rows that share a tile: a group of sequences with more is divided */

struct piece { int64_t seq, from, n, chunk; float *states; }; /* chunk: the chunk of keys that it processes, whose states are kept; -1: all chunks */
/* Sequences [seq, seq + n_seqs) of `tokens` tokens in all, whose rows follow each other: their first `tiles` tiles are the same. */
struct group { int64_t seq, n_seqs, tokens, tiles; };
struct cached {
    const struct attn_op *op;
    const struct llm_kv_seq *seqs;
    int64_t n_seqs;
    const struct piece *pieces;
    int64_t n_pieces;
    const int64_t *store_seq, *store_from; /* runs of new tokens to be stored */
    struct group *groups;
    int64_t n_groups, group_chunks; /* group_chunks: the most chunks that the tiles of a group lie in */
    int64_t *shared;             /* [n_seqs] tiles that its group processes; 0: it is in none */
    float **states;              /* [n_seqs] of sequences in groups: as piece.states */
    atomic_bool no_memory;
};

static void store_row(enum llm_dtype type, void *tile, int64_t row, int64_t n_kv_heads, int64_t d, const float *x)
{
    size_t bytes = llm_dtype_bytes(type, (uint64_t)d);
    for (int64_t h = 0; h < n_kv_heads; h++)
        llm_dtypes[type].encode(x + h * d, (char *)tile + (size_t)(h * ATTN_TILE + row) * bytes, (size_t)d);
}

/* Stores up to 64 new tokens of one sequence. */
static void store_piece(void *arg, size_t i, int thread)
{
    const struct cached *f = arg;
    const struct llm_attn *a = &f->op->a;
    const struct llm_kv_seq *s = &f->seqs[f->store_seq[i]];
    (void)thread;
    for (int64_t t = f->store_from[i]; t < attn_min(s->n, f->store_from[i] + ATTN_TILE); t++) {
        int64_t at = s->pos + t, tile = at / ATTN_TILE, row = at % ATTN_TILE;
        store_row(s->view.k_type, s->view.k[tile], row, a->n_kv_heads, a->d_k, f->op->k->data + (s->first + t) * f->op->k->stride);
        if (s->view.v) store_row(s->view.v_type, s->view.v[tile], row, a->n_kv_heads, a->d_v, f->op->v->data + (s->first + t) * f->op->v->stride);
        if (s->queries && t >= s->n - s->n_queries) { /* later queries would overwrite earlier ones in the ring */
            int64_t width = a->n_heads * a->d_k;
            memcpy(s->queries + at % s->n_queries * width, f->op->q->data + (s->first + t) * f->op->q->stride, (size_t)width * sizeof(float));
        }
    }
}

static struct attn_job job_of(const struct cached *f, const struct piece *p, int64_t kv_head)
{
    const struct llm_kv_seq *s = &f->seqs[p->seq];
    struct attn_document d = {.query = s->first + p->from, .n_queries = p->n, .prefix = attn_max(f->op->a.prefix, s->prefix)};
    struct attn_job j = attn_job_of(f->op, &d, kv_head, 0, p->n);
    j.pos = s->pos + p->from;
    j.keys = (struct attn_keys){.n = s->n_keys ? s->n_keys : s->pos + s->n, .view = &s->view, .kv_head = kv_head};
    return j;
}

/* How many of the first tiles, at most `max`, are the same pages. */
static int64_t same_tiles(const struct llm_kv_view *x, const struct llm_kv_view *y, int64_t max)
{
    int64_t n = 0;
    if (x->k_type != y->k_type || x->v_type != y->v_type || !x->v != !y->v) return 0;
    while (n < max && x->k[n] == y->k[n] && (!x->v || x->v[n] == y->v[n])) n++;
    return n;
}

/* Tiles that all of the sequence's tokens see as a whole; 0 if it takes no part in groups. */
static int64_t seen_tiles(const struct llm_kv_seq *s)
{
    return s->n > 0 && s->n <= FEW && s->prefix == 0 && s->n_keys == 0 ? s->pos / ATTN_TILE : 0;
}

/* Finds groups of sequences that follow each other. Masks and biases that depend on the query's position exclude them. */
static void find_groups(struct llm_ctx *c, struct cached *f)
{
    const struct llm_attn *a = &f->op->a;
    const int64_t most = SHARED_ROWS * a->n_kv_heads / a->n_heads;
    f->groups = llm_op_alloc(c, f->n_seqs, sizeof *f->groups);
    f->shared = llm_op_alloc(c, f->n_seqs, sizeof *f->shared);
    f->states = llm_op_alloc(c, f->n_seqs, sizeof *f->states);
    if (llm_ctx_failed(c)) return;
    memset(f->shared, 0, (size_t)f->n_seqs * sizeof *f->shared);
    if (!a->causal || a->window || a->chunk || a->prefix || f->op->bias) return;
    for (int64_t s = 0, end; s < f->n_seqs; s = end) {
        struct group g = {.seq = s, .n_seqs = 1, .tokens = f->seqs[s].n, .tiles = seen_tiles(&f->seqs[s])};
        for (end = s + 1; end < f->n_seqs && g.tiles >= LEAST_SHARED; end++) {
            const struct llm_kv_seq *x = &f->seqs[end], *before = x - 1;
            if (x->first != before->first + before->n || g.tokens + x->n > most) break;
            int64_t tiles = same_tiles(&f->seqs[s].view, &x->view, attn_min(g.tiles, seen_tiles(x)));
            if (tiles < LEAST_SHARED) break;
            g.tiles = tiles;
            g.tokens += x->n;
            g.n_seqs++;
        }
        if (g.n_seqs == 1) continue;
        f->groups[f->n_groups++] = g;
        f->group_chunks = attn_max(f->group_chunks, attn_blocks(g.tiles * ATTN_TILE, ATTN_CHUNK));
        for (int64_t i = s; i < end; i++) f->shared[i] = g.tiles;
    }
}

static float *state_memory(const struct attn_job *j, const struct piece *p, int64_t chunk)
{
    int64_t chunks = attn_job_end_chunk(j), kv_head = j->head / j->n_rep;
    return p->states + (kv_head * chunks + chunk) * attn_state_floats(attn_job_rows(j), j->a->d_v);
}

static void attend_piece(void *arg, size_t i, int thread)
{
    struct cached *f = arg;
    const struct piece *p = &f->pieces[f->n_pieces - 1 - (int64_t)i / f->op->a.n_kv_heads];
    struct attn_job j = job_of(f, p, (int64_t)i % f->op->a.n_kv_heads);
    if (p->chunk < 0) {
        if (!attn_run(&j, thread)) atomic_store(&f->no_memory, true);
        return;
    }
    float *space = llm_scratch(thread, attn_space_bytes(&j));
    if (!space) {
        atomic_store(&f->no_memory, true);
        return;
    }
    const int64_t tiles = ATTN_CHUNK / ATTN_TILE, to = (p->chunk + 1) * tiles, from = attn_max(p->chunk * tiles, f->shared[p->seq]);
    if (from < to) attn_tiles(&j, from, to, attn_state_in(state_memory(&j, p, p->chunk), attn_job_rows(&j)), space);
}

/* One chunk of the tiles that a group shares: its sequences' queries are the rows of one job, and get their parts of its state. */
static void share_piece(void *arg, size_t i, int thread)
{
    struct cached *f = arg;
    const struct group *g = &f->groups[(int64_t)i / f->op->a.n_kv_heads / f->group_chunks];
    const int64_t chunk = (int64_t)i / f->op->a.n_kv_heads % f->group_chunks, kv_head = (int64_t)i % f->op->a.n_kv_heads;
    const int64_t tiles = ATTN_CHUNK / ATTN_TILE, from = chunk * tiles, to = attn_min(from + tiles, g->tiles);
    if (from >= to) return;
    const struct piece all = {.seq = g->seq, .n = g->tokens};
    struct attn_job j = job_of(f, &all, kv_head);
    j.keys.n = j.pos = g->tiles * ATTN_TILE; /* every row sees all of these keys */
    const int64_t rows = attn_job_rows(&j), dv = attn_padded(f->op->a.d_v);
    const size_t floats = (size_t)attn_state_floats(rows, f->op->a.d_v);
    float *memory = llm_scratch(thread, floats * sizeof *memory + attn_space_bytes(&j));
    if (!memory) {
        atomic_store(&f->no_memory, true);
        return;
    }
    struct attn_state state = attn_state_in(memory, rows);
    attn_tiles(&j, from, to, state, memory + floats);
    for (int64_t s = g->seq, row = 0; s < g->seq + g->n_seqs; s++) {
        const struct piece own = {.seq = s, .n = f->seqs[s].n, .states = f->states[s]};
        struct attn_job of = job_of(f, &own, kv_head);
        const int64_t n = attn_job_rows(&of);
        struct attn_state to_state = attn_state_in(state_memory(&of, &own, chunk), n);
        memcpy(to_state.m, state.m + row, (size_t)n * sizeof *state.m);
        memcpy(to_state.l, state.l + row, (size_t)n * sizeof *state.l);
        memcpy(to_state.o, state.o + row * dv, (size_t)(n * dv) * sizeof *state.o);
        row += n;
    }
}

/* Merges the chunks of a run that was divided along the keys. Item i does so if it is the first of its run. */
static void merge_piece(void *arg, size_t i, int thread)
{
    const struct cached *f = arg;
    const struct piece *p = &f->pieces[(int64_t)i / f->op->a.n_kv_heads];
    (void)thread;
    if (p->chunk < 0) return;
    struct attn_job j = job_of(f, p, (int64_t)i % f->op->a.n_kv_heads);
    int64_t first = attn_job_first_chunk(&j), rows = attn_job_rows(&j);
    if (p->chunk != first) return;
    struct attn_state all = attn_state_in(state_memory(&j, p, first), rows);
    for (int64_t chunk = first + 1; chunk < attn_job_end_chunk(&j); chunk++)
        attn_state_merge(&j, all, attn_state_in(state_memory(&j, p, chunk), rows));
    attn_finish(&j, all);
}

/* Fills `pieces` (NULL: counts them only) and sets *n_floats to the size of the kept states. Returns the number of pieces. */
static int64_t cut(const struct cached *f, struct piece *pieces, float *states, int64_t *n_floats)
{
    const struct llm_attn *a = &f->op->a;
    int64_t block = attn_piece_queries(a, f->op->q->rows), n = 0;
    *n_floats = 0;
    for (int64_t s = 0; s < f->n_seqs; s++) {
        int64_t tokens = f->seqs[s].n;
        struct piece p = {.seq = s, .n = tokens, .chunk = -1};
        struct attn_job j = tokens > 0 ? job_of(f, &p, 0) : (struct attn_job){0};
        const bool divided = tokens > 0 && tokens <= FEW && attn_job_end_chunk(&j) - attn_job_first_chunk(&j) > 1;
        if (divided || f->shared[s] > 0) {
            f->states[s] = p.states = states ? states + *n_floats : NULL;
            for (p.chunk = attn_job_first_chunk(&j); p.chunk < attn_job_end_chunk(&j); p.chunk++, n++)
                if (pieces) pieces[n] = p;
            *n_floats += a->n_kv_heads * attn_job_end_chunk(&j) * attn_state_floats(attn_job_rows(&j), a->d_v);
            continue;
        }
        const int64_t even = tokens > 0 ? attn_blocks(tokens, attn_blocks(tokens, block)) : 0; /* pieces of one size keep all threads busy */
        for (p.from = 0; p.from < tokens; p.from += even, n++) {
            p.n = attn_min(even, tokens - p.from);
            if (pieces) pieces[n] = p;
        }
    }
    return n;
}

static void run_store(struct llm_ctx *c, struct cached *f)
{
    int64_t n = 0;
    for (int64_t s = 0; s < f->n_seqs; s++) n += attn_blocks(f->seqs[s].n, ATTN_TILE);
    int64_t *seq = llm_op_alloc(c, n, sizeof *seq), *from = llm_op_alloc(c, n, sizeof *from);
    if (!seq || !from) return;
    f->store_seq = seq;
    f->store_from = from;
    n = 0;
    for (int64_t s = 0; s < f->n_seqs; s++)
        for (int64_t t = 0; t < f->seqs[s].n; t += ATTN_TILE, n++) {
            seq[n] = s;
            from[n] = t;
        }
    llm_parallel((size_t)n, store_piece, f);
}

static void run_attend(struct llm_ctx *c, struct cached *f)
{
    int64_t n_floats;
    find_groups(c, f);
    if (llm_ctx_failed(c)) return;
    f->n_pieces = cut(f, NULL, NULL, &n_floats);
    struct piece *pieces = llm_op_alloc(c, f->n_pieces, sizeof *pieces);
    float *states = llm_op_alloc(c, n_floats, sizeof *states);
    if (llm_ctx_failed(c)) return;
    cut(f, pieces, states, &n_floats);
    f->pieces = pieces;
    if (f->n_groups > 0) llm_parallel((size_t)(f->n_groups * f->group_chunks * f->op->a.n_kv_heads), share_piece, f);
    llm_parallel((size_t)(f->n_pieces * f->op->a.n_kv_heads), attend_piece, f);
    if (n_floats) llm_parallel((size_t)(f->n_pieces * f->op->a.n_kv_heads), merge_piece, f);
    if (atomic_load(&f->no_memory)) llm_op_fail(c, EX_UNAVAILABLE, "out of memory in attention");
}

/* Rotates the queries of sequences whose keys are stored so. */
static void rotate_queries(struct llm_ctx *c, struct attn_op *op, struct llm_tensor *copy, const struct llm_kv_seq *seqs, int64_t n_seqs)
{
    const struct llm_tensor *q = op->q;
    bool any = false;
    for (int64_t s = 0; s < n_seqs; s++) any |= llm_dtype_unrotated(seqs[s].view.k_type) != seqs[s].view.k_type;
    float *data = any ? llm_op_alloc(c, q->rows * q->cols, sizeof *data) : NULL;
    if (!data) return;
    for (int64_t r = 0; r < q->rows; r++) memcpy(data + r * q->cols, q->data + r * q->stride, (size_t)q->cols * sizeof *data);
    for (int64_t s = 0; s < n_seqs; s++) {
        const struct llm_kv_seq *x = &seqs[s];
        if (llm_dtype_unrotated(x->view.k_type) != x->view.k_type) llm_dtype_rotate(data + x->first * q->cols, (size_t)(x->n * q->cols));
    }
    *copy = *q;
    copy->data = data;
    copy->stride = q->cols;
    op->q = copy;
}

static bool check_sequences(struct llm_ctx *c, const struct attn_op *op, bool stores, const struct llm_kv_seq *seqs, int64_t n_seqs)
{
    const struct llm_attn *a = &op->a;
    const char *wrong = NULL;
    if (a->doc_start || a->prefixes || a->kv_len || a->kv_row_len) wrong = "a cache holds one document of one sequence";
    for (int64_t s = 0; s < n_seqs && !wrong; s++) {
        const struct llm_kv_seq *q = &seqs[s];
        const struct llm_dtype_row *k = &llm_dtypes[q->view.k_type], *v = &llm_dtypes[q->view.v_type];
        bool masks = stores || a->causal || a->window || a->rel_bias;
        if (q->n_keys < 0 || (q->n_keys && masks)) wrong = "n_keys: expected all keys to be seen as they are";
        else if (q->prefix < 0 || (q->prefix > 0 && (a->chunk || a->window))) wrong = "expected a prefix without a window";
        else if (q->first < 0 || q->n < 0 || q->pos < 0 || q->n > op->q->rows - q->first) wrong = "expected the new tokens within q";
        else if (!k->encode || !k->decode || !v->encode || !v->decode) wrong = "expected a cache of floating point or block type";
        else if (a->d_k % k->block_size || a->d_v % v->block_size) wrong = "expected head widths of whole blocks of the cache's type";
    }
    if (op->k->rows != op->q->rows) wrong = "expected as many keys as queries";
    if (wrong) llm_op_fail(c, LLM_EX_FAILURE, "attention over a cache: %s", wrong);
    return !wrong;
}

static void count_cached(const struct llm_ctx *c, const struct cached *f)
{
    const struct llm_attn *a = &f->op->a;
    for (int64_t s = 0; s < f->n_seqs; s++) {
        const struct llm_kv_seq *q = &f->seqs[s];
        const uint64_t row = (uint64_t)a->n_kv_heads;
        const size_t width = llm_dtype_bytes(q->view.k_type, row * (uint64_t)a->d_k) + llm_dtype_bytes(q->view.v_type, row * (uint64_t)a->d_v);
        int64_t keys = q->n_keys ? q->n_keys : q->pos + q->n;
        double cache = (double)width * (double)keys, rows = 4 * (double)(q->n * a->n_heads * (a->d_k + a->d_v));
        attn_count(c, a, attn_pairs(a, q->pos, q->n, keys), 1, cache + rows);
    }
}

struct llm_tensor *llm_attention_cached(struct llm_ctx *c, struct llm_tensor *q, struct llm_tensor *k, struct llm_tensor *v, const struct llm_attn *a,
                                        const struct llm_kv_seq *seqs, int64_t n_seqs)
{
    return llm_attention_cached_lse(c, q, k, v, a, seqs, n_seqs, NULL);
}

struct llm_tensor *llm_attention_cached_lse(struct llm_ctx *c, struct llm_tensor *q, struct llm_tensor *k, struct llm_tensor *v,
                                            const struct llm_attn *a, const struct llm_kv_seq *seqs, int64_t n_seqs, struct llm_tensor **lse)
{
    LLM_PROFILE("attention over a cache", 0);
    if (lse) *lse = &c->nothing;
    if (llm_ctx_failed(c) || !attn_check(c, q, k, v, a)) return &c->nothing;
    struct attn_op op = {.a = *a, .math = &llm_k.attention.math[c->compute == LLM_COMPUTE_BF16], .q = q,
                         .k = k ? k : q, .v = k ? v : q}; /* jobs read the cache */
    if (!check_sequences(c, &op, k != NULL, seqs, n_seqs)) return &c->nothing;
    op.out = attn_output(c, &op);
    if (lse) op.lse = (*lse = llm_tensor_create(c, q->rows, a->n_heads))->data;
    size_t mark = llm_arena_mark(&c->acts);
    op.sinks = attn_values(c, a->sinks, a->n_heads, "sinks");
    op.bias = attn_bias_table(c, a);
    struct cached f = {.op = &op, .seqs = seqs, .n_seqs = n_seqs};
    if (llm_profiling) count_cached(c, &f);
    if (k && !llm_ctx_failed(c)) run_store(c, &f);
    struct llm_tensor rotated;
    rotate_queries(c, &op, &rotated, seqs, n_seqs); /* the ones that are traced stay */
    if (!llm_ctx_failed(c)) run_attend(c, &f);
    llm_arena_pop(&c->acts, mark);
    return llm_ctx_failed(c) ? &c->nothing : op.out;
}

void llm_attention_store(struct llm_ctx *c, struct llm_tensor *k, struct llm_tensor *v, const struct llm_attn *a, const struct llm_kv_seq *seqs,
                         int64_t n_seqs)
{
    LLM_PROFILE("attention over a cache", 0);
    struct attn_op op = {.a = *a, .q = k, .k = k, .v = v};
    if (llm_ctx_failed(c) || !check_sequences(c, &op, true, seqs, n_seqs)) return;
    if (k->cols != a->n_kv_heads * a->d_k || v->cols != a->n_kv_heads * a->d_v || v->rows != k->rows) {
        llm_op_fail(c, LLM_EX_FAILURE, "keys and values to store: expected n_kv_heads·d_k and n_kv_heads·d_v columns");
        return;
    }
    struct cached f = {.op = &op, .seqs = seqs, .n_seqs = n_seqs};
    size_t mark = llm_arena_mark(&c->acts);
    run_store(c, &f);
    llm_arena_pop(&c->acts, mark);
}
