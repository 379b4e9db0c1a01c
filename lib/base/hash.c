#include "base/hash.h"

#include <stdlib.h>
#include <xxhash.h>

uint64_t llm_xxh64(const void *p, size_t n, uint64_t seed)
{
    return XXH64(p, n, seed);
}

struct llm_xxh { XXH64_state_t *state; };

struct llm_xxh *llm_xxh_create(struct llm_err *e)
{
    struct llm_xxh *h = calloc(1, sizeof *h);
    if (h) h->state = XXH64_createState();
    if (!h || !h->state) {
        llm_xxh_destroy(h);
        llm_no_memory(e, "checksum");
        return NULL;
    }
    XXH64_reset(h->state, 0);
    return h;
}

void llm_xxh_update(struct llm_xxh *h, const void *p, size_t n)
{
    if (n) XXH64_update(h->state, p, n);
}

uint64_t llm_xxh_digest(const struct llm_xxh *h)
{
    return XXH64_digest(h->state);
}

void llm_xxh_destroy(struct llm_xxh *h)
{
    if (h) XXH64_freeState(h->state);
    free(h);
}
