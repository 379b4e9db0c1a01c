#include "infer/kv.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/pages.h"

/* For long sequences the pool's memory uses huge pages: what attention reads of one layer is scattered over many cache pages. */
#define FEW_PAGES 16
#define CHUNK_BYTES ((size_t)32 << 20)
#define HUGE_PAGE ((size_t)2 << 20)
struct llm_kv_chunk {
    struct llm_kv_chunk *next;
    unsigned char *data;
    size_t used, bytes;
};

struct llm_kv_page {
    struct llm_kv_page *next;
    int64_t users;
    unsigned char *data;  /* [layers that are not local][k tile, v tile], 64-byte aligned */
    unsigned char *local; /* the same for layers with a sliding window; NULL: the model has none, or the page is outside the window */
};

struct llm_kv_part { struct llm_kv_part *next; }; /* at the beginning of an unused local part */

static size_t tile_bytes(const struct llm_kv_layer *l, size_t row)
{
    return row * (size_t)l->shape.n_kv_heads * LLM_KV_TILE;
}

static int place(struct llm_kv_pool *p, int64_t layer, struct llm_err *e)
{
    struct llm_kv_layer *l = &p->layers[layer];
    const struct llm_state_shape *s = &l->shape;
    l->state_at = p->state_floats;
    p->state_floats += llm_state_floats(s);
    if (s->n_kv_heads == 0) return 0;
    if (s->source != layer) l->types = p->layers[s->source].types;
    l->k_row = llm_dtype_bytes(l->types.k, (uint64_t)s->d_k);
    l->v_row = llm_dtype_bytes(l->types.v, (uint64_t)s->d_v);
    if (l->k_row == 0 || (l->v_row == 0 && s->d_v > 0)) {
        const struct llm_dtype_row *bad = &llm_dtypes[l->k_row == 0 ? l->types.k : l->types.v];
        return llm_fail(e, EX_UNAVAILABLE, "cache type %s: expected heads of a multiple of %d, found %" PRId64 " and %" PRId64, bad->name,
                        bad->block_size, s->d_k, s->d_v);
    }
    if (s->source != layer) {
        l->k_at = p->layers[s->source].k_at;
        l->v_at = p->layers[s->source].v_at;
        return 0;
    }
    const size_t bytes = tile_bytes(l, l->k_row + l->v_row);
    l->k_at = l->local ? p->local_bytes : p->page_bytes - p->local_bytes;
    l->v_at = l->k_at + tile_bytes(l, l->k_row);
    if (__builtin_add_overflow(p->page_bytes, bytes, &p->page_bytes)) return llm_no_memory(e, "a page of the cache");
    if (l->local) p->local_bytes += bytes;
    return 0;
}

/* Finds the layers whose keys only layers with sliding windows read. Shapes are known. */
static void find_local(struct llm_kv_pool *p, const struct llm_config *c)
{
    for (int64_t l = 0; l < p->n_layers; l++) p->layers[l].local = p->layers[l].shape.n_kv_heads > 0;
    for (int64_t l = 0; l < p->n_layers; l++)
        if (llm_config_window(c, l) == 0) p->layers[p->layers[l].shape.source].local = false;
    for (int64_t l = 0; l < p->n_layers; l++) {
        const int64_t window = llm_config_window(c, l);
        p->layers[l].local = p->layers[p->layers[l].shape.source].local;
        if (p->layers[l].local && window > p->window) p->window = window;
    }
}

int llm_kv_pool_init(struct llm_kv_pool *p, const struct llm_config *c, const char *types, struct llm_err *e)
{
    struct llm_kv_pair of[LLM_MAX_LAYERS];
    *p = (struct llm_kv_pool){.n_layers = c->num_hidden_layers, .n_all = c->num_hidden_layers};
    p->layers = llm_calloc((size_t)p->n_layers + 1, sizeof *p->layers, "a cache", e);
    if (!p->layers) return -1;
    if (llm_kv_types_read(types, of, p->n_layers, e) < 0) return llm_in(e, "cache types");
    for (int64_t l = 0; l < p->n_layers; l++) p->layers[l].shape = llm_model_state(c, l);
    find_local(p, c);
    for (int64_t l = 0; l < p->n_layers; l++) {
        p->layers[l].types = of[l];
        if (place(p, l, e) < 0) return -1;
        of[l] = p->layers[l].types;
    }
    p->token_bytes = p->page_bytes / LLM_KV_TILE;
    if (p->local_bytes > 0 && !(p->zeros = llm_calloc(p->local_bytes / 64 + 1, 64, "a page of the cache", e))) return -1;
    p->types = llm_kv_types_text(of, p->n_layers, e);
    return p->types ? 0 : -1;
}

