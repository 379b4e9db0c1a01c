/* Short pieces merge in place by scanning for the lowest rank; long ones with a linked list and a heap, n log n. */
#include "token/model/bpe.h"
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"

static inline uint64_t pair_of(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 32 | right;
}

static inline size_t slot_of(const struct llm_bpe *b, uint64_t pair)
{
    return (size_t)((pair ^ pair >> 29) * UINT64_C(0x9E3779B97F4A7C15) >> (64 - b->bits));
}

const struct llm_bpe_slot *llm_bpe_find(const struct llm_bpe *b, uint32_t left, uint32_t right)
{
    uint64_t pair = pair_of(left, right);
    size_t mask = ((size_t)1 << b->bits) - 1;
    for (size_t i = slot_of(b, pair);; i = (i + 1) & mask) {
        const struct llm_bpe_slot *s = &b->slots[i];
        if (s->pair == pair)
            return s;
        if (s->pair == UINT64_MAX)
            return NULL;
    }
}

static inline uint32_t rank_of(const struct llm_bpe *b, uint32_t left, uint32_t right)
{
    const struct llm_bpe_slot *s = llm_bpe_find(b, left, right);
    return s ? s->rank : LLM_BPE_NONE;
}

int llm_bpe_init(struct llm_bpe *b, struct llm_bpe_merge *merges, size_t n, struct llm_err *e)
{
    b->merges = merges;
    b->n_merges = n;
    for (b->bits = 10; (size_t)1 << b->bits < n * 2; b->bits++) {
    }
    size_t slots = (size_t)1 << b->bits;
    b->slots = llm_alloc(slots, sizeof *b->slots, "merges", e);
    b->bytes = llm_alloc(65536, sizeof *b->bytes, "merges", e);
    if (!b->slots || !b->bytes)
        return -1;
    memset(b->slots, 0xFF, slots * sizeof *b->slots);
    for (size_t i = 0; i < n; i++) {
        const struct llm_bpe_merge *m = &merges[i];
        uint64_t pair = pair_of(m->left, m->right);
        size_t at = slot_of(b, pair);
        while (b->slots[at].pair != UINT64_MAX && b->slots[at].pair != pair)
            at = (at + 1) & (slots - 1);
        if (b->slots[at].pair == UINT64_MAX || b->slots[at].rank > m->rank)
            b->slots[at] = (struct llm_bpe_slot){pair, m->rank, m->id};
    }
    for (unsigned left = 0; left < 256; left++)
        for (unsigned right = 0; right < 256; right++) {
            const struct llm_bpe_slot *s = NULL;
            if (b->byte_id[left] != LLM_BPE_NONE && b->byte_id[right] != LLM_BPE_NONE)
                s = llm_bpe_find(b, b->byte_id[left], b->byte_id[right]);
            b->bytes[left << 8 | right] = s ? *s : (struct llm_bpe_slot){UINT64_MAX, LLM_BPE_NONE, 0};
        }
    return 0;
}

void llm_bpe_release(struct llm_bpe *b)
{
    free(b->merges);
    free(b->slots);
    free(b->bytes);
    *b = (struct llm_bpe){0};
}

void llm_bpe_work_release(struct llm_bpe_work *w)
{
    free(w->long_words);
    *w = (struct llm_bpe_work){0};
}

static int no_token(unsigned char byte, struct llm_err *e)
{
    return llm_fail(e, EX_DATAERR, "byte 0x%02X has no token in this vocabulary", byte);
}

/* Merges `n` symbols, of which `rank` and `made` belong to the pair with the next. How many are left. */
static inline size_t merge_short(const struct llm_bpe *b, uint32_t *id, uint32_t *rank, uint32_t *made, size_t n, struct llm_bpe_merge *last)
{
    while (n > 1) {
        size_t best = 0;
        uint32_t lowest = rank[0];
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < lowest) {
                lowest = rank[i];
                best = i;
            }
        if (lowest == LLM_BPE_NONE)
            break;
        if (last)
            *last = (struct llm_bpe_merge){id[best], id[best + 1], lowest, made[best]};
        id[best] = made[best];
        n--;
        memmove(id + best + 1, id + best + 2, (n - best - 1) * sizeof *id);
        if (best + 1 < n) {
            memmove(rank + best + 1, rank + best + 2, (n - best - 2) * sizeof *rank);
            memmove(made + best + 1, made + best + 2, (n - best - 2) * sizeof *made);
            const struct llm_bpe_slot *s = llm_bpe_find(b, id[best], id[best + 1]);
            rank[best] = s ? s->rank : LLM_BPE_NONE;
            made[best] = s ? s->id : 0;
        }
        if (best > 0) {
            const struct llm_bpe_slot *s = llm_bpe_find(b, id[best - 1], id[best]);
            rank[best - 1] = s ? s->rank : LLM_BPE_NONE;
            made[best - 1] = s ? s->id : 0;
        }
    }
    return n;
}

