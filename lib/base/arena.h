/* Last-in-first-out memory: one address range, pages committed as they are touched (huge pages where the kernel gives them). Nothing is freed singly:
 * take a mark, allocate, return to the mark.
 *
 * Usually the whole range is reserved at once. Where address space is limited (ulimit -v, or a kernel that does not overcommit), the range is mapped
 * step by step as it is used, at an address above which `limit` bytes are free, so that it stays contiguous. */
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
/* `bytes` bytes, 64-byte aligned, uninitialised. NULL if the range is used up, or if no more of it can be mapped; `limit` is then the size that it
 * has. The caller makes the error message. */
void *llm_arena_alloc(struct llm_arena *a, size_t bytes);
/* A mark is the number of bytes used. llm_arena_pop frees everything that was allocated after the mark. */
static inline size_t llm_arena_mark(const struct llm_arena *a) { return a->used; }
void llm_arena_pop(struct llm_arena *a, size_t mark);
/* Releases the pages above `used` to the operating system. */
void llm_arena_trim(struct llm_arena *a);

#endif
