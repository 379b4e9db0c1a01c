#include "cpu/dtype/block.h"

#include "cpu/half.h"

const struct llm_block_kind *llm_block_kind_of(enum llm_dtype t)
{
    static const struct llm_block_kind *const kinds[LLM_N_DTYPES] = {
        [LLM_Q8_0] = &llm_q8_0_kind, [LLM_Q4_0] = &llm_q4_0_kind, [LLM_Q4_1] = &llm_q4_1_kind, [LLM_Q5_0] = &llm_q5_0_kind,
        [LLM_Q5_1] = &llm_q5_1_kind, [LLM_Q2_K] = &llm_q2_k_kind, [LLM_Q3_K] = &llm_q3_k_kind, [LLM_Q4_K] = &llm_q4_k_kind,
        [LLM_Q5_K] = &llm_q5_k_kind, [LLM_Q6_K] = &llm_q6_k_kind, [LLM_IQ4_NL] = &llm_iq4_nl_kind, [LLM_IQ4_XS] = &llm_iq4_xs_kind,
        [LLM_MXFP4] = &llm_mxfp4_kind};
    return kinds[t];
}

float llm_block_round_f16(float d) { return llm_f16_decode(llm_f16_encode(d)); }
