/* A growing byte buffer. Zero-initialise it; llm_buf_release frees the memory. */
#ifndef LLM_BASE_BUF_H
#define LLM_BASE_BUF_H

#include <stddef.h>
#include "base/err.h"

struct llm_buf {
    char *p;         /* the bytes; always followed by a NUL once anything was put */
    size_t n, room;  /* used, allocated */
};

/* Room for at least `n` bytes in all (and the NUL). Grows geometrically. 0, or -1 when memory is short. */
int llm_buf_reserve(struct llm_buf *b, size_t n, struct llm_err *e) LLM_MUST_CHECK;
int llm_buf_put(struct llm_buf *b, const void *bytes, size_t n, struct llm_err *e) LLM_MUST_CHECK;
int llm_buf_printf(struct llm_buf *b, struct llm_err *e, const char *fmt, ...) LLM_PRINTF(3, 4) LLM_MUST_CHECK;
void llm_buf_release(struct llm_buf *b);

/* malloc of count × size with the product checked; NULL and `e` ("out of memory: what") on failure. 0 bytes are 1. */
void *llm_alloc(size_t count, size_t size, const char *what, struct llm_err *e) LLM_MUST_CHECK;   /* uninitialised */
void *llm_calloc(size_t count, size_t size, const char *what, struct llm_err *e) LLM_MUST_CHECK;  /* zeroed */
/* As llm_alloc, for tables that are read as a whole. At least a huge page: aligned to huge pages, which the kernel may use (fewer page faults and TLB
 * misses). Less: 64-byte aligned. */
void *llm_alloc_huge(size_t count, size_t size, const char *what, struct llm_err *e) LLM_MUST_CHECK;
/* Grows an array geometrically so that at least `want` elements fit. *room counts elements. 0 or -1. */
int llm_grow(void **array, size_t *room, size_t want, size_t size, struct llm_err *e) LLM_MUST_CHECK;

#endif
