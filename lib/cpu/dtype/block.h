/* Blocks of quantised types in parts, as quantisers choose them: scales, integer scales of groups and codes. Each type that can be written says how
 * its values follow from the parts and how the parts are packed. */
#ifndef LLM_CPU_DTYPE_BLOCK_H
#define LLM_CPU_DTYPE_BLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include "cpu/dtype.h"

enum { LLM_BLOCK_MAX = 256, LLM_BLOCK_GROUPS = 16 };
/* Element j of group g has the value d · scale[g] · level(q[j]) - least · low[g]. */
struct llm_block {
    float d, least;                  /* as the type stores them: rounded by llm_block_kind.round */
    int16_t scale[LLM_BLOCK_GROUPS]; /* within [scale_min, scale_max] */
    uint8_t low[LLM_BLOCK_GROUPS];   /* at most low_max */
    uint8_t q[LLM_BLOCK_MAX];        /* codes below n_codes, in the order of elements */
};
struct llm_block_kind {
    int size, group;                 /* elements of a block; elements that share a scale */
    int first_code, n_codes;         /* codes are [first_code, n_codes) */
    int zero;                        /* level(q) = q - zero if `levels` is NULL */
    const int8_t *levels;            /* [n_codes] level(q) in ascending order but for code 8 of MXFP4, which repeats 0; NULL */
    int scale_min, scale_max;        /* both 1: groups have no scales of their own */
    int low_max;                     /* 0: `least` is 0. 1: there is one offset for the block, of either sign. Else offsets are not negative */
    float (*round)(float d);         /* to the nearest scale that the type stores, halves to even */
    void (*pack)(const struct llm_block *b, void *out);
};
/* NULL for plain types and for block types that are only read. */
const struct llm_block_kind *llm_block_kind_of(enum llm_dtype t);
/* The scale as a half-precision number. */
float llm_block_round_f16(float d);

extern const struct llm_block_kind llm_q8_0_kind, llm_q4_0_kind, llm_q4_1_kind, llm_q5_0_kind, llm_q5_1_kind, llm_q2_k_kind, llm_q3_k_kind,
    llm_q4_k_kind, llm_q5_k_kind, llm_q6_k_kind, llm_iq4_nl_kind, llm_iq4_xs_kind, llm_mxfp4_kind;

#endif
