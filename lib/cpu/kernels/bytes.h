/* Kernels over bytes of text. */
#ifndef LLM_CPU_KERNELS_BYTES_H
#define LLM_CPU_KERNELS_BYTES_H

#include <stdint.h>

/* Which of 64 bytes are of which ASCII class: bit i for byte i. */
struct llm_byte_masks {
    uint64_t upper, lower, digit;
    uint64_t space;   /* white space: tab to carriage return, blank */
    uint64_t blank;   /* ' ' alone */
    uint64_t newline; /* \r \n */
    uint64_t quote;   /* ' */
    uint64_t slash;   /* / */
    uint64_t high;    /* not ASCII: of none of the others */
};

struct llm_bytes_kernels {
    void (*classify)(struct llm_byte_masks *m, const unsigned char p[64]); /* no alignment needed */
};

#endif
