/* StableLM (Bellagente et al. 2024): Llama with LayerNorm, a quarter of each head turned, and optional biases on queries, keys and values. */
#include "model/arch/keys.h"

static const struct llm_config_key keys[] = {
    LLM_KEYS_SIZES,
    {"hidden_act", LLM_KEY_ACT, LLM_AT(act), 0, 0, NULL, false},
    {"layer_norm_eps", LLM_KEY_REAL, LLM_AT(norm_eps), 0, 1, NULL, false},
    {"use_qkv_bias", LLM_KEY_BOOL, LLM_AT(attention_bias), 0, 0, NULL, false},
    LLM_KEYS_DECODER,
    LLM_KEY_END,
};

static void defaults(struct llm_config *c)
{
    c->vocab_size = 50304;
    c->hidden_size = 2560;
    c->intermediate_size = 6912;
    c->num_hidden_layers = c->num_attention_heads = c->num_key_value_heads = 32;
    c->max_position_embeddings = 4096;
    c->norm = LLM_NORM_LAYER;
    c->norm_bias = true;
    c->norm_eps = 1e-5;
    c->position = LLM_POSITION_ROPE;
    c->rope_theta = 10000;
    c->partial_rotary_factor = .25;
    c->act = LLM_ACT_SILU;
    c->gated = true;
    c->bos_token_id = c->eos_token_id = 0;
}

/* Two switches of the family that no small model of it uses. */
static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    static const char *const off[] = {"qk_layernorm", "use_parallel_residual"};
    for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
        bool on = false;
        if (llm_json_bool(o, off[i], &on, e) < 0) return -1;
        if (on) return llm_fail(e, EX_UNAVAILABLE, "%s: not supported", off[i]);
    }
    return llm_decoder_finish(c, o, e);
}

const struct llm_arch llm_arch_stablelm = {
    .model_type = "stablelm",
    .gguf = "stablelm",
    .architecture = "StableLmForCausalLM",
    .keys = keys,
    .defaults = defaults,
    .finish = finish,
    .extra = llm_decoder_extra,
    .names = LLM_NAMES_LLAMA(),
    .out_bias_apart = true,
    .declare = llm_decoder_declare,
    .forward = llm_decoder_forward,
};
