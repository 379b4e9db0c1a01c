/* Short pieces merge by scanning for the lowest rank; long ones with a linked list and a heap, n log n. */
#include "token/model/bpe.h"
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"

#define MADE_MASK (((uint64_t)1 << LLM_BPE_MADE_BITS) - 1)
#define EMPTY UINT64_MAX
#define PAIRS_BITS 12
#define MAX_PAIRS_BITS 20
#define AHEAD 8 /* pairs that memory is asked for before they are looked up */

static inline uint64_t pair_of(uint32_t left, uint32_t right)
{
    return (uint64_t)left << LLM_BPE_ID_BITS | right;
}

static inline uint64_t hash_of(uint64_t pair)
{
    return pair * UINT64_C(0x9E3779B97F4A7C15);
}

static inline size_t slot_of(const struct llm_bpe *b, uint64_t hash)
{
    return (size_t)(hash >> (64 - b->bits));
}

static inline uint8_t filter_bit(const struct llm_bpe *b, uint64_t hash)
{
    return (uint8_t)(1u << (hash >> (61 - b->bits) & 7));
}

/* Four times the room for pairs, all of it empty: a prompt needs little. false: there is none at all. */
static bool remember_more(struct llm_bpe_work *w)
{
    int bits = w->pairs ? w->pairs_bits + 2 : PAIRS_BITS;
    uint64_t *more = malloc(sizeof *more << bits);
    w->new_pairs = 0;
    if (!more)
        return w->pairs != NULL;
    memset(more, 0xFF, sizeof *more << bits);
    free(w->pairs);
    w->pairs = more;
    w->pairs_bits = bits;
    return true;
}

/* A pair that is looked up by text, or remembered from the last time: the same ones come again and again. */
static uint32_t find_joined(const struct llm_bpe *b, struct llm_bpe_work *w, uint32_t left, uint32_t right)
{
    if (!w || (!w->pairs && !remember_more(w)))
        return b->joined(b->texts, left, right);
    uint64_t pair = pair_of(left, right), known = w->pairs[hash_of(pair) >> (64 - w->pairs_bits)];
    uint32_t made = (uint32_t)(known & MADE_MASK);
    if (known >> LLM_BPE_MADE_BITS == pair && known != EMPTY)
        return made == MADE_MASK ? LLM_BPE_NONE : made;
    made = b->joined(b->texts, left, right);
    if (w->new_pairs++ >> w->pairs_bits && w->pairs_bits < MAX_PAIRS_BITS)
        remember_more(w);
    w->pairs[hash_of(pair) >> (64 - w->pairs_bits)] = pair << LLM_BPE_MADE_BITS | (made & MADE_MASK);
    return made;
}

static inline uint32_t find(const struct llm_bpe *b, struct llm_bpe_work *w, uint32_t left, uint32_t right)
{
    if (b->joined)
        return find_joined(b, w, left, right);
    uint64_t pair = pair_of(left, right), hash = hash_of(pair);
    size_t mask = ((size_t)1 << b->bits) - 1, i = slot_of(b, hash);
    if (!(b->filter[i] & filter_bit(b, hash)))
        return LLM_BPE_NONE;
    for (;; i = (i + 1) & mask) {
        uint64_t s = b->slots[i];
        if (s >> LLM_BPE_MADE_BITS == pair)
            return (uint32_t)(s & MADE_MASK);
        if (s == EMPTY)
            return LLM_BPE_NONE;
    }
}

/* Both neighbours of a new symbol are looked up: memory answers for the second while the first is awaited. */
static inline void expect(const struct llm_bpe *b, const struct llm_bpe_work *w, uint32_t left, uint32_t right)
{
    uint64_t hash = hash_of(pair_of(left, right));
    if (!b->joined) {
        __builtin_prefetch(&b->filter[slot_of(b, hash)]);
        __builtin_prefetch(&b->slots[slot_of(b, hash)]);
    } else if (w && w->pairs)
        __builtin_prefetch(&w->pairs[hash >> (64 - w->pairs_bits)]);
}

uint32_t llm_bpe_find(const struct llm_bpe *b, uint32_t left, uint32_t right)
{
    return find(b, NULL, left, right);
}

static inline uint32_t made_rank(const struct llm_bpe *b, uint32_t made)
{
    return b->ranks ? b->ranks[made] : made;
}

static inline uint32_t made_id(const struct llm_bpe *b, uint32_t made)
{
    return b->ids ? b->ids[made] : b->first_id + made;
}

