/* Added tokens found in text: the leftmost, of those the longest. Of equal ones (normal forms may be) a special one goes before others, then
 * the lower id. */
#ifndef LLM_TOKEN_ADDED_H
#define LLM_TOKEN_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

struct llm_added_entry {
    const unsigned char *text; /* borrowed */
    size_t n;
    int32_t id;
    bool special;
};
/* A set to look for; zero-initialised it is empty. */
struct llm_added {
    struct llm_added_entry *entries; /* sorted by bytes */
    size_t n, room, longest;
    unsigned char first[256]; /* 1: some entry begins with this byte */
};
int llm_added_put(struct llm_added *a, const unsigned char *text, size_t n, int32_t id, bool special, struct llm_err *e) LLM_MUST_CHECK;
void llm_added_sort(struct llm_added *a); /* after the last put */
void llm_added_release(struct llm_added *a);
/* The first match in [0, n): offset, and *len, *id. When none is certain: the offset up to which there is none, *len = 0. */
size_t llm_added_find(const struct llm_added *a, const unsigned char *p, size_t n, bool last, size_t *len, int32_t *id);

#endif