static void encode_short(const struct llm_bpe *b, const unsigned char *p, size_t n, int32_t *out, size_t *n_out,
                         struct llm_bpe_merge *last)
{
    uint32_t id[LLM_BPE_SHORT + 1], rank[LLM_BPE_SHORT + 1], made[LLM_BPE_SHORT + 1];
    for (size_t i = 0; i < n; i++)
        id[i] = b->byte_id[p[i]];
    for (size_t i = 0; i + 1 < n; i++) {
        const struct llm_bpe_slot *s = &b->bytes[p[i] << 8 | p[i + 1]];
        rank[i] = s->rank;
        made[i] = s->id;
    }
    n = merge_short(b, id, rank, made, n, last);
    for (size_t i = 0; i < n; i++)
        out[i] = (int32_t)id[i];
    *n_out = n;
}

/* One symbol of a long piece; `rank` is that of its pair with the next. */
struct node { uint32_t id, rank, before, after; };

/* A heap of rank << 32 | position, smallest on top. */
struct heap { uint64_t *v; size_t n; };

static void sift_down(struct heap *h, size_t i)
{
    uint64_t x = h->v[i];
    for (size_t child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && h->v[child + 1] < h->v[child])
            child++;
        if (h->v[child] >= x)
            break;
        h->v[i] = h->v[child];
    }
    h->v[i] = x;
}

static void push(struct heap *h, uint64_t x)
{
    size_t i = h->n++;
    for (; i > 0 && h->v[(i - 1) / 2] > x; i = (i - 1) / 2)
        h->v[i] = h->v[(i - 1) / 2];
    h->v[i] = x;
}

static void rerank(const struct llm_bpe *b, struct node *v, struct heap *h, uint32_t at)
{
    v[at].rank = v[at].after == LLM_BPE_NONE ? LLM_BPE_NONE : rank_of(b, v[at].id, v[v[at].after].id);
    if (v[at].rank != LLM_BPE_NONE)
        push(h, (uint64_t)v[at].rank << 32 | at);
}

/* What a long piece needs: nodes, and a heap. Each merge takes one entry off the heap and puts at most two on, so 2n + 1 are enough. */
static struct node *make_room(struct llm_bpe_work *w, struct heap *h, size_t n, struct llm_err *e)
{
    if (n >= LLM_BPE_NONE) {
        llm_fail(e, EX_UNAVAILABLE, "a piece of %zu bytes without a split point: at most 4 GiB can be merged", n);
        return NULL;
    }
    if (llm_grow(&w->long_words, &w->room, n + 1, sizeof(struct node) + 2 * sizeof(uint64_t), e) < 0)
        return NULL;
    *h = (struct heap){w->long_words, 0};
    return (struct node *)(h->v + 2 * (n + 1));
}

static void put_node(struct node *v, struct heap *h, size_t i, size_t n, uint32_t id, uint32_t rank)
{
    v[i] = (struct node){id, rank, i ? (uint32_t)i - 1 : LLM_BPE_NONE, i + 1 < n ? (uint32_t)i + 1 : LLM_BPE_NONE};
    if (rank != LLM_BPE_NONE)
        h->v[h->n++] = (uint64_t)rank << 32 | i;
}