static inline uint32_t rank_of(const struct llm_bpe *b, struct llm_bpe_work *w, uint32_t left, uint32_t right)
{
    uint32_t made = find(b, w, left, right);
    return made == LLM_BPE_NONE ? LLM_BPE_NONE : made_rank(b, made);
}

struct made { uint32_t rank, id; };

static int by_made(const void *a, const void *b)
{
    const struct made *x = a, *y = b;
    return x->rank != y->rank ? (x->rank > y->rank) - (x->rank < y->rank) : (x->id > y->id) - (x->id < y->id);
}

/* `made` in order, each once; how many there are. Lists of merges are in order already. */
static size_t order_made(struct made *made, size_t n)
{
    size_t kept = 0, i = 1;
    while (i < n && by_made(&made[i - 1], &made[i]) <= 0)
        i++;
    if (i < n)
        qsort(made, n, sizeof *made, by_made);
    for (i = 0; i < n; i++)
        if (kept == 0 || by_made(&made[kept - 1], &made[i]) != 0)
            made[kept++] = made[i];
    return kept;
}

static size_t index_of(const struct made *made, size_t n, const struct llm_bpe_merge *m, size_t guess)
{
    const struct made wanted = {m->rank, m->id};
    for (size_t i = guess; i < guess + 2 && i < n; i++) /* the same as of the last merge, or the next */
        if (by_made(&made[i], &wanted) == 0)
            return i;
    return (size_t)((const struct made *)bsearch(&wanted, made, n, sizeof wanted, by_made) - made);
}

/* Merges into slots: of one pair the lowest rank. How many pairs there are. */
static size_t fill_slots(struct llm_bpe *b, const struct made *made, size_t n_made)
{
    size_t mask = ((size_t)1 << b->bits) - 1, place = 0, pairs = 0;
    memset(b->slots, 0xFF, (mask + 1) * sizeof *b->slots);
    for (size_t i = 0; i < b->n_merges; i++) {
        const struct llm_bpe_merge *m = &b->merges[i];
        place = index_of(made, n_made, m, place);
        uint64_t pair = pair_of(m->left, m->right), hash = hash_of(pair), slot = pair << LLM_BPE_MADE_BITS | place;
        size_t at = slot_of(b, hash);
        b->filter[at] |= filter_bit(b, hash);
        while (b->slots[at] != EMPTY && b->slots[at] >> LLM_BPE_MADE_BITS != pair)
            at = (at + 1) & mask;
        pairs += b->slots[at] == EMPTY;
        if (slot < b->slots[at])
            b->slots[at] = slot;
    }
    return pairs;
}

static int too_large(struct llm_err *e)
{
    return llm_fail(e, EX_UNAVAILABLE, "a BPE vocabulary of more than %d tokens or %d merges", 1 << LLM_BPE_ID_BITS, (int)MADE_MASK);
}

/* What merges make, in order, into tables of its own; how many there are in *n. NULL: memory is short. */
static struct made *list_made(struct llm_bpe *b, size_t *n, struct llm_err *e)
{
    struct made *made = llm_alloc(b->n_merges, sizeof *made, "merges", e);
    if (!made)
        return NULL;
    for (size_t i = 0; i < b->n_merges; i++)
        made[i] = (struct made){b->merges[i].rank, b->merges[i].id};
    *n = order_made(made, b->n_merges);
    bool counts = true, in_order = true; /* ranks are 0, 1, 2, …; ids are consecutive from the first */
    for (size_t i = 0; i < *n; i++) {
        in_order = in_order && made[i].id == made[0].id + i;
        counts = counts && made[i].rank == i;
        b->tied = b->tied || (i > 0 && made[i].rank == made[i - 1].rank);
    }
    b->first_id = *n ? made[0].id : 0;
    if ((!in_order && !(b->ids = llm_alloc(*n, sizeof *b->ids, "merges", e)))
        || (!counts && !(b->ranks = llm_alloc(*n, sizeof *b->ranks, "merges", e)))) {
        free(made);
        return NULL;
    }
    for (size_t i = 0; i < *n; i++) {
        if (b->ids)
            b->ids[i] = made[i].id;
        if (b->ranks)
            b->ranks[i] = made[i].rank;
    }
    return made;
}

