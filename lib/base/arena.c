#include "base/arena.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/pages.h"

enum { ALIGN = 64 };
#define HUGE_PAGE LLM_HUGE_PAGE
#define SMALL ((size_t)64 << 20)  /* ranges up to this are always reserved whole */
#define GROWTH ((size_t)16 << 20) /* the minimum that is mapped at a time */
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0 /* without the flag the address is a hint; a mapping at another address is unmapped again */
#endif

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static void *map(void *at, size_t bytes, int flags)
{
    return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

/* The range begins at a multiple of a huge page, so that the kernel may use huge pages for it: fewer page faults and TLB misses. Its first 2 MB use
 * small pages, so that a program that needs little of the range does not take 2 MB of memory. */
static void advise(char *base, size_t from, size_t bytes)
{
    llm_pages_huge(base + from, bytes);
    if (from == 0) llm_pages_small(base, HUGE_PAGE);
}

static char *reserve_whole(size_t limit)
{
    char *p = map(NULL, limit + HUGE_PAGE, 0);
    if (p == MAP_FAILED) return NULL;
    char *base = (char *)round_up((uintptr_t)p, HUGE_PAGE);
    if (base > p) munmap(p, (size_t)(base - p));
    size_t tail = HUGE_PAGE - (size_t)(base - p);
    if (tail) munmap(base + limit, tail);
    advise(base, 0, limit);
    return base;
}

/* Extends the mapping to at least `want` bytes of the range. 0 or -1. */
static int grow(struct llm_arena *a, size_t want)
{
    size_t have = *a->mapped, step = have / 8 > GROWTH ? have / 8 : GROWTH, next = round_up(want > have + step ? want : have + step, HUGE_PAGE);
    for (int again = 0; again < 2; again++, next = round_up(want, HUGE_PAGE)) { /* if a generous step fails, try the smallest */
        if (next > a->limit) next = a->limit;
        if (next < want) break;
        char *at = a->base + have, *p = map(at, next - have, MAP_FIXED_NOREPLACE);
        if (p == at) {
            advise(a->base, have, next - have);
            *a->mapped = next;
            return 0;
        }
        if (p != MAP_FAILED) munmap(p, next - have);
    }
    a->limit = have;
    return -1;
}

/* Chooses an address at which nothing is mapped or will be. The system maps from high addresses downwards, and all mappings of the process together
 * are smaller than `limit` bytes. So each range begins two limits below the previous one. */
static int reserve_growing(struct llm_arena *a, size_t limit)
{
    static atomic_size_t below; /* bytes that ranges have taken so far, counted downwards from the system's mappings */
    char *top = map(NULL, HUGE_PAGE, 0);
    if (top == MAP_FAILED) return -1;
    munmap(top, HUGE_PAGE);
    size_t distance = atomic_fetch_add(&below, 2 * limit) + 3 * limit;
    if (distance / 3 < limit || distance >= (uintptr_t)top) return -1;
    a->mapped = calloc(1, sizeof *a->mapped);
    if (!a->mapped) return -1;
    a->base = (char *)(((uintptr_t)top - distance) / HUGE_PAGE * HUGE_PAGE);
    a->limit = limit;
    if (grow(a, 1) == 0) return 0;
    free(a->mapped);
    return -1;
}

/* ThreadSanitizer ends a program that asks for an address outside its ranges. */
#ifdef __SANITIZE_THREAD__
enum { CHOOSES_ADDRESSES = 0 };
#else
enum { CHOOSES_ADDRESSES = 1 };
#endif

static size_t allowed_bytes(void)
{
    struct rlimit space, data;
    size_t allowed = SIZE_MAX;
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur < allowed && space.rlim_cur != RLIM_INFINITY) allowed = (size_t)space.rlim_cur;
    if (getrlimit(RLIMIT_DATA, &data) == 0 && data.rlim_cur < allowed && data.rlim_cur != RLIM_INFINITY) allowed = (size_t)data.rlim_cur;
    return allowed;
}

int llm_arena_init(struct llm_arena *a, size_t limit, struct llm_err *e)
{
    size_t allowed = allowed_bytes();
    *a = (struct llm_arena){0};
    if (limit > SIZE_MAX / 8) return llm_no_memory(e, "address space");
    limit = round_up(limit, HUGE_PAGE);
    if (limit <= SMALL || allowed == SIZE_MAX) a->base = reserve_whole(limit);
    a->limit = limit;
    if (a->base) return 0;
    if (CHOOSES_ADDRESSES && limit > SMALL && reserve_growing(a, limit < allowed ? limit : round_up(allowed, HUGE_PAGE)) == 0) return 0;
    *a = (struct llm_arena){0};
    /* Some systems refuse both, with other errors than a lack of memory (valgrind: EINVAL, ENOENT): a range that is as large as they permit. */
    for (size_t less = limit / 2; less > SMALL && !a->base; less /= 2) {
        a->limit = round_up(less, HUGE_PAGE);
        a->base = reserve_whole(a->limit);
    }
    if (a->base) return 0;
    a->limit = 0;
    return llm_fail_errno(e, EX_UNAVAILABLE, "cannot reserve %zu MiB of address space", limit >> 20);
}

void llm_arena_release(struct llm_arena *a)
{
    if (a->base) munmap(a->base, a->mapped ? *a->mapped : a->limit);
    free(a->mapped);
    *a = (struct llm_arena){0};
}

void *llm_arena_alloc(struct llm_arena *a, size_t bytes)
{
    if (bytes > a->limit - a->used) return NULL;
    size_t rounded = round_up(bytes, ALIGN);
    if (rounded > a->limit - a->used) return NULL;
    if (a->mapped && a->used + rounded > *a->mapped && grow(a, a->used + rounded) < 0) return NULL;
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
    size_t end = a->mapped ? *a->mapped : a->limit;
    if (a->base && a->used < end) llm_pages_release_within(a->base + a->used, end - a->used, a->used < HUGE_PAGE ? 0 : HUGE_PAGE);
}
