#include "base/hash.h"

#include <openssl/evp.h>
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

struct llm_sha256 { EVP_MD_CTX *md; };

static void sha256_destroy(struct llm_sha256 *h)
{
    if (h) EVP_MD_CTX_free(h->md);
    free(h);
}

struct llm_sha256 *llm_sha256_create(struct llm_err *e)
{
    struct llm_sha256 *h = calloc(1, sizeof *h);
    if (h) h->md = EVP_MD_CTX_new();
    if (!h || !h->md || EVP_DigestInit_ex(h->md, EVP_sha256(), NULL) != 1) {
        sha256_destroy(h);
        llm_no_memory(e, "SHA-256");
        return NULL;
    }
    return h;
}

void llm_sha256_update(struct llm_sha256 *h, const void *p, size_t n)
{
    EVP_DigestUpdate(h->md, p, n);
}

void llm_sha256_finish(struct llm_sha256 *h, char hex[65])
{
    unsigned char raw[EVP_MAX_MD_SIZE] = {0};
    EVP_DigestFinal_ex(h->md, raw, NULL);
    for (int i = 0; i < 32; i++) {
        hex[2 * i] = "0123456789abcdef"[raw[i] >> 4];
        hex[2 * i + 1] = "0123456789abcdef"[raw[i] & 15];
    }
    hex[64] = 0;
    sha256_destroy(h);
}
