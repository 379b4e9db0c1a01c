/* The table of families. */
#include "model/arch.h"

#include <string.h>

extern const struct llm_arch llm_arch_ngram;
extern const struct llm_arch llm_arch_gpt2, llm_arch_llama, llm_arch_mistral, llm_arch_mixtral, llm_arch_qwen2, llm_arch_qwen3, llm_arch_qwen3_moe,
    llm_arch_gemma2, llm_arch_gemma3,
    llm_arch_phi3, llm_arch_olmo2, llm_arch_smollm3, llm_arch_gpt_neox, llm_arch_stablelm, llm_arch_bert;
const struct llm_arch *const llm_archs[] = {
    &llm_arch_ngram,
    &llm_arch_gpt2, &llm_arch_llama, &llm_arch_mistral, &llm_arch_mixtral, &llm_arch_qwen2, &llm_arch_qwen3, &llm_arch_qwen3_moe,
    &llm_arch_gemma2, &llm_arch_gemma3, &llm_arch_phi3, &llm_arch_olmo2, &llm_arch_smollm3, &llm_arch_gpt_neox, &llm_arch_stablelm,
    &llm_arch_bert, NULL};

const struct llm_arch *llm_arch_find(const char *model_type)
{
    for (size_t i = 0; llm_archs[i]; i++) {
        if (strcmp(llm_archs[i]->model_type, model_type) == 0) return llm_archs[i];
    }
    return NULL;
}
