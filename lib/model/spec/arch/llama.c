/* Llama (Touvron et al. 2023) and its variants: RMSNorm, RoPE by halves, SwiGLU, grouped-query attention. Mistral is a Llama with a sliding window.
 * Keys and names are those of transformers' LlamaForCausalLM. */
#include "model/spec/arch/keys.h"

static const struct llm_config_key keys[] = {
    LLM_KEYS_LLAMA,
    {"attention_bias", LLM_KEY_BOOL, LLM_AT(attention_bias), 0, 0, NULL, LLM_KEY_HF},
    {"mlp_bias", LLM_KEY_BOOL, LLM_AT(mlp_bias), 0, 0, NULL, LLM_KEY_HF},
    LLM_KEYS_DECODER,
    LLM_KEY_END,
};

void llm_llama_defaults(struct llm_config *c)
{
    c->vocab_size = 32000;
    c->hidden_size = 4096;
    c->intermediate_size = 11008;
    c->num_hidden_layers = c->num_attention_heads = 32;
    c->max_position_embeddings = 2048;
    c->norm = LLM_NORM_RMS;
    c->norm_eps = 1e-6;
    c->position = LLM_POSITION_ROPE;
    c->rope_theta = 10000;
    c->act = LLM_ACT_SILU;
    c->gated = true;
    c->bos_token_id = 1;
    c->eos_token_id = 2;
}

static void mistral_defaults(struct llm_config *c)
{
    llm_llama_defaults(c);
    c->intermediate_size = 14336;
    c->num_key_value_heads = 8;
    c->max_position_embeddings = 4096 * 32;
    c->sliding_window = 4096;
}

/* llama.cpp's converter permutes the rows of queries and keys, so that the two channels of a RoPE pair are adjacent. */
void llm_llama_in_gguf(struct llm_config *c)
{
    c->rope_pairing = LLM_ROPE_INTERLEAVED;
}

static const char *const ignored[] = {LLM_IGNORED_LLAMA, NULL};

const struct llm_arch llm_arch_llama = {
    .model_type = "llama",
    .gguf = "llama",
    .architecture = "LlamaForCausalLM",
    .keys = keys,
    .ignored = ignored,
    .defaults = llm_llama_defaults,
    .finish = llm_decoder_finish,
    .extra = llm_decoder_extra,
    .in_gguf = llm_llama_in_gguf,
    .names = LLM_NAMES_LLAMA(),
    .declare = llm_decoder_declare,
};

static const char *const mistral_ignored[] = {"attention_bias", "mlp_bias", LLM_IGNORED_PARTIAL, LLM_IGNORED_VARIANTS, "use_sliding_window",
    "max_window_layers",
    "sliding_window_pattern", "layer_types", NULL};

const struct llm_arch llm_arch_mistral = {
    .model_type = "mistral",
    .gguf_as = "llama",
    .architecture = "MistralForCausalLM",
    .keys = keys,
    .ignored = mistral_ignored,
    .defaults = mistral_defaults,
    .finish = llm_decoder_finish,
    .extra = llm_decoder_extra,
    .names = LLM_NAMES_LLAMA(),
    .declare = llm_decoder_declare,
};
