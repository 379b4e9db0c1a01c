/* The table of families. */
#include "model/config/arch.h"

#define FAMILIES(X) \
    X(gpt2) \
    X(llama) \
    X(mistral) \
    X(mixtral) \
    X(qwen2) \
    X(qwen3) \
    X(qwen3_moe) \
    X(gemma2) \
    X(gemma3) \
    X(phi3) \
    X(olmo2) \
    X(smollm3) \
    X(gpt_neox) \
    X(stablelm) \
    X(deepseek_v2) \
    X(deepseek_v3) \
    X(bert) \
    X(t5) \
    X(vit) \
    X(deit) \
    X(dinov2) \
    X(dinov2_with_registers) \
    X(dinov3_vit) \
    X(clip) \
    X(siglip) \
    X(llava) \
    X(llava_next) \
    X(idefics3) \
    X(smolvlm) \
    X(ngram) \
    X(rnn) \
    X(lstm) \
    X(mamba) \
    X(mamba2) \
    X(rwkv) \
    X(rwkv5) \
    X(rwkv6) \
    X(rwkv7) \
    X(hyenadna) \
    X(mlp) \
    X(perceiver)

#define DECLARED(name) extern const struct llm_arch llm_arch_##name;
FAMILIES(DECLARED)
#define LISTED(name) &llm_arch_##name,
const struct llm_arch *const llm_archs[] = {FAMILIES(LISTED) NULL};
