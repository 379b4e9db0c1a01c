#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/pages.h"

void *llm_alloc_huge(size_t count, size_t size, const char *what, struct llm_err *e)
{
    const size_t page = (size_t)2 << 20;
    size_t bytes;
    void *p = NULL;
    bool fits = !__builtin_mul_overflow(count, size, &bytes) && bytes <= SIZE_MAX / 2;
    if (!fits || posix_memalign(&p, bytes < page ? 64 : page, (bytes + 63) / 64 * 64) != 0) {
        llm_no_memory(e, what);
        return NULL;
    }
    if (bytes >= page) llm_pages_huge(p, bytes / page * page); /* the rest, less than a huge page, uses small pages */
    return p;
}

int llm_grow(void **array, size_t *room, size_t want, size_t size, struct llm_err *e)
{
    if (want <= *room) return 0;
    size_t next = *room + *room / 2 + 16, bytes;
    if (next < want) next = want;
    if (__builtin_mul_overflow(next, size, &bytes)) return llm_no_memory(e, "array too large");
    void *p = realloc(*array, bytes);
    if (!p) return llm_fail(e, EX_UNAVAILABLE, "out of memory: %zu bytes", bytes);
    *array = p;
    *room = next;
    return 0;
}

int llm_buf_reserve(struct llm_buf *b, size_t n, struct llm_err *e)
{
    void *p = b->p;
    if (n == SIZE_MAX) return llm_no_memory(e, "buffer too large");
    if (llm_grow(&p, &b->room, n + 1, 1, e) < 0) return -1;
    b->p = p;
    return 0;
}

int llm_buf_put(struct llm_buf *b, const void *bytes, size_t n, struct llm_err *e)
{
    size_t want;
    if (__builtin_add_overflow(b->n, n, &want)) return llm_no_memory(e, "buffer too large");
    if (llm_buf_reserve(b, want, e) < 0) return -1;
    if (n) memcpy(b->p + b->n, bytes, n);
    b->n = want;
    b->p[want] = 0;
    return 0;
}

int llm_buf_printf(struct llm_buf *b, struct llm_err *e, const char *fmt, ...)
{
    char small[256];
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(small, sizeof small, fmt, args);
    va_end(args);
    int got = n < 0 ? llm_fail(e, LLM_EX_FAILURE, "cannot format text") : 0;
    if (got == 0 && (size_t)n < sizeof small) {
        got = llm_buf_put(b, small, (size_t)n, e);
    } else if (got == 0 && (got = llm_buf_reserve(b, b->n + (size_t)n, e)) == 0) {
        vsnprintf(b->p + b->n, (size_t)n + 1, fmt, again);
        b->n += (size_t)n;
    }
    va_end(again);
    return got;
}

void llm_buf_release(struct llm_buf *b)
{
    free(b->p);
    *b = (struct llm_buf){0};
}

void *llm_alloc(size_t count, size_t size, const char *what, struct llm_err *e)
{
    size_t bytes;
    void *p = __builtin_mul_overflow(count, size, &bytes) ? NULL : malloc(bytes ? bytes : 1);
    if (!p) llm_no_memory(e, what);
    return p;
}

void *llm_calloc(size_t count, size_t size, const char *what, struct llm_err *e)
{
    void *p = calloc(count ? count : 1, size ? size : 1);
    if (!p) llm_no_memory(e, what);
    return p;
}
