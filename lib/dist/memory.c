/* POSIX shared memory among the ranks of a machine (dist/memory.h). */
#include "dist/memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/hash.h"

/* The name under which the first rank of a machine offers the memory; empty: it has none. `word` is its first word, by which the others know that it
 * is the same memory: machines may have one name. */
struct offer { char name[48]; uint64_t word; };

enum { HEAD = 64 /* bytes before the memory, of which `word` is the first */ };

static char *map(int fd, size_t bytes)
{
    void *p = mmap(NULL, HEAD + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

static char *offer(struct offer *o, size_t bytes)
{
    char *p = NULL;
    if (getrandom(&o->word, sizeof o->word, 0) != (ssize_t)sizeof o->word) return NULL;
    snprintf(o->name, sizeof o->name, "/llmutils-%lld-%016llx", (long long)getpid(), (unsigned long long)o->word);
    const int fd = shm_open(o->name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd >= 0 && posix_fallocate(fd, 0, (off_t)(HEAD + bytes)) == 0) p = map(fd, bytes); /* now, not by a signal later */
    if (fd >= 0) close(fd);
    if (p) memcpy(p, &o->word, sizeof o->word);
    else if (fd >= 0) shm_unlink(o->name);
    if (!p) o->name[0] = 0;
    return p;
}

static char *take(const struct offer *o, size_t bytes)
{
    struct stat st;
    char *p = NULL;
    const int fd = o->name[0] ? shm_open(o->name, O_RDWR, 0) : -1;
    if (fd >= 0 && fstat(fd, &st) == 0 && (uintmax_t)st.st_size == HEAD + bytes) p = map(fd, bytes);
    if (fd >= 0) close(fd);
    if (!p || memcmp(p, &o->word, sizeof o->word) == 0) return p;
    munmap(p, HEAD + bytes);
    return NULL;
}

/* Memory of the ranks of `node`, all of them or none. */
static int share(struct llm_node_memory *m, struct llm_comm *node, size_t bytes, struct llm_err *e)
{
    const char *wish = getenv("LLM_NODE_MEMORY");
    const int rank = llm_comm_rank(node);
    struct offer o = {.name = ""};
    char *p = NULL;
    int refused = 0;
    const bool wanted = (!wish || strcmp(wish, "no") != 0) && bytes > 0;
    if ((refused = llm_comm_agree(node, !wanted, NULL, e)) < 0) return -1;
    if (refused) return 0;
    if (rank == 0) p = offer(&o, bytes);
    int got = llm_comm_broadcast(node, 0, &o, sizeof o, e);
    if (got == 0 && rank > 0) p = take(&o, bytes);
    refused = got == 0 ? llm_comm_agree(node, !p, NULL, e) : -1;
    if (rank == 0 && p) shm_unlink(o.name);
    if (refused == 0) {
        m->p = p + HEAD;
        m->bytes = bytes;
        return 0;
    }
    if (p) munmap(p, HEAD + bytes);
    return refused < 0 ? -1 : 0;
}

int llm_node_memory_create(struct llm_node_memory *m, struct llm_comm *c, size_t bytes, struct llm_err *e)
{
    const int n = llm_comm_size(c), rank = llm_comm_rank(c);
    const char *host = llm_comm_host(c, rank);
    if (!(m->node = llm_calloc((size_t)n, sizeof *m->node, "ranks", e))) return llm_comm_give_up(c);
    struct llm_comm *node = llm_comm_split(c, llm_xxh64(host, strlen(host), 0), e);
    if (!node) return -1;
    int first = 0, got = llm_comm_size(node) > 1 ? share(m, node, bytes, e) : 0;
    while (strcmp(llm_comm_host(c, first), host) != 0) first++;
    llm_comm_destroy(node);
    m->node[rank] = m->p ? first : rank;
    return got < 0 ? -1 : llm_comm_gather_even(c, m->node, sizeof *m->node, e);
}

void llm_node_memory_release(struct llm_node_memory *m)
{
    if (m->p) munmap((char *)m->p - HEAD, HEAD + m->bytes);
    free(m->node);
    *m = (struct llm_node_memory){.p = NULL};
}
