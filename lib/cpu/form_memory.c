#include "cpu/form_memory.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include "base/pages.h"

/* A chunk holds small allocations one after another and is freed with its last allocation. A large allocation has a chunk of its own. */
struct chunk { size_t bytes, used, pieces; };
enum { HEAD = 64 };
static const size_t CHUNK = (size_t)32 << 20;
_Static_assert(sizeof(struct chunk) <= HEAD, "the head fits");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct chunk *current;

/* With whole huge pages; what does not fill one has small pages. */
static struct chunk *create_chunk(size_t bytes)
{
    void *p;
    size_t whole = (bytes + 4095) / 4096 * 4096;
    if (posix_memalign(&p, whole < LLM_HUGE_PAGE ? 4096 : LLM_HUGE_PAGE, whole) != 0) return NULL;
    if (whole >= LLM_HUGE_PAGE) llm_pages_huge(p, whole / LLM_HUGE_PAGE * LLM_HUGE_PAGE);
    *(struct chunk *)p = (struct chunk){.bytes = bytes, .used = HEAD};
    return p;
}

/* Before each piece stand 64 bytes with the address of its chunk. */
static void *take(struct chunk *c, size_t bytes)
{
    char *p = (char *)c + c->used;
    *(struct chunk **)(void *)p = c;
    c->used += HEAD + bytes;
    c->pieces++;
    return p + HEAD;
}

/* Releases the pages after the last piece, of which a huge one may have brought many. */
static void trim(struct chunk *c)
{
    llm_pages_release_within((char *)c + c->used, c->bytes - c->used, 0);
}

void llm_form_memory_trim(void)
{
    pthread_mutex_lock(&lock);
    if (current) trim(current);
    pthread_mutex_unlock(&lock);
}

void *llm_form_memory_create(size_t bytes)
{
    if (bytes > SIZE_MAX / 2) return NULL;
    bytes = (bytes + 63) / 64 * 64;
    pthread_mutex_lock(&lock);
    struct chunk *c = current;
    if (c && (bytes > CHUNK / 4 || c->bytes - c->used < HEAD + bytes)) trim(c);
    if (bytes > CHUNK / 4) {
        c = create_chunk(2 * HEAD + bytes);
    } else if (!c || c->bytes - c->used < HEAD + bytes) {
        c = create_chunk(CHUNK);
        if (c) current = c;
    }
    void *p = c ? take(c, bytes) : NULL;
    pthread_mutex_unlock(&lock);
    return p;
}

void llm_form_memory_destroy(void *p)
{
    if (!p) return;
    pthread_mutex_lock(&lock);
    struct chunk *c = *(struct chunk **)(void *)((char *)p - HEAD);
    if (--c->pieces == 0) {
        if (c == current) current = NULL;
        free(c);
    }
    pthread_mutex_unlock(&lock);
}