int llm_kv_pool_add_draft(struct llm_kv_pool *p, const struct llm_config *c, struct llm_err *e)
{
    p->layers[p->n_layers].shape = llm_model_state(c, p->n_layers);
    p->layers[p->n_layers].shape.source = p->n_layers; /* whatever layers before it share */
    p->layers[p->n_layers].types = p->layers[p->n_layers - 1].types;
    p->n_all = p->n_layers + 1;
    return place(p, p->n_layers, e);
}

void llm_kv_pool_release(struct llm_kv_pool *p)
{
    while (p->unused) {
        struct llm_kv_page *page = p->unused;
        p->unused = page->next;
        free(page);
    }
    while (p->chunks) {
        struct llm_kv_chunk *c = p->chunks;
        p->chunks = c->next;
        free(c->data);
        free(c);
    }
    free(p->layers);
    free(p->zeros);
    p->zeros = NULL;
    p->unused_parts = NULL;
    free(p->types);
    p->layers = NULL;
    p->types = NULL;
    p->n_pages = 0;
}

/* Memory for one more page, or for the local part of one, owned by the pool. */
static unsigned char *page_memory(struct llm_kv_pool *p, size_t page, struct llm_err *e)
{
    const size_t each = page / 64 * 64 + 64; /* models without a cache have pages of no bytes */
    struct llm_kv_chunk *c = p->chunks;
    if (!c || c->bytes - c->used < each) {
        size_t pages = p->n_pages < FEW_PAGES || each > CHUNK_BYTES ? 1 : CHUNK_BYTES / each, bytes = pages * each;
        bool huge = pages > 1;
        if (huge) bytes = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
        c = llm_calloc(1, sizeof *c, "a page of the cache", e);
        if (!c) return NULL;
        c->data = aligned_alloc(huge ? HUGE_PAGE : 64, bytes);
        if (!c->data) {
            free(c);
            llm_no_memory(e, "a page of the cache");
            return NULL;
        }
        if (huge) llm_pages_huge(c->data, bytes);
        c->bytes = bytes;
        c->next = p->chunks;
        p->chunks = c;
    }
    c->used += each;
    return c->data + c->used - each;
}

static int add_local(struct llm_kv_pool *p, struct llm_kv_page *page, struct llm_err *e)
{
    if (p->local_bytes == 0 || page->local) return 0;
    page->local = (unsigned char *)p->unused_parts;
    if (p->unused_parts) p->unused_parts = p->unused_parts->next;
    else page->local = page_memory(p, p->local_bytes, e);
    return page->local ? 0 : -1;
}

/* Pages begin as zeros: rows after the last token of a tile are multiplied by a probability of 0 and must therefore be finite. */
static struct llm_kv_page *page_create(struct llm_kv_pool *p, struct llm_err *e)
{
    struct llm_kv_page *page = p->unused;
    if (page) {
        p->unused = page->next;
    } else {
        page = llm_calloc(1, sizeof *page, "a page of the cache", e);
        if (!page) return NULL;
        page->data = page_memory(p, p->page_bytes - p->local_bytes, e);
        if (!page->data) {
            free(page);
            return NULL;
        }
        p->n_pages++;
    }
    if (add_local(p, page, e) < 0) {
        page->next = p->unused;
        p->unused = page;
        return NULL;
    }
    memset(page->data, 0, p->page_bytes - p->local_bytes);
    if (page->local) memset(page->local, 0, p->local_bytes);
    p->n_used++;
    page->users = 1;
    page->next = NULL;
    return page;
}

static void page_drop(struct llm_kv_pool *p, struct llm_kv_page *page)
{
    if (--page->users > 0) return;
    p->n_used--;
    p->n_passed -= p->local_bytes > 0 && !page->local;
    page->next = p->unused;
    p->unused = page;
}

