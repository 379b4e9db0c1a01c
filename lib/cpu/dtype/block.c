#include "cpu/dtype/block.h"

#include "cpu/half.h"

const struct llm_block_kind *llm_block_kind_of(enum llm_dtype t)
{
#define KIND(ID, name, elements, bytes, number, file, encodes, kind, whole) [LLM_##ID] = LLM_OR_NULL_##kind(&llm_##name##_kind),
    static const struct llm_block_kind *const kinds[LLM_N_DTYPES] = {LLM_BLOCK_TYPES(KIND)};
    return kinds[t];
}

float llm_block_round_f16(float d) { return llm_f16_decode(llm_f16_encode(d)); }
