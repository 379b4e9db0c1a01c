/* Shared by attention's forward pass, backward pass and cached form: which keys a query sees, and the walk of a block of queries over tiles of keys.
 * Positions are counted from the document's start, so that a document that is packed with others has the bits that it has alone. */
#ifndef LLM_TENSOR_OP_ATTENTION_INTERNAL_H
#define LLM_TENSOR_OP_ATTENTION_INTERNAL_H

#include "cpu/kernels.h"
#include "tensor/ops.h"
#include "tensor/tape.h"

#define ATTN_TILE LLM_ATTN_TILE
#define ATTN_CHUNK 1024    /* keys whose tiles share one running maximum; chunks are merged left to right */
#define ATTN_ROWS 1024     /* the maximum of query rows that share a packed tile: their sums stay in the L2 cache */
#define ATTN_PIECES 32     /* fewer rows share a tile if there would be fewer work items than this */
#define ATTN_SUB_ROWS 48   /* rows processed at a time, so that scores and probabilities stay in the L1 cache */
#define ATTN_SLICE 12      /* rows of a product at the causal diagonal */

static inline int64_t attn_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t attn_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t attn_blocks(int64_t n, int64_t size) { return (n + size - 1) / size; }
/* n columns or rows, rounded up to the vector width of the kernels, which need that room. */
static inline int64_t attn_padded(int64_t n) { return attn_blocks(n, LLM_ATTN_LANES) * LLM_ATTN_LANES; }

/* Prefetches `rows` rows of `width` floats into the L2 cache. Rows of one head lie pages apart, which the hardware does not follow. */
static inline void attn_prefetch(const float *p, int64_t ld, int64_t rows, int64_t width)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < width; i += 16) __builtin_prefetch(p + r * ld + i, 0, 2);
}

/* The keys [first, last) among n that query i sees. It also sees those of the prefix. */
struct attn_range { int64_t first, last; };
static inline struct attn_range attn_seen(const struct llm_attn *a, int64_t i, int64_t n)
{
    struct attn_range r = {0, n};
    if (a->causal) r.last = attn_min(r.last, i + 1);
    if (a->window > 0) {
        r.first = attn_max(0, i - a->window + 1);
        r.last = attn_min(r.last, i + a->window);
    }
    if (a->chunk > 0) {
        int64_t own = i / a->chunk * a->chunk, before = attn_max(0, own - a->chunk);
        if (a->chunk_part != LLM_CHUNK_EARLIER) r.first = attn_max(r.first, a->chunk_part == LLM_CHUNK_OWN ? own : before);
        if (a->chunk_part != LLM_CHUNK_OWN) r.last = attn_min(r.last, a->chunk_part == LLM_CHUNK_BEFORE ? own : before);
    }
    return r;
}
/* Does any query of [i0, i1] see a key of the tile that begins at `at`? */
static inline bool attn_tile_seen(const struct llm_attn *a, int64_t prefix, int64_t at, int64_t i0, int64_t i1, int64_t n)
{
    return at < n && (at < prefix || (attn_seen(a, i0, n).first < at + ATTN_TILE && attn_seen(a, i1, n).last > at));
}
/* Does every query of [i0, i1] see all keys of the tile? */
static inline bool attn_tile_full(const struct llm_attn *a, int64_t prefix, int64_t at, int64_t i0, int64_t i1, int64_t n)
{
    if (at + ATTN_TILE > n) return false;
    return at + ATTN_TILE <= prefix || (attn_seen(a, i1, n).first <= at && attn_seen(a, i0, n).last >= at + ATTN_TILE);
}

