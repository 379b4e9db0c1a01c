#include "base/hash.h"

#include <nettle/sha2.h>
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

struct llm_sha256 { struct sha256_ctx state; };

struct llm_sha256 *llm_sha256_create(struct llm_err *e)
{
    struct llm_sha256 *h = malloc(sizeof *h);
    if (!h) {
        llm_no_memory(e, "SHA-256");
        return NULL;
    }
    sha256_init(&h->state);
    return h;
}

void llm_sha256_update(struct llm_sha256 *h, const void *p, size_t n)
{
    sha256_update(&h->state, n, p);
}

void llm_sha256_finish(struct llm_sha256 *h, char hex[65])
{
    unsigned char raw[SHA256_DIGEST_SIZE];
    sha256_digest(&h->state, sizeof raw, raw);
    for (int i = 0; i < SHA256_DIGEST_SIZE; i++) {
        hex[2 * i] = "0123456789abcdef"[raw[i] >> 4];
        hex[2 * i + 1] = "0123456789abcdef"[raw[i] & 15];
    }
    hex[64] = 0;
    free(h);
}