int llm_bpe_init(struct llm_bpe *b, struct llm_bpe_merge *merges, size_t n, struct llm_err *e)
{
    uint32_t largest = 0;
    size_t n_made = 0;
    b->merges = merges;
    b->n_merges = n;
    for (b->bits = 10; (size_t)1 << b->bits < n + n / 3; b->bits++) {
    }
    b->slots = llm_alloc_huge((size_t)1 << b->bits, sizeof *b->slots, "merges", e); /* read at random */
    b->filter = llm_calloc((size_t)1 << b->bits, 1, "merges", e);
    b->bytes = llm_alloc(65536, sizeof *b->bytes, "merges", e);
    struct made *made = b->slots && b->filter && b->bytes ? list_made(b, &n_made, e) : NULL;
    if (!made)
        return -1;
    bool ascending = true;
    for (size_t i = 0; i < n; i++) {
        largest |= merges[i].left | merges[i].right;
        ascending = ascending && (i == 0 || merges[i - 1].rank < merges[i].rank);
    }
    if (largest >> LLM_BPE_ID_BITS || n_made >= MADE_MASK) {
        free(made);
        return too_large(e);
    }
    size_t pairs = fill_slots(b, made, n_made);
    free(made);
    if (pairs == n && ascending) {
        free(b->merges);
        b->merges = NULL;
    }
    for (unsigned left = 0; left < 256; left++)
        for (unsigned right = 0; right < 256; right++) {
            bool both = b->byte_id[left] != LLM_BPE_NONE && b->byte_id[right] != LLM_BPE_NONE;
            b->bytes[left << 8 | right] = both ? find(b, NULL, b->byte_id[left], b->byte_id[right]) : LLM_BPE_NONE;
        }
    return 0;
}

int llm_bpe_init_joined(struct llm_bpe *b, const uint32_t *rank, size_t n, uint32_t (*joined)(const struct llm_tokenizer *, uint32_t, uint32_t),
                        const struct llm_tokenizer *texts, struct llm_err *e)
{
    if (n >> LLM_BPE_ID_BITS)
        return too_large(e);
    b->joined = joined;
    b->texts = texts;
    b->tied = true;
    b->ranks = llm_alloc(n, sizeof *b->ranks, "merges", e);
    if (!b->ranks)
        return -1;
    memcpy(b->ranks, rank, n * sizeof *b->ranks);
    return 0;
}

void llm_bpe_list(const struct llm_bpe *b, struct llm_bpe_merge *out)
{
    const uint64_t id_mask = ((uint64_t)1 << LLM_BPE_ID_BITS) - 1;
    for (size_t i = 0; i >> b->bits == 0; i++) {
        uint64_t pair = b->slots[i] >> LLM_BPE_MADE_BITS;
        uint32_t made = (uint32_t)(b->slots[i] & MADE_MASK);
        if (b->slots[i] != EMPTY)
            out[made] = (struct llm_bpe_merge){(uint32_t)(pair >> LLM_BPE_ID_BITS), (uint32_t)(pair & id_mask), made_rank(b, made), made_id(b, made)};
    }
}

void llm_bpe_release(struct llm_bpe *b)
{
    free(b->merges);
    free(b->ranks);
    free(b->ids);
    free(b->slots);
    free(b->filter);
    free(b->bytes);
    free(b->end_id);
    *b = (struct llm_bpe){0};
}

void llm_bpe_work_release(struct llm_bpe_work *w)
{
    free(w->long_words);
    free(w->pairs);
    *w = (struct llm_bpe_work){0};
}

static int no_token(unsigned char byte, struct llm_err *e)
{
    return llm_fail(e, EX_DATAERR, "byte 0x%02X has no token in this vocabulary", byte);
}

/* A pair of symbols in one number: rank, place and what it makes, so that the least of all is the next merge. */
#define PLACE_BITS 7
_Static_assert(PLACE_BITS + LLM_BPE_MADE_BITS <= 32 && LLM_BPE_SHORT <= 1 << PLACE_BITS, "a pair fits");
#define NO_PAIR UINT64_MAX

static inline uint64_t pair_at(const struct llm_bpe *b, size_t place, uint32_t made)
{
    if (made == LLM_BPE_NONE)
        return NO_PAIR;
    if (b->ids)
        __builtin_prefetch(&b->ids[made]);
    return (uint64_t)(b->tied ? made_rank(b, made) : made) << 32 | (uint64_t)place << LLM_BPE_MADE_BITS | made;
}

