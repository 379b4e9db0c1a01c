/* How often each distinct word comes. */
#ifndef LLM_TOKEN_COUNTS_H
#define LLM_TOKEN_COUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"

/* A word of up to 16 bytes is its own key (zero-padded); a longer one is its hash and where its bytes are in `blob`. */
struct llm_count {
    uint64_t key[2];
    uint64_t count;
    uint32_t n;      /* bytes; 0: empty slot */
};
struct llm_counts {   /* zero-initialised it is empty */
    struct llm_count *slots; /* 2^bits */
    int bits;
    size_t n;         /* distinct words */
    struct llm_buf blob;
};
/* Adds `count` to the word of n > 0 bytes; 16 bytes at p may be read. */
int llm_counts_add(struct llm_counts *c, const unsigned char *p, size_t n, uint64_t count, struct llm_err *e) LLM_MUST_CHECK;
/* All of `from` into `c`. */
int llm_counts_merge(struct llm_counts *c, const struct llm_counts *from, struct llm_err *e) LLM_MUST_CHECK;
/* The bytes of a taken slot. */
const unsigned char *llm_counts_word(const struct llm_counts *c, const struct llm_count *slot);
void llm_counts_release(struct llm_counts *c);

#endif
