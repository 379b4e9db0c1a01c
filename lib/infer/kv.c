#include "infer/kv.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"

const enum llm_dtype llm_kv_types[] = {LLM_F32, LLM_F16, LLM_BF16, LLM_Q8_0};

struct llm_kv_page {
    struct llm_kv_page *next;
    int64_t users;
    unsigned char *data; /* [n_layers][k tile, v tile], 64-byte aligned */
};

static size_t k_tile(const struct llm_kv_pool *p)
{
    return p->k_row * (size_t)p->shape.n_kv_heads * LLM_KV_TILE;
}

static size_t v_tile(const struct llm_kv_pool *p)
{
    return p->v_row * (size_t)p->shape.n_kv_heads * LLM_KV_TILE;
}

int llm_kv_pool_init(struct llm_kv_pool *p, const struct llm_cache_shape *shape, enum llm_dtype dtype, struct llm_err *e)
{
    *p = (struct llm_kv_pool){.shape = *shape, .dtype = dtype};
    p->k_row = llm_dtype_bytes(dtype, (uint64_t)shape->d_k);
    p->v_row = llm_dtype_bytes(dtype, (uint64_t)shape->d_v);
    if (p->k_row == 0 || p->v_row == 0) {
        return llm_fail(e, EX_UNAVAILABLE, "cache type %s: expected heads of a multiple of %d, found %" PRId64 " and %" PRId64,
                        llm_dtypes[dtype].name, llm_dtypes[dtype].block_size, shape->d_k, shape->d_v);
    }
    size_t per_layer = k_tile(p) + v_tile(p);
    if (__builtin_mul_overflow(per_layer, (size_t)shape->n_layers, &p->page_bytes)) return llm_no_memory(e, "a page of the cache");
    return 0;
}

void llm_kv_pool_release(struct llm_kv_pool *p)
{
    while (p->unused) {
        struct llm_kv_page *page = p->unused;
        p->unused = page->next;
        free(page->data);
        free(page);
    }
    p->n_pages = 0;
}

/* Zeroed: what stands behind the last token of a tile is multiplied by a probability of 0 and must be finite. */
static struct llm_kv_page *page_create(struct llm_kv_pool *p, struct llm_err *e)
{
    struct llm_kv_page *page = p->unused;
    if (page) {
        p->unused = page->next;
    } else {
        page = llm_calloc(1, sizeof *page, "a page of the cache", e);
        if (!page) return NULL;
        page->data = aligned_alloc(64, p->page_bytes / 64 * 64 + 64); /* models without a cache have pages of no bytes */
        if (!page->data) {
            free(page);
            llm_no_memory(e, "a page of the cache");
            return NULL;
        }
        p->n_pages++;
    }
    memset(page->data, 0, p->page_bytes);
    page->users = 1;
    page->next = NULL;
    return page;
}

static void page_drop(struct llm_kv_pool *p, struct llm_kv_page *page)
{
    if (--page->users > 0) return;
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
    free(kv->queries);
    *kv = (struct llm_kv){.pool = kv->pool};
}

int llm_kv_trace(struct llm_kv *kv, int64_t n, int64_t width, struct llm_err *e)
{
    size_t rows;
    if (__builtin_mul_overflow((size_t)n, (size_t)width, &rows)) return llm_no_memory(e, "traced queries");
    kv->queries = llm_calloc(rows, (size_t)kv->pool->shape.n_layers * sizeof *kv->queries, "traced queries", e);
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
    kv->pages[at] = page;
    unsigned char *p = page->data;
    for (int64_t layer = 0; layer < kv->pool->shape.n_layers; layer++) {
        tiles_of(kv, layer, 0)[at] = p;
        tiles_of(kv, layer, 1)[at] = p + k_tile(kv->pool);
        p += k_tile(kv->pool) + v_tile(kv->pool);
    }
}

static int grow_pages(struct llm_kv *kv, int64_t want, struct llm_err *e)
{
    if (want <= kv->pages_room) return 0;
    int64_t room = kv->pages_room * 2 > want ? kv->pages_room * 2 : want;
    struct llm_kv_page **pages = llm_alloc((size_t)room, sizeof *pages, "a cache's pages", e);
    void **tiles = llm_alloc((size_t)room * 2, (size_t)kv->pool->shape.n_layers * sizeof *tiles, "a cache's pages", e);
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

int llm_kv_reserve(struct llm_kv *kv, int64_t n, struct llm_err *e)
{
    int64_t pages = (n + LLM_KV_TILE - 1) / LLM_KV_TILE;
    if (llm_grow((void **)&kv->ids, &kv->ids_room, (size_t)n + 1, sizeof *kv->ids, e) < 0 || grow_pages(kv, pages, e) < 0) return -1;
    for (int64_t i = kv->n / LLM_KV_TILE; i < kv->n_pages; i++) {
        if (kv->pages[i]->users == 1) continue;
        struct llm_kv_page *own = page_create(kv->pool, e);
        if (!own) return -1;
        memcpy(own->data, kv->pages[i]->data, kv->pool->page_bytes);
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
}

void llm_kv_truncate(struct llm_kv *kv, int64_t n)
{
    if (n < kv->n) kv->n = n;
    int64_t pages = (kv->n + LLM_KV_TILE - 1) / LLM_KV_TILE;
    while (kv->n_pages > pages) page_drop(kv->pool, kv->pages[--kv->n_pages]);
}

int llm_kv_fork(struct llm_kv *to, const struct llm_kv *from, struct llm_err *e)
{
    if (llm_grow((void **)&to->ids, &to->ids_room, (size_t)from->n + 1, sizeof *to->ids, e) < 0 || grow_pages(to, from->n_pages, e) < 0) {
        return -1;
    }
    for (int64_t i = 0; i < from->n_pages; i++) {
        from->pages[i]->users++;
        set_page(to, i, from->pages[i]);
    }
    to->n_pages = from->n_pages;
    llm_kv_append(to, from->ids, from->n);
    return 0;
}

struct llm_kv_view llm_kv_view(const struct llm_kv *kv, int64_t layer)
{
    return (struct llm_kv_view){tiles_of(kv, layer, 0), tiles_of(kv, layer, 1), kv->pool->dtype};
}

void *llm_kv_key(const struct llm_kv *kv, int64_t layer, int64_t head, int64_t position)
{
    unsigned char *tile = tiles_of(kv, layer, 0)[position / LLM_KV_TILE];
    return tile + kv->pool->k_row * (size_t)(head * LLM_KV_TILE + position % LLM_KV_TILE);
}

void *llm_kv_value(const struct llm_kv *kv, int64_t layer, int64_t head, int64_t position)
{
    unsigned char *tile = tiles_of(kv, layer, 1)[position / LLM_KV_TILE];
    return tile + kv->pool->v_row * (size_t)(head * LLM_KV_TILE + position % LLM_KV_TILE);
}