void llm_kv_init(struct llm_kv *kv, struct llm_kv_pool *pool)
{
    *kv = (struct llm_kv){.pool = pool};
}

void llm_kv_release(struct llm_kv *kv)
{
    for (int64_t i = 0; i < kv->n_pages; i++) page_drop(kv->pool, kv->pages[i]);
    free(kv->ids);
    free(kv->pages);
    free(kv->tiles);
    if (kv->state) kv->pool->n_states--;
    free(kv->state);
    free(kv->queries);
    llm_kv_kept_release(kv->kept);
    if (kv->memory) llm_kv_release(kv->memory);
    free(kv->memory);
    *kv = (struct llm_kv){.pool = kv->pool};
}

void llm_kv_kept_release(struct llm_kv_kept *k)
{
    if (!k || --k->users > 0) return;
    for (int64_t l = 0; l < k->n_layers; l++) free(k->tokens[l]);
    free(k);
}

void llm_kv_keep(struct llm_kv *kv, struct llm_kv_kept *kept)
{
    kept->users++;
    kv->kept = kept;
}

/* Tokens before the recent ones that an evicted cache has no rows of. */
static int64_t evicted(const struct llm_kv *kv)
{
    return kv->kept ? kv->kept->n - kv->kept->rows : 0;
}

int64_t llm_kv_rows(const struct llm_kv *kv)
{
    return kv->n > 0 ? kv->n - evicted(kv) : 0;
}

int llm_kv_remember(struct llm_kv *kv, int64_t n, struct llm_err *e)
{
    if (kv->memory) llm_kv_release(kv->memory);
    free(kv->memory);
    kv->memory = llm_calloc(1, sizeof *kv->memory, "a memory", e);
    if (!kv->memory) return -1;
    llm_kv_init(kv->memory, kv->pool);
    return llm_kv_reserve(kv->memory, n, e);
}

int llm_kv_trace(struct llm_kv *kv, int64_t n, int64_t width, struct llm_err *e)
{
    size_t rows;
    if (width == 0) return llm_fail(e, EX_UNAVAILABLE, "queries to trace: the model has no attention over keys");
    if (__builtin_mul_overflow((size_t)n, (size_t)width, &rows)) return llm_no_memory(e, "traced queries");
    kv->queries = llm_calloc(rows, (size_t)kv->pool->n_layers * sizeof *kv->queries, "traced queries", e);
    if (!kv->queries) return -1;
    kv->n_queries = n;
    kv->query_width = width;
    return 0;
}

static void **tiles_of(const struct llm_kv *kv, int64_t layer, int value)
{
    return kv->tiles + (layer * 2 + value) * kv->pages_room;
}

static void set_page(struct llm_kv *kv, int64_t at, struct llm_kv_page *page)
{
    unsigned char *local = page->local ? page->local : kv->pool->zeros;
    kv->pages[at] = page;
    for (int64_t layer = 0; layer < kv->pool->n_all; layer++) {
        const struct llm_kv_layer *l = &kv->pool->layers[layer];
        tiles_of(kv, layer, 0)[at] = (l->local ? local : page->data) + l->k_at;
        tiles_of(kv, layer, 1)[at] = (l->local ? local : page->data) + l->v_at;
    }
}

static int grow_pages(struct llm_kv *kv, int64_t want, struct llm_err *e)
{
    if (want <= kv->pages_room) return 0;
    int64_t room = kv->pages_room * 2 > want ? kv->pages_room * 2 : want;
    struct llm_kv_page **pages = llm_alloc((size_t)room, sizeof *pages, "a cache's pages", e);
    void **tiles = llm_alloc((size_t)room * 2, (size_t)kv->pool->n_all * sizeof *tiles, "a cache's pages", e);
    if (!pages || !tiles) {
        free(pages);
        free(tiles);
        return -1;
    }
    struct llm_kv_page **old = kv->pages;
    free(kv->tiles);
    kv->pages = pages;
    kv->tiles = tiles;
    kv->pages_room = room;
    for (int64_t i = 0; i < kv->n_pages; i++) set_page(kv, i, old[i]);
    free(old);
    return 0;
}

