/* StableLM (Bellagente et al. 2024): Llama with LayerNorm and RoPE of a quarter of each head. Optional: biases on queries, keys and values; norms of
 * each head; parallel attention and feed-forward parts after one norm. */
#include "model/spec/arch/keys.h"

static const struct llm_config_key keys[] = {
    LLM_KEYS_SIZES,
    {"hidden_act", LLM_KEY_ACT, LLM_AT(act), 0, 0, NULL, LLM_KEY_HF},
    {"layer_norm_eps", LLM_KEY_REAL, LLM_AT(norm_eps), 0, 1, NULL, LLM_KEY_HF},
    {"use_qkv_bias", LLM_KEY_BOOL, LLM_AT(attention_bias), 0, 0, NULL, LLM_KEY_HF},
    {"qk_layernorm", LLM_KEY_BOOL, LLM_AT(qk_layernorm), 0, 0, NULL, LLM_KEY_OURS},
    {"use_parallel_residual", LLM_KEY_BOOL, LLM_AT(parallel_residual), 0, 0, NULL, LLM_KEY_OURS},
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

static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    c->shared_norm = c->parallel_residual;
    if (c->qk_layernorm) c->qk_norm = LLM_QK_NORM_EACH;
    if (c->shared_norm && c->norm_place != LLM_NORM_PRE) {
        return llm_fail(e, EX_UNAVAILABLE, "use_parallel_residual: expected norm_place pre beside it");
    }
    if (c->qk_layernorm && c->kv_sharing > 1) return llm_fail(e, EX_UNAVAILABLE, "qk_layernorm: expected kv_sharing 1 beside it");
    return llm_decoder_finish(c, o, e);
}

/* In GGUF files the tensors decide, not the keys: converters write use_parallel_residual also for models without it. */
static void in_files(struct llm_config *c, const struct llm_model_files *files)
{
    struct llm_checkpoint *f;
    if (!llm_model_files_find(files, "token_embd.weight", &f)) return;
    c->parallel_residual = c->shared_norm = !llm_model_files_find(files, "blk.0.ffn_norm.weight", &f);
    c->qk_layernorm = llm_model_files_find(files, "blk.0.attn_q_norm.weight", &f) != NULL;
    c->qk_norm = c->qk_layernorm ? LLM_QK_NORM_EACH : LLM_QK_NORM_NONE;
}

static const char *const ignored[] = {LLM_IGNORED_VARIANTS, LLM_IGNORED_WINDOW, "head_dim", NULL};

static const struct llm_other_key others[] = {
    {"rotary_scaling_factor", "[1]"}, {NULL, NULL}};

const struct llm_arch llm_arch_stablelm = {
    .model_type = "stablelm",
    .gguf = "stablelm",
    .architecture = "StableLmForCausalLM",
    .keys = keys,
    .ignored = ignored,
    .other_keys = others,
    .defaults = defaults,
    .finish = finish,
    .extra = llm_decoder_extra,
    .in_files = in_files,
    .names = LLM_NAMES_LLAMA([LLM_STEM_Q_NORM] = "self_attn.q_layernorm.norms", [LLM_STEM_K_NORM] = "self_attn.k_layernorm.norms"),
    .out_bias_apart = true,
    .declare = llm_decoder_declare,
};
