/* Byte strings with a value each, walked a byte at a time: what Unigram, WordPiece and user-defined symbols look up. */
#ifndef LLM_TOKEN_TRIE_H
#define LLM_TOKEN_TRIE_H

#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

#define LLM_TRIE_NONE UINT32_MAX
#define LLM_TRIE_SECOND (UINT32_MAX - 1) /* another root, for a second set of strings */

/* Zero-initialised it is empty: node 0, the root, and nothing below it. */
struct llm_trie {
    struct llm_trie_edge { uint64_t key; uint32_t node; int32_t value; } *edges; /* hash of (node << 8 | byte) + 1, 2^bits; key 0: empty */
    int bits;
    uint32_t n; /* nodes but the root: each has one edge that leads to it */
};
/* Adds `n` > 0 bytes under `from` (0: the root). The first value of a string stays. */
int llm_trie_put(struct llm_trie *t, uint32_t from, const unsigned char *p, size_t n, int32_t value, struct llm_err *e) LLM_MUST_CHECK;
void llm_trie_release(struct llm_trie *t);

/* The child of `node` by `byte`, or LLM_TRIE_NONE. *value: of the string that ends there, or -1. */
static inline uint32_t llm_trie_next(const struct llm_trie *t, uint32_t node, unsigned char byte, int32_t *value)
{
    if (t->bits == 0)
        return LLM_TRIE_NONE;
    uint64_t key = ((uint64_t)node << 8 | byte) + 1;
    size_t mask = ((size_t)1 << t->bits) - 1;
    for (size_t i = (size_t)(key * UINT64_C(0x9E3779B97F4A7C15) >> (64 - t->bits));; i = (i + 1) & mask) {
        if (t->edges[i].key == key) {
            *value = t->edges[i].value;
            return t->edges[i].node;
        }
        if (t->edges[i].key == 0)
            return LLM_TRIE_NONE;
    }
}
/* Length of the longest string at the beginning of [p, p + n), 0: none; its value in *value. */
size_t llm_trie_longest(const struct llm_trie *t, uint32_t from, const unsigned char *p, size_t n, int32_t *value);

#endif