/* Dropout of probabilities. The counter of a random number is (row, query's position in row, head · stride + key's position in row). */
struct attn_dropout {
    float p;
    uint64_t seed, step;
    uint32_t layer, row, stride;
    int64_t first_head;               /* number of head 0 */
    int64_t query_origin, key_origin; /* position in the row of the document's first query and key */
};
/* Fills keep[64]: 0 or 1/(1 - p) for each of the 64 keys from `key` on. */
void attn_keep(const struct attn_dropout *d, int64_t head, int64_t query, int64_t key, float *keep);
/* The relative position bias for key - query; `table` [2·rel_max - 1] is that of one head. */
static inline float attn_bias(const float *table, int64_t rel_max, int64_t key, int64_t query)
{
    int64_t d = attn_max(-(rel_max - 1), attn_min(rel_max - 1, key - query));
    return table[d + rel_max - 1];
}

/* The keys and values of one KV head of one document: matrices, or tiles of a cache. */
struct attn_keys {
    int64_t n;
    const float *k, *v;
    int64_t ldk, ldv;
    const struct llm_kv_view *view; /* NULL: the matrices */
    int64_t kv_head;
};

/* A run of queries of one document, all heads that share one KV head. Row i · n_rep + g is query i, head g. */
struct attn_job {
    const struct llm_attn *a;
    const struct llm_attention_math *math;
    struct attn_keys keys;
    int64_t pos, n_queries, head, n_rep; /* position of the first query; number of the first head */
    int64_t prefix;          /* all queries see the first `prefix` keys */
    const float *q; int64_t ldq;
    float *out; int64_t ldo;
    void *packed; int64_t token; /* llm_tensor.packed of the whole output, or NULL; the row of the first query in it */
    float *stats;            /* [n_queries, n_heads, 2]: maximum m and 1/l, l = Σ exp(score - m), of each query and head, for the backward pass; or
                              * NULL */
    float *lse;              /* [n_queries, n_heads] or NULL */
    const float *bias, *sinks; /* [n_heads, 2·rel_max - 1], [n_heads]; NULL */
    struct attn_dropout dropout; /* p = 0: none */
};
static inline int64_t attn_job_rows(const struct attn_job *j) { return j->n_queries * j->n_rep; }
/* The chunks of keys that any of the job's queries sees are [attn_job_first_chunk, attn_job_end_chunk); at least one. */
static inline int64_t attn_job_first_chunk(const struct attn_job *j)
{
    int64_t first = attn_seen(j->a, j->pos, j->keys.n).first;
    return j->prefix > 0 ? 0 : attn_min(first, attn_max(0, j->keys.n - 1)) / ATTN_CHUNK;
}
static inline int64_t attn_job_end_chunk(const struct attn_job *j)
{
    int64_t end = attn_max(attn_seen(j->a, j->pos + j->n_queries - 1, j->keys.n).last, attn_min(j->prefix, j->keys.n));
    return attn_max(attn_job_first_chunk(j) + 1, attn_blocks(end, ATTN_CHUNK));
}

/* The running softmax of a job's rows: maximum m [rows], sum l [rows], unnormalised output o [rows, attn_padded(d_v)]. */
struct attn_state { float *m, *l, *o; };
static inline int64_t attn_state_floats(int64_t rows, int64_t d_v) { return attn_padded(rows) * (attn_padded(d_v) + 2); }
struct attn_state attn_state_in(float *memory, int64_t rows);

size_t attn_space_bytes(const struct attn_job *j);
/* Fills `state` from the keys of one chunk alone. `space`: attn_space_bytes of work space. */
void attn_chunk(const struct attn_job *j, int64_t chunk, struct attn_state state, void *space);
/* Processes the tiles [from, to), which lie in one chunk. If they begin with the chunk, `state` begins anew; else it goes on. */
void attn_tiles(const struct attn_job *j, int64_t from, int64_t to, struct attn_state state, void *space);
/* Merges the state of the next chunk into `all`, the state of the chunks before it. */
void attn_state_merge(const struct attn_job *j, struct attn_state all, struct attn_state next);
/* Adds the sinks, divides by l, and writes j->out, stats and lse. */
void attn_finish(const struct attn_job *j, struct attn_state all);
/* Runs the whole job in the thread's scratch memory: every chunk, merged in order, then attn_finish. False: out of memory. */
bool attn_run(const struct attn_job *j, int thread);

