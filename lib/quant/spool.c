#include "quant/spool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/log.h"
#include "io/temporary.h"

static void *give_up(struct llm_quant_spool *s)
{
    llm_verbose("%s: no temporary file: %s; results stay in memory", llm_temporary_folder(), strerror(errno));
    if (s->fd >= 0 && s->n == 0) close(s->fd);
    if (s->n == 0) s->fd = -1;
    s->size = UINT64_MAX;
    return NULL;
}

/* Blocks are written before they are mapped: a full disk is seen here, and no signal comes later. */
static bool put(int fd, const char *data, size_t bytes, uint64_t at)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t got = pwrite(fd, data + done, bytes - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        done += (size_t)got;
    }
    return true;
}

void *llm_quant_spool_put(struct llm_quant_spool *s, const void *data, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
    struct llm_err e = {0};
    if (bytes < LLM_SPOOL_LEAST || s->size == UINT64_MAX) return NULL;
    if (!s->open) s->fd = llm_temporary_open(&e);
    s->open = true;
    if (s->fd < 0 || llm_grow((void **)&s->v, &s->room, s->n + 1, sizeof *s->v, &e) < 0) return give_up(s);
    if (!put(s->fd, data, bytes, s->size) || ftruncate(s->fd, (off_t)(s->size + whole)) < 0) return give_up(s);
    void *p = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, (off_t)s->size);
    if (p == MAP_FAILED) return give_up(s);
    s->v[s->n++] = (struct llm_spooled){p, whole};
    s->size += whole;
    return p;
}

void llm_quant_spool_param(struct llm_quant_spool *s, struct llm_param *p)
{
    const size_t bytes = llm_dtype_bytes(p->weight.dtype, (uint64_t)llm_param_count(p));
    void *spooled = s && p->owned ? llm_quant_spool_put(s, p->weight.data, bytes) : NULL;
    if (!spooled) return;
    free((void *)(uintptr_t)p->weight.data);
    p->weight.data = p->weight.map = spooled;
    p->weight.map_end = (const char *)spooled + bytes;
    p->owned = false;
}

size_t llm_quant_spool_bytes(const struct llm_quant_spool *s, const void *p)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->v[i].p == p) return s->v[i].bytes;
    }
    return 0;
}

void llm_quant_spool_release(struct llm_quant_spool *s)
{
    for (size_t i = 0; i < s->n; i++) munmap(s->v[i].p, s->v[i].bytes);
    free(s->v);
    if (s->open && s->fd >= 0) close(s->fd);
    memset(s, 0, sizeof *s);
}
