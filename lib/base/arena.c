#include "base/arena.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGN = 64 };
#define HUGE_PAGE ((size_t)2 << 20)

int llm_arena_init(struct llm_arena *a, size_t limit, struct llm_err *e)
{
    *a = (struct llm_arena){0};
    if (limit > SIZE_MAX / 2) return llm_no_memory(e, "address space");
    limit = (limit + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
    void *p = mmap(NULL, limit + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return llm_fail_errno(e, EX_UNAVAILABLE, "cannot reserve %zu MiB of address space", limit >> 20);
    /* The range begins on a huge page, so that the kernel may back it with them: fewer faults and TLB misses. The first is of small pages: who needs
     * little of the range does not take 2 MB of memory for it. */
    char *base = (char *)(((uintptr_t)p + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
    if (base > (char *)p) munmap(p, (size_t)(base - (char *)p));
    size_t tail = HUGE_PAGE - (size_t)(base - (char *)p);
    if (tail) munmap(base + limit, tail);
    madvise(base, limit, MADV_HUGEPAGE);
    madvise(base, HUGE_PAGE, MADV_NOHUGEPAGE);
    a->base = base;
    a->limit = limit;
    return 0;
}

void llm_arena_release(struct llm_arena *a)
{
    if (a->base) munmap(a->base, a->limit);
    *a = (struct llm_arena){0};
}

void *llm_arena_alloc(struct llm_arena *a, size_t bytes)
{
    if (bytes > a->limit - a->used) return NULL;
    size_t rounded = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (rounded > a->limit - a->used) return NULL;
    void *p = a->base + a->used;
    a->used += rounded;
    if (a->used > a->peak) a->peak = a->used;
    return p;
}

void llm_arena_pop(struct llm_arena *a, size_t mark)
{
    a->used = mark;
}

void llm_arena_trim(struct llm_arena *a)
{
    size_t page = a->used < HUGE_PAGE ? (size_t)sysconf(_SC_PAGESIZE) : HUGE_PAGE, from = (a->used + page - 1) & ~(page - 1);
    if (a->base && from < a->limit) madvise(a->base + from, a->limit - from, MADV_DONTNEED);
}