/* Merges n symbols in `v`; what is left goes to `out`. */
static size_t merge_long(const struct llm_bpe *b, struct llm_bpe_work *w, struct node *v, struct heap *h, size_t n, int32_t *out,
                         struct llm_bpe_merge *last)
{
    for (size_t i = h->n / 2; i-- > 0;)
        sift_down(h, i);
    while (h->n) {
        uint32_t rank = (uint32_t)(h->v[0] >> 32), at = (uint32_t)h->v[0];
        h->v[0] = h->v[--h->n];
        if (h->n)
            sift_down(h, 0);
        if (v[at].rank != rank)
            continue; /* merged away or changed since */
        uint32_t gone = v[at].after;
        uint32_t id = llm_bpe_find(b, v[at].id, v[gone].id)->id;
        if (last)
            *last = (struct llm_bpe_merge){v[at].id, v[gone].id, rank, id};
        v[at].id = id;
        v[at].after = v[gone].after;
        if (v[at].after != LLM_BPE_NONE)
            v[v[at].after].before = at;
        v[gone].rank = LLM_BPE_NONE;
        rerank(b, v, h, at);
        if (v[at].before != LLM_BPE_NONE)
            rerank(b, v, h, v[at].before);
    }
    size_t k = 0;
    for (uint32_t i = 0; i != LLM_BPE_NONE; i = v[i].after)
        out[k++] = (int32_t)v[i].id;
    if (n > (size_t)1 << 20) {
        free(w->long_words); /* rare; not kept */
        *w = (struct llm_bpe_work){0};
    }
    return k;
}

static int encode_long(const struct llm_bpe *b, struct llm_bpe_work *w, const unsigned char *p, size_t n, int32_t *out, size_t *n_out,
                       struct llm_bpe_merge *last, struct llm_err *e)
{
    struct heap h;
    struct node *v = make_room(w, &h, n, e);
    if (!v)
        return -1;
    for (size_t i = 0; i < n; i++)
        put_node(v, &h, i, n, b->byte_id[p[i]], i + 1 < n ? b->bytes[p[i] << 8 | p[i + 1]].rank : LLM_BPE_NONE);
    *n_out = merge_long(b, w, v, &h, n, out, last);
    return 0;
}

int llm_bpe_merge_ids(const struct llm_bpe *b, struct llm_bpe_work *w, int32_t *ids, size_t *n, struct llm_bpe_merge *last, struct llm_err *e)
{
    struct heap h;
    if (*n <= LLM_BPE_SHORT) {
        uint32_t id[LLM_BPE_SHORT + 1], rank[LLM_BPE_SHORT + 1], made[LLM_BPE_SHORT + 1];
        for (size_t i = 0; i < *n; i++)
            id[i] = (uint32_t)ids[i];
        for (size_t i = 0; i + 1 < *n; i++) {
            const struct llm_bpe_slot *s = llm_bpe_find(b, id[i], id[i + 1]);
            rank[i] = s ? s->rank : LLM_BPE_NONE;
            made[i] = s ? s->id : 0;
        }
        *n = merge_short(b, id, rank, made, *n, last);
        for (size_t i = 0; i < *n; i++)
            ids[i] = (int32_t)id[i];
        return 0;
    }
    struct node *v = make_room(w, &h, *n, e);
    if (!v)
        return -1;
    for (size_t i = 0; i < *n; i++)
        put_node(v, &h, i, *n, (uint32_t)ids[i], i + 1 < *n ? rank_of(b, (uint32_t)ids[i], (uint32_t)ids[i + 1]) : LLM_BPE_NONE);
    *n = merge_long(b, w, v, &h, *n, ids, last);
    return 0;
}

int llm_bpe_derive(const struct llm_bpe *b, struct llm_bpe_work *w, const unsigned char *p, size_t n, int32_t *out, size_t *n_out,
                   struct llm_bpe_merge *last, struct llm_err *e)
{
    for (size_t i = 0; i < n; i++)
        if (b->byte_id[p[i]] == LLM_BPE_NONE)
            return no_token(p[i], e);
    if (n > LLM_BPE_SHORT)
        return encode_long(b, w, p, n, out, n_out, last, e);
    encode_short(b, p, n, out, n_out, last);
    return 0;
}

int llm_bpe_encode(const struct llm_bpe *b, struct llm_bpe_work *w, const unsigned char *p, size_t n, int32_t *out, size_t *n_out,
                   struct llm_err *e)
{
    return llm_bpe_derive(b, w, p, n, out, n_out, NULL, e);
}
