#include "infer/prefix.h"

#include <stdlib.h>
#include <string.h>
#include "base/buf.h"

enum { MAX_NODES = 2048, BLOCK = 64 };

/* A child and the first of the tokens that lead to it. */
struct branch {
    int32_t first;
    struct llm_prefix_node *node;
};

/* Tokens [from, kv.n) lead here from the parent, which has the first `from`. */
struct llm_prefix_node {
    struct llm_prefix_node *parent;
    struct branch *children;    /* [n_children] ascending by `first` */
    size_t n_children, room;
    struct llm_kv kv;
    int64_t from;
    int64_t own;                /* pages that the parent does not have */
    uint64_t used;
};

bool llm_prefix_possible(const struct llm_kv_pool *pool)
{
    return pool->state_floats == 0 && pool->page_bytes > 0;
}

static struct llm_prefix_node *node_create(struct llm_prefix *x, struct llm_err *e)
{
    struct llm_prefix_node *node = llm_calloc(1, sizeof *node, "an index of beginnings", e);
    if (!node) return NULL;
    llm_kv_init(&node->kv, x->pool);
    x->nodes++;
    return node;
}

static void node_destroy(struct llm_prefix *x, struct llm_prefix_node *node)
{
    x->pages -= node->own;
    x->nodes--;
    llm_kv_release(&node->kv);
    free(node->children);
    free(node);
}

/* Where the child that begins with this token stands among the children, or would stand. */
static size_t place_of(const struct llm_prefix_node *node, int32_t first)
{
    size_t low = 0, high = node->n_children;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (node->children[middle].first < first) low = middle + 1;
        else high = middle;
    }
    return low;
}

static struct llm_prefix_node *child_of(const struct llm_prefix_node *node, int32_t first)
{
    size_t at = place_of(node, first);
    return at < node->n_children && node->children[at].first == first ? node->children[at].node : NULL;
}

int64_t llm_prefix_common(const int32_t *a, const int32_t *b, int64_t n)
{
    int64_t k = 0;
    while (k + BLOCK <= n && memcmp(a + k, b + k, BLOCK * sizeof *a) == 0) k += BLOCK;
    while (k < n && a[k] == b[k]) k++;
    return k;
}

int llm_prefix_init(struct llm_prefix *x, struct llm_kv_pool *pool, int64_t max_pages, struct llm_err *e)
{
    *x = (struct llm_prefix){.pool = pool, .max_pages = max_pages};
    x->root = node_create(x, e);
    return x->root ? 0 : -1;
}

/* The first leaf below a node. */
static struct llm_prefix_node *leaf_of(struct llm_prefix_node *node)
{
    while (node->n_children > 0) node = node->children[0].node;
    return node;
}

static void unlink_node(struct llm_prefix_node *node)
{
    struct llm_prefix_node *parent = node->parent;
    size_t at = place_of(parent, node->kv.ids[node->from]);
    parent->n_children--;
    memmove(parent->children + at, parent->children + at + 1, (parent->n_children - at) * sizeof *parent->children);
}

void llm_prefix_release(struct llm_prefix *x)
{
    while (x->root) {
        struct llm_prefix_node *leaf = leaf_of(x->root);
        if (leaf == x->root) x->root = NULL;
        else unlink_node(leaf);
        node_destroy(x, leaf);
    }
}

/* Follows ids[0..n) from the root. The node in whose tokens they end or part is returned, *length tokens from the beginning. */
static struct llm_prefix_node *follow(const struct llm_prefix *x, const int32_t *ids, int64_t n, int64_t *length)
{
    struct llm_prefix_node *at = x->root;
    int64_t k = 0;
    while (k < n && k == at->kv.n) {
        struct llm_prefix_node *child = child_of(at, ids[k]);
        if (!child) break;
        at = child;
        k += llm_prefix_common(at->kv.ids + k, ids + k, (n < at->kv.n ? n : at->kv.n) - k);
    }
    *length = k;
    return at;
}

int64_t llm_prefix_match(const struct llm_prefix *x, const int32_t *ids, int64_t n)
{
    int64_t length;
    follow(x, ids, n, &length);
    return length;
}

/* A node was used, and all that lead to it. */
static void touch(struct llm_prefix *x, struct llm_prefix_node *node)
{
    x->clock++;
    for (; node; node = node->parent) node->used = x->clock;
}

int llm_prefix_take(struct llm_prefix *x, struct llm_kv *kv, const int32_t *ids, int64_t n, struct llm_err *e)
{
    int64_t length;
    struct llm_prefix_node *node = follow(x, ids, n, &length);
    if (llm_kv_fork(kv, &node->kv, e) < 0) return -1;
    llm_kv_truncate(kv, n);
    touch(x, node);
    return 0;
}