/* The number of pages for n tokens; 0 for models without keys and values. */
static int64_t pages_for(const struct llm_kv_pool *p, int64_t n)
{
    return p->page_bytes ? (n + LLM_KV_TILE - 1) / LLM_KV_TILE : 0;
}

static int make_state(struct llm_kv *kv, struct llm_err *e)
{
    if (kv->state || kv->pool->state_floats == 0) return 0;
    kv->state = llm_calloc((size_t)kv->pool->state_floats, sizeof *kv->state, "a sequence's state", e);
    if (!kv->state) return -1;
    kv->pool->n_states++;
    return 0;
}

int64_t llm_kv_used_bytes(const struct llm_kv_pool *p)
{
    return p->n_used * (int64_t)p->page_bytes - p->n_passed * (int64_t)p->local_bytes + p->n_states * p->state_floats * (int64_t)sizeof(float);
}

int64_t llm_kv_sequence_bytes(const struct llm_kv_pool *p, int64_t n)
{
    return pages_for(p, n) * (int64_t)p->page_bytes + p->state_floats * (int64_t)sizeof(float);
}

int64_t llm_kv_windowed_bytes(const struct llm_kv_pool *p, int64_t n, int64_t held, int64_t pass)
{
    const int64_t released = pages_for(p, n) - pages_for(p, held) - pages_for(p, p->window + pass) - 1; /* - 1: the window begins within a page */
    return llm_kv_sequence_bytes(p, n) - (released > 0 ? released * (int64_t)p->local_bytes : 0);
}

bool llm_kv_owns_pages(const struct llm_kv *kv)
{
    for (int64_t i = kv->n_pages; i-- > 0;)
        if (kv->pages[i]->users == 1) return true;
    return false;
}

int64_t llm_kv_growth(const struct llm_kv *kv, int64_t n)
{
    const struct llm_kv_pool *p = kv->pool;
    int64_t rows = llm_kv_rows(kv), pages = pages_for(p, rows + n) - kv->n_pages;
    if (pages < 0) pages = 0;
    for (int64_t i = rows / LLM_KV_TILE; i < kv->n_pages; i++) pages += kv->pages[i]->users > 1;
    return pages * (int64_t)p->page_bytes + (kv->state ? 0 : p->state_floats * (int64_t)sizeof(float));
}

int llm_kv_reserve(struct llm_kv *kv, int64_t n, struct llm_err *e)
{
    return llm_kv_own(kv, kv->n, n, e);
}

int llm_kv_own(struct llm_kv *kv, int64_t from, int64_t n, struct llm_err *e)
{
    int64_t pages = pages_for(kv->pool, n - evicted(kv));
    if (make_state(kv, e) < 0) return -1;
    if (llm_grow((void **)&kv->ids, &kv->ids_room, (size_t)n + 1, sizeof *kv->ids, e) < 0 || grow_pages(kv, pages, e) < 0) return -1;
    if (from > 0) from -= evicted(kv);
    for (int64_t i = from / LLM_KV_TILE; i < kv->n_pages; i++) {
        if (kv->pages[i]->users == 1) continue;
        struct llm_kv_page *own = page_create(kv->pool, e);
        if (!own) return -1;
        memcpy(own->data, kv->pages[i]->data, kv->pool->page_bytes - kv->pool->local_bytes);
        if (kv->pages[i]->local) memcpy(own->local, kv->pages[i]->local, kv->pool->local_bytes);
        page_drop(kv->pool, kv->pages[i]);
        set_page(kv, i, own);
    }
    while (kv->n_pages < pages) {
        struct llm_kv_page *page = page_create(kv->pool, e);
        if (!page) return -1;
        set_page(kv, kv->n_pages++, page);
    }
    return 0;
}

void llm_kv_append(struct llm_kv *kv, const int32_t *ids, int64_t n)
{
    if (n > 0) memcpy(kv->ids + kv->n, ids, (size_t)n * sizeof *ids); /* an empty sequence has no ids to point to */
    kv->n += n;
    kv->traced += n;
}

