/* OLMo 2 (2024): Llama with norms after each sub-layer, and with one norm over all queries and one over all keys. */
#include "model/spec/arch/keys.h"

static const struct llm_config_key keys[] = {
    LLM_KEYS_LLAMA,
    {"attention_bias", LLM_KEY_BOOL, LLM_AT(attention_bias), 0, 0, NULL, LLM_KEY_HF},
    LLM_KEYS_DECODER,
    LLM_KEY_END,
};

static void defaults(struct llm_config *c)
{
    llm_llama_defaults(c);
    c->vocab_size = 50304;
    c->norm_place = LLM_NORM_OUTPUT;
    c->qk_norm = LLM_QK_NORM_ALL;
    c->norm_eps = 1e-5;
    c->bos_token_id = -1;
    c->eos_token_id = 50279;
}

static const char *const ignored[] = {LLM_IGNORED_LLAMA, NULL};

const struct llm_arch llm_arch_olmo2 = {
    .model_type = "olmo2",
    .gguf = "olmo2",
    .architecture = "Olmo2ForCausalLM",
    .keys = keys,
    .ignored = ignored,
    .defaults = defaults,
    .finish = llm_decoder_finish,
    .extra = llm_decoder_extra,
    .names = {.prefix = "model.", .embed = "embed_tokens", .positions = "embed_positions", .layer = "layers.", .final_norm = "norm",
              .head = "lm_head",
              .stem = {[LLM_STEM_Q] = "self_attn.q_proj", [LLM_STEM_K] = "self_attn.k_proj", [LLM_STEM_V] = "self_attn.v_proj",
                       [LLM_STEM_OUT] = "self_attn.o_proj", [LLM_STEM_GATE] = "mlp.gate_proj", [LLM_STEM_UP] = "mlp.up_proj",
                       [LLM_STEM_DOWN] = "mlp.down_proj", [LLM_STEM_POST_1] = "post_attention_layernorm",
                       [LLM_STEM_POST_2] = "post_feedforward_layernorm", [LLM_STEM_Q_NORM] = "self_attn.q_norm",
                       [LLM_STEM_K_NORM] = "self_attn.k_norm"}},
    .declare = llm_decoder_declare,
};