static inline uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The least of n pairs, of which there are as many as a multiple of 8: those behind are none. */
static inline uint64_t least_of(const uint64_t *pairs, size_t n)
{
    uint64_t best = NO_PAIR;
    for (size_t i = 0; i < n; i += 8) {
        uint64_t a = lesser(pairs[i], pairs[i + 1]), b = lesser(pairs[i + 2], pairs[i + 3]);
        uint64_t c = lesser(pairs[i + 4], pairs[i + 5]), d = lesser(pairs[i + 6], pairs[i + 7]);
        best = lesser(best, lesser(lesser(a, b), lesser(c, d)));
    }
    return best;
}

/* The pair at `at`, which makes `made`, may be merged next: prefetches what its new symbol is then looked up with. Vocabularies are larger than the
 * first two caches, and each merge waits for the pairs that the merge before it made. */
static inline void expect_merge(const struct llm_bpe *b, const struct llm_bpe_work *w, const uint32_t *id, const uint8_t *before,
                                const uint8_t *after, size_t n, size_t at, uint32_t made)
{
    if (made == LLM_BPE_NONE || b->joined)
        return;
    uint32_t becomes = made_id(b, made);
    size_t beyond = after[after[at]];
    if (beyond < n)
        expect(b, w, becomes, id[beyond]);
    if (at > 0)
        expect(b, w, id[before[at]], becomes);
}

/* Values of the symbol before, of each symbol, and of the one after. */
#define PLACES(i) i, i + 1, i + 2, i + 3, i + 4, i + 5, i + 6, i + 7
static const uint8_t places[LLM_BPE_SHORT + 2] = {UINT8_MAX, PLACES(0), PLACES(8), PLACES(16), PLACES(24), PLACES(32), PLACES(40), PLACES(48),
                                                  PLACES(56), LLM_BPE_SHORT};

/* A piece of n ≤ LLM_BPE_SHORT symbols that is being merged; merged symbols leave holes. */
struct merging {
    uint32_t id[LLM_BPE_SHORT];
    uint64_t pairs[LLM_BPE_SHORT]; /* of each symbol with the next */
    uint8_t before[LLM_BPE_SHORT], after[LLM_BPE_SHORT];
    size_t n, made; /* made: the symbol that the last merge made, whose pairs have yet to be looked up; n: none */
};

/* id and pairs are set, pairs[n - 1] is none. alone: no other piece is merged meanwhile, so memory is asked early for what may be looked up. */
static inline void begin_merging(const struct llm_bpe *b, struct llm_bpe_work *w, struct merging *m, size_t n, const bool alone)
{
    memcpy(m->before, places, LLM_BPE_SHORT);
    memcpy(m->after, places + 2, LLM_BPE_SHORT);
    m->n = m->made = n;
    for (size_t i = n; i & 7; i++)
        m->pairs[i] = NO_PAIR;
    for (size_t i = 0; alone && i + 1 < n; i++)
        expect_merge(b, w, m->id, m->before, m->after, n, i, m->pairs[i] == NO_PAIR ? LLM_BPE_NONE : (uint32_t)(m->pairs[i] & MADE_MASK));
}

static inline void look_up(const struct llm_bpe *b, struct llm_bpe_work *w, struct merging *m, size_t at, size_t next, const bool alone)
{
    uint32_t made = find(b, w, m->id[at], m->id[next]);
    m->pairs[at] = pair_at(b, at, made);
    if (alone)
        expect_merge(b, w, m->id, m->before, m->after, m->n, at, made);
}

/* Merges one pair, if there is one. Its neighbours are looked up by the next call: memory has until then to answer. */
static inline bool merge_next(const struct llm_bpe *b, struct llm_bpe_work *w, struct merging *m, struct llm_bpe_merge *last, const bool alone)
{
    uint32_t *id = m->id;
    if (m->made < m->n && m->after[m->made] < m->n)
        look_up(b, w, m, m->made, m->after[m->made], alone);
    if (m->made < m->n && m->made > 0)
        look_up(b, w, m, m->before[m->made], m->made, alone);
    uint64_t best = least_of(m->pairs, m->n);
    if (best == NO_PAIR)
        return false;
    uint32_t made = (uint32_t)(best & MADE_MASK);
    size_t at = best >> LLM_BPE_MADE_BITS & ((1 << PLACE_BITS) - 1), gone = m->after[at], next = m->after[gone];
    if (last)
        *last = (struct llm_bpe_merge){id[at], id[gone], made_rank(b, made), made_id(b, made)};
    id[at] = made_id(b, made);
    m->after[at] = (uint8_t)next;
    m->pairs[gone] = m->pairs[at] = NO_PAIR;
    m->made = at;
    if (next < m->n) {
        m->before[next] = (uint8_t)at;
        expect(b, w, id[at], id[next]);
    }
    if (at > 0)
        expect(b, w, id[m->before[at]], id[at]);
    return true;
}

