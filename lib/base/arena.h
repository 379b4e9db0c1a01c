/* Last-in-first-out memory: one address range, pages committed as they are touched (huge pages where the kernel gives them). Nothing is freed singly:
 * take a mark, allocate, return to the mark.
 *
 * Usually the whole range is reserved at once. Where address space is limited (ulimit -v, or a kernel that does not overcommit), the range is mapped
 * piece by piece as it is used, at an address below which nothing else is mapped, so that it stays contiguous. */
#ifndef LLM_BASE_ARENA_H
#define LLM_BASE_ARENA_H

#include <stddef.h>
#include "base/err.h"

struct llm_arena {
    char *base;
    size_t used, limit, peak; /* bytes; peak: the largest `used` so far */
    size_t *mapped;           /* bytes of the range that are mapped, shared by copies of this struct; NULL: all of `limit` */
};

/* Makes room for `limit` bytes of address space (not memory). 0 or -1. */
int llm_arena_init(struct llm_arena *a, size_t limit, struct llm_err *e) LLM_MUST_CHECK;
void llm_arena_release(struct llm_arena *a);
/* 64-byte aligned, uninitialised. NULL when the range is used up, or no more of it can be mapped; `limit` is then what there is (the caller says of
 * what). */
void *llm_arena_alloc(struct llm_arena *a, size_t bytes);
static inline size_t llm_arena_mark(const struct llm_arena *a) { return a->used; }
void llm_arena_pop(struct llm_arena *a, size_t mark);
/* Gives the pages above `used` back to the system. */
void llm_arena_trim(struct llm_arena *a);

#endif
