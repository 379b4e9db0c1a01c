#include "token/trie.h"
#include <stdlib.h>
#include "base/buf.h"

static size_t slot_of(const struct llm_trie *t, uint64_t key)
{
    return (size_t)(key * UINT64_C(0x9E3779B97F4A7C15) >> (64 - t->bits));
}

static int grow(struct llm_trie *t, struct llm_err *e)
{
    struct llm_trie bigger = {.bits = t->bits ? t->bits + 1 : 8, .n = t->n};
    size_t n = (size_t)1 << bigger.bits;
    bigger.edges = llm_calloc(n, sizeof *bigger.edges, "a trie", e);
    if (!bigger.edges)
        return -1;
    for (size_t i = 0; t->edges && i < (size_t)1 << t->bits; i++) {
        if (t->edges[i].key == 0)
            continue;
        size_t at = slot_of(&bigger, t->edges[i].key);
        while (bigger.edges[at].key)
            at = (at + 1) & (n - 1);
        bigger.edges[at] = t->edges[i];
    }
    free(t->edges);
    *t = bigger;
    return 0;
}

int llm_trie_put(struct llm_trie *t, uint32_t from, const unsigned char *p, size_t n, int32_t value, struct llm_err *e)
{
    uint32_t node = from;
    for (size_t i = 0; i < n; i++) {
        if ((t->bits == 0 || (size_t)t->n * 2 >= (size_t)1 << t->bits) && grow(t, e) < 0)
            return -1;
        uint64_t key = ((uint64_t)node << 8 | p[i]) + 1;
        size_t mask = ((size_t)1 << t->bits) - 1, at = slot_of(t, key);
        while (t->edges[at].key && t->edges[at].key != key)
            at = (at + 1) & mask;
        if (t->edges[at].key == 0) {
            if (t->n == LLM_TRIE_SECOND - 1)
                return llm_fail(e, EX_UNAVAILABLE, "a trie of more than 4 billion nodes");
            t->edges[at] = (struct llm_trie_edge){key, ++t->n, -1};
        }
        if (i + 1 == n && t->edges[at].value < 0)
            t->edges[at].value = value;
        node = t->edges[at].node;
    }
    return 0;
}

void llm_trie_release(struct llm_trie *t)
{
    free(t->edges);
    *t = (struct llm_trie){0};
}

size_t llm_trie_longest(const struct llm_trie *t, uint32_t from, const unsigned char *p, size_t n, int32_t *value)
{
    uint32_t node = from;
    size_t longest = 0;
    *value = -1;
    for (size_t i = 0; i < n; i++) {
        int32_t v;
        node = llm_trie_next(t, node, p[i], &v);
        if (node == LLM_TRIE_NONE)
            break;
        if (v >= 0) {
            longest = i + 1;
            *value = v;
        }
    }
    return longest;
}