void llm_kv_release_passed(struct llm_kv *kv)
{
    struct llm_kv_pool *p = kv->pool;
    int64_t pages = p->local_bytes > 0 && !kv->kept && !kv->queries ? (kv->n - p->window + 1) / LLM_KV_TILE : 0;
    if (pages <= 0 || kv->looked == pages) return;
    kv->looked = pages;
    for (int64_t i = 0; i < pages; i++) {
        struct llm_kv_page *page = kv->pages[i];
        if (page->users > 1 || !page->local) continue;
        struct llm_kv_part *part = (void *)page->local;
        part->next = p->unused_parts;
        p->unused_parts = part;
        p->n_passed++;
        page->local = NULL;
        set_page(kv, i, page);
        if (kv->passed < (i + 1) * LLM_KV_TILE) kv->passed = (i + 1) * LLM_KV_TILE;
    }
}

bool llm_kv_can_truncate(const struct llm_kv *kv, int64_t n)
{
    if (n > 0 && n < kv->n && kv->passed > 0 && n - kv->pool->window + 1 < kv->passed) return false;
    if (kv->kept && n > 0 && n < kv->kept->n - kv->kept->recent) return false;
    return kv->pool->state_floats == 0 || n == 0 || n >= kv->n;
}

void llm_kv_truncate(struct llm_kv *kv, int64_t n)
{
    if (n < kv->n) {
        kv->traced = kv->traced > kv->n - n ? kv->traced - (kv->n - n) : 0;
        kv->n = n;
        if (kv->state) memset(kv->state, 0, (size_t)kv->pool->state_floats * sizeof *kv->state);
    }
    if (kv->n == 0) {
        kv->passed = 0;
        llm_kv_kept_release(kv->kept);
        kv->kept = NULL;
    }
    int64_t pages = pages_for(kv->pool, llm_kv_rows(kv));
    while (kv->n_pages > pages) page_drop(kv->pool, kv->pages[--kv->n_pages]);
}

int llm_kv_fork(struct llm_kv *to, const struct llm_kv *from, struct llm_err *e)
{
    if (llm_grow((void **)&to->ids, &to->ids_room, (size_t)from->n + 1, sizeof *to->ids, e) < 0 || grow_pages(to, from->n_pages, e) < 0
        || make_state(to, e) < 0) return -1;
    to->adapters = from->adapters;
    to->strengths = from->strengths;
    if (from->kept) llm_kv_keep(to, from->kept);
    if (from->state) memcpy(to->state, from->state, (size_t)to->pool->state_floats * sizeof *to->state);
    for (int64_t i = 0; i < from->n_pages; i++) {
        from->pages[i]->users++;
        set_page(to, i, from->pages[i]);
    }
    to->n_pages = from->n_pages;
    to->passed = from->passed;
    llm_kv_append(to, from->ids, from->n);
    to->traced = 0; /* queries are not copied */
    if (!from->memory) return 0;
    to->memory = llm_calloc(1, sizeof *to->memory, "a memory", e);
    if (!to->memory) return -1;
    llm_kv_init(to->memory, to->pool);
    return llm_kv_fork(to->memory, from->memory, e);
}

struct llm_kv_view llm_kv_view(const struct llm_kv *kv, int64_t layer)
{
    void *const *values = kv->pool->layers[layer].shape.d_v > 0 ? tiles_of(kv, layer, 1) : NULL;
    return (struct llm_kv_view){tiles_of(kv, layer, 0), values, kv->pool->layers[layer].types.k, kv->pool->layers[layer].types.v};
}

float *llm_kv_state(const struct llm_kv *kv, int64_t layer)
{
    return kv->state ? kv->state + kv->pool->layers[layer].state_at : NULL;
}

static void *element(const struct llm_kv *kv, int64_t layer, int value, int64_t head, int64_t row)
{
    const struct llm_kv_layer *l = &kv->pool->layers[layer];
    unsigned char *tile = tiles_of(kv, layer, value)[row / LLM_KV_TILE];
    return tile + (value ? l->v_row : l->k_row) * (size_t)(head * LLM_KV_TILE + row % LLM_KV_TILE);
}

void *llm_kv_key(const struct llm_kv *kv, int64_t layer, int64_t head, int64_t row)
{
    return element(kv, layer, 0, head, row);
}

void *llm_kv_value(const struct llm_kv *kv, int64_t layer, int64_t head, int64_t row)
{
    return element(kv, layer, 1, head, row);
}