static inline size_t merged_ids(const struct merging *m, int32_t *out)
{
    size_t n_out = 0;
    for (size_t i = 0; i < m->n; i = m->after[i])
        out[n_out++] = (int32_t)m->id[i];
    return n_out;
}

static inline size_t merge_short(const struct llm_bpe *b, struct llm_bpe_work *w, struct merging *m, size_t n, int32_t *out,
                                 struct llm_bpe_merge *last)
{
    begin_merging(b, w, m, n, true);
    while (merge_next(b, w, m, last, true)) {
    }
    return merged_ids(m, out);
}

static inline void take_bytes(const struct llm_bpe *b, const unsigned char *p, size_t n, bool ends, struct merging *m)
{
    for (size_t i = 0; i < n; i++)
        m->id[i] = b->byte_id[p[i]];
    for (size_t i = 0; i + 1 < n; i++)
        m->pairs[i] = pair_at(b, i, b->bytes[p[i] << 8 | p[i + 1]]);
    m->pairs[n - 1] = NO_PAIR;
    if (!b->end_id || !ends)
        return;
    m->id[n - 1] = b->end_id[p[n - 1]];
    if (n > 1)
        m->pairs[n - 2] = pair_at(b, n - 2, find(b, NULL, m->id[n - 2], m->id[n - 1]));
}

static void encode_short(const struct llm_bpe *b, const unsigned char *p, size_t n, bool ends, int32_t *out, size_t *n_out,
                         struct llm_bpe_merge *last)
{
    struct merging m;
    take_bytes(b, p, n, ends, &m);
    *n_out = merge_short(b, NULL, &m, n, out, last);
}

