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
    int32_t scale[LLM_BLOCK_GROUPS]; /* within [scale_min, scale_max] */
    uint8_t low[LLM_BLOCK_GROUPS];   /* at most low_max */
    uint8_t q[LLM_BLOCK_MAX];        /* codes below n_codes, in the order of elements */
};
struct llm_block_kind {
    int size, group;                 /* elements of a block; elements that share a scale */
    int first_code, n_codes;         /* codes are [first_code, n_codes) */
    int zero;                        /* level(q) = q - zero if `levels` is NULL */
    const int8_t *levels;            /* [n_codes] level(q) in ascending order but for code 8 of MXFP4 and NVFP4, which repeats 0; NULL */
    int scale_min, scale_max;        /* both 1: groups have no scales of their own */
    const int32_t *scales;           /* [n_scales] the scales that groups can have, in ascending order; `d` is the same for all. NULL: all integers */
    int n_scales;
    int low_max;                     /* 0: `least` is 0. 1: there is one offset for the block, of either sign. Else offsets are not negative */
    float (*round)(float d);         /* to the nearest scale that the type stores, halves to even */
    void (*pack)(const struct llm_block *b, void *out);
};
/* NULL for plain types and for block types that are only read. */
const struct llm_block_kind *llm_block_kind_of(enum llm_dtype t);
/* The scale as a half-precision number. */
float llm_block_round_f16(float d);

/* Declared of every block-quantised type; defined where its row in table.h says so. */
#define LLM_DECLARED(ID, name, ...) extern const struct llm_block_kind llm_##name##_kind;
LLM_BLOCK_TYPES(LLM_DECLARED)
#undef LLM_DECLARED

#endif
