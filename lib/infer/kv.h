/* Caches: what a model keeps of a sequence from one pass to the next. Keys and values are stored in pages of 64 positions; a page holds those of all
 * layers. Sequences therefore grow and end without copying, and sequences with the same beginning share pages. The part of a page that layers with
 * sliding windows use can be released alone, when the windows of its only sequence have passed it. The state of recurrent layers does
 * not grow with the sequence; each sequence has its own. Positions count from 0. */
#ifndef LLM_INFER_KV_H
#define LLM_INFER_KV_H

#include "infer/kvtypes.h"
#include "model/model.h"

struct llm_kv_chunk; /* memory of pages */
struct llm_kv_part;
struct llm_kv_page; /* one tile of k and one of v a layer; counted by the sequences that hold it */

/* A layer, and the offsets of its data in a page and in a sequence's recurrent state. */
struct llm_kv_layer {
    struct llm_state_shape shape;
    struct llm_kv_pair types;  /* those of its source where the layer shares */
    size_t k_row, v_row;       /* bytes of one head's key and value at one position */
    size_t k_at, v_at;         /* bytes from the beginning of the page's part; those of its source where the layer shares */
    bool local;                /* all that read it have sliding windows: it lies in the part that can be released alone */
    int64_t state_at;          /* floats from the beginning of the sequence's state */
};

/* The allocator of pages. Not thread-safe: one thread at a time. */
struct llm_kv_pool {
    struct llm_kv_layer *layers;
    int64_t n_layers;
    int64_t n_all;             /* n_layers, and one more if a layer after them drafts */
    char *types;               /* of all layers but the drafting one (llm_kv_types_text) */
    size_t token_bytes;        /* of the keys and values of a token */
    size_t page_bytes;         /* of both parts */
    size_t local_bytes;        /* of the part of local layers */
    int64_t window;            /* the largest of local layers; 0: there are none */
    int64_t state_floats;      /* of a sequence; 0: none */
    int64_t n_pages;           /* pages allocated so far, in use or free */
    int64_t n_used, n_states;  /* pages in use; sequences that have a recurrent state */
    int64_t n_passed;            /* of the pages in use, those without their local part */
    struct llm_kv_page *unused;
    struct llm_kv_part *unused_parts; /* local parts */
    unsigned char *zeros;      /* [local_bytes] what views read in place of a local part that was released: attention masks it */
    struct llm_kv_chunk *chunks; /* pages come from the first */
};
/* `types`: infer/kvtypes.h. Fails (69) if they do not fit the model: block types need a head size that is a multiple of 32. Release
 * either way. */
int llm_kv_pool_init(struct llm_kv_pool *p, const struct llm_config *c, const char *types, struct llm_err *e) LLM_MUST_CHECK;
/* Adds the drafting layer (infer/draft.h), whose index is n_layers and whose types are those of the layer before it. To be called before the first
 * sequence begins. */
int llm_kv_pool_add_draft(struct llm_kv_pool *p, const struct llm_config *c, struct llm_err *e) LLM_MUST_CHECK;
void llm_kv_pool_release(struct llm_kv_pool *p); /* after the sequences */
/* Bytes of the pages and states in use. */
int64_t llm_kv_used_bytes(const struct llm_kv_pool *p);
/* Bytes of a sequence of n tokens that shares nothing. */
int64_t llm_kv_sequence_bytes(const struct llm_kv_pool *p, int64_t n);
/* The same at most, while passes of up to `pass` tokens read it and llm_kv_release_passed releases what it can behind the first `held` tokens. */
int64_t llm_kv_windowed_bytes(const struct llm_kv_pool *p, int64_t n, int64_t held, int64_t pass);

/* Of an evicted cache, which has lost keys: which tokens the rows that it began with belong to. Sequences that share it count themselves. */
struct llm_kv_kept {
    int64_t users;
    int64_t n, rows;           /* the text's first n tokens have `rows` rows in each head, 1 ≤ rows ≤ n */
    int64_t recent;            /* all heads have the last `recent` of these tokens, at least 1 */
    int64_t n_layers;
    int32_t *tokens[];         /* [n_layers]: [rows, n_kv_heads], ascending in each head; NULL: the layer has no keys of its own */
};

