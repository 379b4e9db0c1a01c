/* XXH64 for checksums, SHA-256 for identities (libxxhash, nettle). */
#ifndef LLM_BASE_HASH_H
#define LLM_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

uint64_t llm_xxh64(const void *p, size_t n, uint64_t seed);
/* Streaming XXH64. NULL when memory is short. */
struct llm_xxh;
struct llm_xxh *llm_xxh_create(struct llm_err *e) LLM_MUST_CHECK;
void llm_xxh_update(struct llm_xxh *h, const void *p, size_t n);
uint64_t llm_xxh_digest(const struct llm_xxh *h);
void llm_xxh_destroy(struct llm_xxh *h);

/* Streaming SHA-256. */
struct llm_sha256;
struct llm_sha256 *llm_sha256_create(struct llm_err *e) LLM_MUST_CHECK;
void llm_sha256_update(struct llm_sha256 *h, const void *p, size_t n);
/* 64 hexadecimal digits and NUL; then destroys `h`. */
void llm_sha256_finish(struct llm_sha256 *h, char hex[65]);

#endif
