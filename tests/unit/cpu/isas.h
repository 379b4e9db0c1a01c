/* For the tests of lib/cpu: kernels of any instruction set, numbers, and memory that ends at a guard page. */
#ifndef LLM_TEST_CPU_ISAS_H
#define LLM_TEST_CPU_ISAS_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "cpu/detect.h"
#include "cpu/kernels.h"
#include "cpu/pool.h"
#include "../near.h"

#define FOR_EACH_ISA(isa) \
    for (const struct llm_isa *isa = llm_isas; isa->name; isa++) if (isa_use(isa))

static inline int isa_use(const struct llm_isa *isa)
{
    if (!isa->usable()) return 0;
    llm_k = (struct llm_kernels){0};
    isa->fill(&llm_k);
    llm_k.isa = isa->name;
    return 1;
}

/* Fails unless |a - b| ≤ tolerance · (1 + |b|) for each of n elements; says the instruction set in use and `what`. */
static inline void close_to(const float *a, const float *b, size_t n, double tolerance, const char *what)
{
    char where[120];
    snprintf(where, sizeof where, "%s: %s", llm_k.isa, what);
    near_all(where, a, b, n, tolerance, tolerance);
}

/* Uniform in [-1, 1), the same every time (a 64-bit linear congruential generator). */
static inline float noise(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)(int32_t)(*state >> 32) * 0x1p-31f;
}

/* `bytes` that end where an unreadable page begins. A test that needs thousands of them releases each: a process has 65,530 mappings. */
static inline void *guarded(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
    char *p = mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    assert_int_equal(mprotect(p + whole, page, PROT_NONE), 0);
    return p + whole - bytes;
}
static inline void guarded_release(void *p, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
    assert_int_equal(munmap((char *)p + bytes - whole, whole + page), 0);
}

static inline float *noisy(size_t n, uint64_t seed)
{
    float *x = guarded(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = noise(&seed);
    return x;
}

#endif
