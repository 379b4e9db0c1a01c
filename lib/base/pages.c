#include "base/pages.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

void llm_pages_release(void *p, size_t bytes)
{
    madvise(p, bytes, MADV_DONTNEED);
}

void llm_pages_release_within(void *p, size_t bytes, size_t unit)
{
    if (unit == 0) unit = (size_t)sysconf(_SC_PAGESIZE);
    const uintptr_t from = ((uintptr_t)p + unit - 1) & ~(unit - 1), end = ((uintptr_t)p + bytes) & ~(unit - 1);
    if (from < end) llm_pages_release((void *)from, end - from);
}

void llm_pages_release_freed(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

void llm_pages_huge(void *p, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    madvise(p, bytes, MADV_HUGEPAGE);
#else
    (void)p, (void)bytes;
#endif
}

void llm_pages_small(void *p, size_t bytes)
{
#ifdef MADV_NOHUGEPAGE
    madvise(p, bytes, MADV_NOHUGEPAGE);
#else
    (void)p, (void)bytes;
#endif
}

#ifdef __linux__
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

static bool is_traced(void)
{
    char line[200];
    bool traced = true;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "TracerPid:", 10) == 0) traced = strtol(line + 10, NULL, 10) != 0;
    if (f) fclose(f);
    return traced;
}

/* Whether relocations change the text of this object: then its pages differ from the file and must not be released. */
static bool changes_text(const struct dl_phdr_info *o)
{
    for (int i = 0; i < o->dlpi_phnum; i++) {
        if (o->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
        for (const ElfW(Dyn) *d = (const void *)(o->dlpi_addr + o->dlpi_phdr[i].p_vaddr); d->d_tag != DT_NULL; d++)
            if (d->d_tag == DT_TEXTREL || (d->d_tag == DT_FLAGS && d->d_un.d_val & DF_TEXTREL)) return true;
    }
    return false;
}

static int release_object(struct dl_phdr_info *o, size_t size, void *arg)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    (void)size, (void)arg;
    if (o->dlpi_addr == getauxval(AT_SYSINFO_EHDR) || changes_text(o)) return 0;
    for (int i = 0; i < o->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &o->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || p->p_flags & PF_W) continue;
        uintptr_t from = (o->dlpi_addr + p->p_vaddr) / page * page, end = (o->dlpi_addr + p->p_vaddr + p->p_memsz + page - 1) / page * page;
        llm_pages_release((void *)from, end - from);
    }
    return 0;
}

void llm_pages_release_program(void)
{
    if (!is_traced()) dl_iterate_phdr(release_object, NULL);
}
#else
void llm_pages_release_program(void)
{
}
#endif
