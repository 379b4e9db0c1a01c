/* Memory that a program runs out of: once the file no_memory is in the current folder, no allocation of more than 8 bytes that the program itself
 * asks for succeeds. Put into a program by LD_PRELOAD. */
#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <unistd.h>

void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
static char *begin, *end; /* of the program */

static int look(struct dl_phdr_info *i, size_t size, void *arg)
{
    for (int k = 0; k < i->dlpi_phnum; k++) { /* the first object is the program */
        char *from = (char *)i->dlpi_addr + i->dlpi_phdr[k].p_vaddr, *to = from + i->dlpi_phdr[k].p_memsz;
        if (i->dlpi_phdr[k].p_type != PT_LOAD) continue;
        if (!begin || from < begin) begin = from;
        if (to > end) end = to;
    }
    return 1;
}

__attribute__((constructor)) static void start(void)
{
    dl_iterate_phdr(look, NULL);
}

static int fails(size_t n, void *caller)
{
    if (n <= 8 || (char *)caller < begin || (char *)caller >= end || access("no_memory", F_OK) < 0) return 0;
    errno = ENOMEM;
    return 1;
}

#define FAILS(n) fails(n, __builtin_return_address(0))

void *malloc(size_t n) { return FAILS(n) ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return FAILS(n * size) ? NULL : __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { return FAILS(n) ? NULL : __libc_realloc(p, n); }

int posix_memalign(void **p, size_t align, size_t n)
{
    if (FAILS(n)) return ENOMEM;
    *p = __libc_memalign(align, n);
    return *p ? 0 : ENOMEM;
}
