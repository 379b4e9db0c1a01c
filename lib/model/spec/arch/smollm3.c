/* SmolLM3 (2025): Llama in which every fourth layer has no positions (NoPE). SmolLM and SmolLM2 are plain Llamas. */
#include "model/spec/arch/keys.h"

static const struct llm_config_key keys[] = {
    LLM_KEYS_LLAMA,
    {"attention_bias", LLM_KEY_BOOL, LLM_AT(attention_bias), 0, 0, NULL, LLM_KEY_HF},
    {"mlp_bias", LLM_KEY_BOOL, LLM_AT(mlp_bias), 0, 0, NULL, LLM_KEY_HF},
    {"no_rope_layer_interval", LLM_KEY_LENGTH, LLM_AT(no_rope_layer_interval), 0, LLM_MAX_LAYERS, NULL, LLM_KEY_HF},
    LLM_KEYS_DECODER,
    LLM_KEY_END,
};

static void defaults(struct llm_config *c)
{
    llm_llama_defaults(c);
    c->vocab_size = 128256;
    c->hidden_size = 2048;
    c->num_hidden_layers = 36;
    c->num_attention_heads = 16;
    c->num_key_value_heads = 4;
    c->max_position_embeddings = 32768;
    c->rope_theta = 2e6;
    c->no_rope_layer_interval = 4;
    c->tie_word_embeddings = true;
    c->use_sliding_window = false;
    c->bos_token_id = 128000;
    c->eos_token_id = 128001;
}

/* A list of local layers decides alone: transformers makes their masks without asking use_sliding_window. */
static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    const bool said = c->use_sliding_window;
    if (json_is_array(json_object_get(o, "layer_types"))) c->use_sliding_window = true;
    if (llm_decoder_finish(c, o, e) < 0) return -1;
    if (c->sliding_window == 0) c->use_sliding_window = said; /* no layer is local */
    return 0;
}

static const char *const ignored[] = {LLM_IGNORED_PARTIAL, LLM_IGNORED_VARIANTS, "max_window_layers", "sliding_window_pattern", NULL};

const struct llm_arch llm_arch_smollm3 = {
    .model_type = "smollm3",
    .gguf = "smollm3",
    .architecture = "SmolLM3ForCausalLM",
    .keys = keys,
    .ignored = ignored,
    .defaults = defaults,
    .finish = finish,
    .extra = llm_decoder_extra,
    .in_gguf = llm_llama_in_gguf,
    .names = LLM_NAMES_LLAMA(),
    .declare = llm_decoder_declare,
};