/* One sequence. The key of token t of a text lies in row t of each head; in an evicted cache in an earlier one. */
struct llm_kv {
    struct llm_kv_pool *pool;
    int64_t n;                 /* tokens whose keys and values are stored; the state is that after the last of them */
    int32_t *ids;              /* [n] */
    size_t ids_room;
    struct llm_kv_page **pages;
    int64_t n_pages, pages_room;
    int64_t passed;            /* rows at the beginning whose local parts may be missing */
    int64_t looked;            /* pages at the last llm_kv_release_passed */
    void **tiles;              /* [n_all][2][pages_room]: what views point to */
    float *state;              /* [pool->state_floats] from the first reserve on */
    float *queries;            /* NULL, or [n_layers][n_queries][query_width]: rings of the queries of the last tokens (struct llm_kv_seq) */
    int64_t n_queries, query_width;
    int64_t traced;            /* how many of the last tokens have left their queries there, or would have; at most n_queries count */
    const float *adapters;     /* factors of the model's adapters for this sequence (struct llm_adapter_rows); NULL: 1 each. Borrowed; set before
                                * the first token */
    const float *strengths;    /* of the model's steering directions for this sequence (llm_editors_strengths); NULL: their own. As `adapters` */
    struct llm_kv_kept *kept;  /* NULL: no key was evicted */
    struct llm_kv *memory;     /* encoder-decoders: the source's tokens, whose keys and values cross-attention looks at; NULL: none; owned */
};
void llm_kv_init(struct llm_kv *kv, struct llm_kv_pool *pool);
void llm_kv_release(struct llm_kv *kv);
/* An empty memory, with room for `n` tokens, in place of what there was. */
int llm_kv_remember(struct llm_kv *kv, int64_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Keeps the queries of the last `n` tokens from now on; `width` = n_heads·d_k. */
int llm_kv_trace(struct llm_kv *kv, int64_t n, int64_t width, struct llm_err *e) LLM_MUST_CHECK;
/* Rows of keys in each head: n, or fewer in an evicted cache. */
int64_t llm_kv_rows(const struct llm_kv *kv);
/* Makes an empty sequence the evicted cache of kept->n tokens, whose users become one more. The caller then reserves room for these tokens, fills
 * kept->rows rows of each head, and appends the tokens. */
void llm_kv_keep(struct llm_kv *kv, struct llm_kv_kept *kept);
void llm_kv_kept_release(struct llm_kv_kept *k); /* one user fewer; NULL is fine */
/* Room for `n` tokens in all; pages from the present end on become this sequence's own. */
int llm_kv_reserve(struct llm_kv *kv, int64_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Whether some page is this sequence's alone, so that its release frees memory. */
bool llm_kv_owns_pages(const struct llm_kv *kv);
/* Bytes by which the pool's use grows if `n` more tokens are stored. */
int64_t llm_kv_growth(const struct llm_kv *kv, int64_t n);
/* Room for `n` tokens in all; pages from the position `from` on become this sequence's own. */
int llm_kv_own(struct llm_kv *kv, int64_t from, int64_t n, struct llm_err *e) LLM_MUST_CHECK;
/* The cache holds `n` more tokens (their keys and values have been stored). Room must have been reserved. */
void llm_kv_append(struct llm_kv *kv, const int32_t *ids, int64_t n);
/* Releases the local parts of pages that no window of the next token reaches, if no other sequence has the page. What is removed or read of the
 * sequence later must be within its windows: not of caches that are saved, shared or traced. */
void llm_kv_release_passed(struct llm_kv *kv);
/* Whether tokens from `n` on can be removed. Keys and values can, unless parts that a window would reach were released; a recurrent state can only
 * return to its beginning, an evicted cache to tokens that all heads have. A caller that will need to go back forks the sequence first, or uses
 * llm_engine_rewind, which runs tokens again if it must. */
bool llm_kv_can_truncate(const struct llm_kv *kv, int64_t n);
/* Removes tokens from `n` on. llm_kv_can_truncate must be true. */
void llm_kv_truncate(struct llm_kv *kv, int64_t n);
/* *to (initialised, empty, of the same pool) becomes a copy that shares pages, also of a memory, with the same adapters. Queries are not copied. */
int llm_kv_fork(struct llm_kv *to, const struct llm_kv *from, struct llm_err *e) LLM_MUST_CHECK;
/* One layer; valid until the next reserve. */
struct llm_kv_view llm_kv_view(const struct llm_kv *kv, int64_t layer);
/* The beginning of a layer's recurrent state; NULL: the model has none. */
float *llm_kv_state(const struct llm_kv *kv, int64_t layer);
/* The key (value) in a row of a head: k_row (v_row) bytes. */
void *llm_kv_key(const struct llm_kv *kv, int64_t layer, int64_t head, int64_t row);
void *llm_kv_value(const struct llm_kv *kv, int64_t layer, int64_t head, int64_t row);

#endif