/* How many pages of `kv` another cache does not have in the same place. */
static int64_t pages_beside(const struct llm_kv *kv, const struct llm_kv *other)
{
    int64_t n = 0;
    for (int64_t i = 0; i < kv->n_pages; i++) n += i >= other->n_pages || kv->pages[i] != other->pages[i];
    return n;
}

/* A node of the first n tokens of `kv`, the first `from` of which are those of `parent`, to which it is not linked yet. */
static struct llm_prefix_node *node_of(struct llm_prefix *x, const struct llm_kv *kv, const struct llm_prefix_node *parent, int64_t from, int64_t n,
                                       struct llm_err *e)
{
    struct llm_prefix_node *node = node_create(x, e);
    if (!node) return NULL;
    if (llm_kv_fork(&node->kv, kv, e) < 0) {
        node_destroy(x, node);
        return NULL;
    }
    llm_kv_truncate(&node->kv, n);
    node->from = from;
    node->own = pages_beside(&node->kv, &parent->kv);
    x->pages += node->own;
    return node;
}

/* Room for one more child. */
static int reserve_child(struct llm_prefix_node *node, struct llm_err *e)
{
    return llm_grow((void **)&node->children, &node->room, node->n_children + 1, sizeof *node->children, e);
}

/* `parent` has room for it. */
static void add_child(struct llm_prefix_node *parent, struct llm_prefix_node *child)
{
    int32_t first = child->kv.ids[child->from];
    size_t at = place_of(parent, first);
    memmove(parent->children + at + 1, parent->children + at, (parent->n_children - at) * sizeof *parent->children);
    parent->children[at] = (struct branch){first, child};
    parent->n_children++;
    child->parent = parent;
}

/* A node of the first n tokens of `node`, between it and its parent. NULL: see `e`; the tree is as before. */
static struct llm_prefix_node *split(struct llm_prefix *x, struct llm_prefix_node *node, int64_t n, struct llm_err *e)
{
    struct llm_prefix_node *middle = node_of(x, &node->kv, node->parent, node->from, n, e);
    if (!middle) return NULL;
    if (reserve_child(middle, e) < 0) {
        node_destroy(x, middle);
        return NULL;
    }
    unlink_node(node);
    add_child(node->parent, middle);
    node->own -= middle->own;
    x->pages -= middle->own;
    node->from = n;
    add_child(middle, node);
    return middle;
}

int llm_prefix_put(struct llm_prefix *x, const struct llm_kv *kv, struct llm_err *e)
{
    int64_t length;
    struct llm_prefix_node *at = follow(x, kv->ids, kv->n, &length);
    if (length < kv->n) { /* a beginning that is stored already ends within a node: nothing to add */
        if (length < at->kv.n) at = split(x, at, length, e);
        struct llm_prefix_node *leaf = at && reserve_child(at, e) == 0 ? node_of(x, kv, at, length, kv->n, e) : NULL;
        if (!leaf) return -1;
        add_child(at, leaf);
        at = leaf;
        x->version++;
    }
    touch(x, at);
    llm_prefix_shrink(x, x->max_pages);
    return 0;
}

/* `alone`: of leaves that alone have a page. */
static void find_oldest(struct llm_prefix_node *node, bool alone, struct llm_prefix_node **oldest)
{
    if (node->n_children == 0 && (!*oldest || node->used < (*oldest)->used) && (!alone || llm_kv_owns_pages(&node->kv))) *oldest = node;
    for (size_t i = 0; i < node->n_children; i++) find_oldest(node->children[i].node, alone, oldest);
}

static void remove_leaf(struct llm_prefix *x, struct llm_prefix_node *leaf)
{
    unlink_node(leaf);
    node_destroy(x, leaf);
    x->version++;
}

bool llm_prefix_free(struct llm_prefix *x)
{
    struct llm_prefix_node *oldest = NULL;
    for (size_t i = 0; i < x->root->n_children; i++) find_oldest(x->root->children[i].node, true, &oldest);
    if (oldest) remove_leaf(x, oldest);
    return oldest != NULL;
}

void llm_prefix_shrink(struct llm_prefix *x, int64_t max_pages)
{
    while ((x->pages > max_pages || x->nodes > MAX_NODES) && x->root->n_children > 0) {
        struct llm_prefix_node *oldest = NULL;
        find_oldest(x->root, false, &oldest);
        remove_leaf(x, oldest);
    }
}

static int visit_shared(const struct llm_prefix_node *node, int64_t min, int (*visit)(void *arg, const struct llm_kv *kv), void *arg)
{
    int status = node->kv.n >= min && node->n_children > 1 ? visit(arg, &node->kv) : 0;
    for (size_t i = 0; i < node->n_children && status == 0; i++) status = visit_shared(node->children[i].node, min, visit, arg);
    return status;
}

int llm_prefix_shared(const struct llm_prefix *x, int64_t min, int (*visit)(void *arg, const struct llm_kv *kv), void *arg)
{
    return visit_shared(x->root, min, visit, arg);
}