void llm_bpe_encode_words(const struct llm_bpe *b, struct llm_bpe_word *words, size_t n)
{
    enum { BESIDE = 8 };
    struct merging m[BESIDE];
    struct { struct merging *m; struct llm_bpe_word *word; } run[BESIDE];
    size_t active = 0, next = 0;
    for (size_t i = 0; i < BESIDE; i++)
        run[i].m = &m[i];
    while (active || next < n) {
        for (; active < BESIDE && next < n; active++, next++) {
            run[active].word = &words[next];
            take_bytes(b, words[next].p, words[next].n, true, run[active].m);
            begin_merging(b, NULL, run[active].m, words[next].n, false);
        }
        for (size_t i = 0; i < active;) {
            if (merge_next(b, NULL, run[i].m, NULL, false)) {
                i++;
                continue;
            }
            struct merging *done = run[i].m;
            run[i].word->n_ids = merged_ids(done, run[i].word->ids);
            run[i] = run[--active];
            run[active].m = done;
        }
    }
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

static void rerank(const struct llm_bpe *b, struct llm_bpe_work *w, struct node *v, struct heap *h, uint32_t at)
{
    v[at].rank = v[at].after == LLM_BPE_NONE ? LLM_BPE_NONE : rank_of(b, w, v[at].id, v[v[at].after].id);
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

/* Merges n symbols in `v`; what is left goes to `out`, the index of each one's first symbol to `starts` (NULL: nowhere). */
static size_t merge_long(const struct llm_bpe *b, struct llm_bpe_work *w, struct node *v, struct heap *h, size_t n, int32_t *out, uint32_t *starts,
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
        uint32_t id = made_id(b, find(b, w, v[at].id, v[gone].id));
        if (last)
            *last = (struct llm_bpe_merge){v[at].id, v[gone].id, rank, id};
        v[at].id = id;
        v[at].after = v[gone].after;
        if (v[at].after != LLM_BPE_NONE)
            v[v[at].after].before = at;
        v[gone].rank = LLM_BPE_NONE;
        if (v[at].before != LLM_BPE_NONE)
            expect(b, w, v[v[at].before].id, id);
        rerank(b, w, v, h, at);
        if (v[at].before != LLM_BPE_NONE)
            rerank(b, w, v, h, v[at].before);
    }
    size_t k = 0;
    for (uint32_t i = 0; i != LLM_BPE_NONE; i = v[i].after) {
        if (starts)
            starts[k] = i;
        out[k++] = (int32_t)v[i].id;
    }
    if (n > (size_t)1 << 20) {
        free(w->long_words); /* rare; not kept */
        w->long_words = NULL;
        w->room = 0;
    }
    return k;
}

static inline uint32_t byte_token(const struct llm_bpe *b, unsigned char byte, bool ends)
{
    return ends && b->end_id ? b->end_id[byte] : b->byte_id[byte];
}

static int encode_long(const struct llm_bpe *b, struct llm_bpe_work *w, const unsigned char *p, size_t n, bool ends, int32_t *out, size_t *n_out,
                       struct llm_bpe_merge *last, struct llm_err *e)
{
    struct heap h;
    struct node *v = make_room(w, &h, n, e);
    if (!v)
        return -1;
    uint32_t id = b->byte_id[p[0]], next;
    for (size_t i = 0; i < n; i++, id = next) {
        next = i + 1 < n ? byte_token(b, p[i + 1], ends && i + 2 == n) : LLM_BPE_NONE;
        put_node(v, &h, i, n, id, i + 1 < n ? rank_of(b, w, id, next) : LLM_BPE_NONE);
    }
    *n_out = merge_long(b, w, v, &h, n, out, NULL, last);
    return 0;
}

static int merge_many(const struct llm_bpe *b, struct llm_bpe_work *w, int32_t *ids, size_t *n, uint32_t *starts, struct llm_bpe_merge *last,
                      struct llm_err *e)
{
    struct heap h;
    struct node *v = make_room(w, &h, *n, e);
    if (!v)
        return -1;
    for (size_t i = 0; i < *n; i++) {
        if (i + AHEAD + 1 < *n)
            expect(b, w, (uint32_t)ids[i + AHEAD], (uint32_t)ids[i + AHEAD + 1]);
        put_node(v, &h, i, *n, (uint32_t)ids[i], i + 1 < *n ? rank_of(b, w, (uint32_t)ids[i], (uint32_t)ids[i + 1]) : LLM_BPE_NONE);
    }
    *n = merge_long(b, w, v, &h, *n, ids, starts, last);
    return 0;
}

int llm_bpe_merge_ids(const struct llm_bpe *b, struct llm_bpe_work *w, int32_t *ids, size_t *n, struct llm_bpe_merge *last, struct llm_err *e)
{
    if (*n <= LLM_BPE_SHORT) {
        struct merging m;
        for (size_t i = 0; i < *n; i++)
            m.id[i] = (uint32_t)ids[i];
        for (size_t i = 0; i + 1 < *n; i++)
            m.pairs[i] = pair_at(b, i, find(b, w, m.id[i], m.id[i + 1]));
        m.pairs[*n - 1] = NO_PAIR;
        *n = merge_short(b, w, &m, *n, ids, last);
        return 0;
    }
    return merge_many(b, w, ids, n, NULL, last, e);
}

int llm_bpe_merge_parts(const struct llm_bpe *b, struct llm_bpe_work *w, int32_t *ids, size_t *n, uint32_t *starts, struct llm_err *e)
{
    return merge_many(b, w, ids, n, starts, NULL, e);
}

size_t llm_bpe_no_token(const struct llm_bpe *b, const unsigned char *p, size_t n, bool ends)
{
    size_t i = 0;
    while (i < n && byte_token(b, p[i], ends && i + 1 == n) != LLM_BPE_NONE)
        i++;
    return i;
}

int llm_bpe_derive(const struct llm_bpe *b, struct llm_bpe_work *w, const unsigned char *p, size_t n, bool ends, int32_t *out, size_t *n_out,
                   struct llm_bpe_merge *last, struct llm_err *e)
{
    size_t bad = llm_bpe_no_token(b, p, n, ends);
    if (bad < n)
        return no_token(p[bad], e);
    if (n > LLM_BPE_SHORT)
        return encode_long(b, w, p, n, ends, out, n_out, last, e);
    encode_short(b, p, n, ends, out, n_out, last);
    return 0;
}

int llm_bpe_encode(const struct llm_bpe *b, struct llm_bpe_work *w, const unsigned char *p, size_t n, int32_t *out, size_t *n_out,
                   struct llm_err *e)
{
    return llm_bpe_derive(b, w, p, n, true, out, n_out, NULL, e);
}