/* Adds attention's cost to the profile (cpu/profile.h): `pairs` of a query and a key that it sees, processed `passes` times, 2 FLOPs for each channel
 * of scores and of values. */
void attn_count(const struct llm_ctx *c, const struct llm_attn *a, double pairs, int passes, double bytes);
/* The number of pairs of a query at positions [from, from + n) and a key among n_keys that it sees. */
double attn_pairs(const struct llm_attn *a, int64_t from, int64_t n, int64_t n_keys);

/* One document of one row of a batch. */
struct attn_document {
    int64_t query, n_queries; /* first token of q; how many */
    int64_t key, n_keys;      /* first token of k and v; how many are seen */
    int64_t row, origin;      /* row of the batch; position in the row of the first query (and key, unless cross-attention) */
    int64_t prefix;           /* all queries see the first `prefix` keys */
    int64_t grad_block;       /* number of its first block of LLM_FOLD queries, counted over all documents */
};

/* ---- attention_members.c: work that ranks divide (llm_attn_members) ---- */
static inline bool attn_owns(const struct llm_attn *a, int64_t token)
{
    return !a->members || a->members->owner[token] == a->members->member;
}
/* Of each token that another member owns, stats [tokens, n_heads, 2] and d [tokens, n_heads] arrive. False after a failure. */
bool attn_exchange_statistics(struct llm_ctx *c, const struct llm_attn *a, int64_t tokens, float *stats, float *d);

/* The op's arguments, and the data that its backward pass needs. */
struct attn_op {
    struct llm_attn a;
    const struct llm_attention_math *math;
    struct llm_tensor *q, *k, *v, *out;
    float *stats, *lse;         /* [tokens, n_heads, 2] and [tokens, n_heads], or NULL */
    const float *bias, *sinks;  /* the parameters' values as F32, or NULL */
    struct attn_dropout dropout; /* that of row 0 */
    const struct attn_document *documents;
    int64_t n_documents;
};
/* The op's output for as many tokens as q has, with panels beside it if c->to_panels and heads are whole units of panels. */
struct llm_tensor *attn_output(struct llm_ctx *c, const struct attn_op *op);
/* The pairs of a query and a key that it sees, over all documents of the op. */
double attn_op_pairs(const struct attn_op *op);
/* Queries per work item, for an op with `queries` queries. */
int64_t attn_piece_queries(const struct llm_attn *a, int64_t queries);
/* Queries or keys [from, end) of a document. */
struct attn_piece { const struct attn_document *d; int64_t from, end; };
/* All queries or keys of the documents that this rank owns, in runs of at most `size`: *n of them, on `acts`. NULL after a failure. */
struct attn_piece *attn_cut(struct llm_ctx *c, const struct attn_op *op, int64_t size, bool keys, int64_t *n);
/* The job of the queries [from, from + n) of a document (counted from its start). */
struct attn_job attn_job_of(const struct attn_op *op, const struct attn_document *d, int64_t kv_head, int64_t from, int64_t n);
void attn_backward(struct llm_ctx *c, struct llm_node *n);

/* False, with the context failed, if the arguments are out of range or do not fit the widths of q, k and v. */
bool attn_check(struct llm_ctx *c, const struct llm_tensor *q, const struct llm_tensor *k, const struct llm_tensor *v, const struct llm_attn *a);
/* The relative position bias as [n_heads, 2·rel_max - 1], also if the parameter is by bucket. NULL if there is no bias, and after a failure. */
const float *attn_bias_table(struct llm_ctx *c, const struct llm_attn *a);
/* A small parameter's n values as F32, on `acts` if they had to be converted. NULL if p is NULL, and after a failure. */
const float *attn_values(struct llm_ctx *c, const struct llm_param *p, int64_t n, const char *what);

#endif
