/* Qwen 2 and 2.5 (Yang et al. 2024): Llama with biases on queries, keys and values. Qwen 3 (2025): no biases, but norms of each head of queries and
 * keys. */
#include "model/spec/arch/keys.h"

#define KEYS \
    LLM_KEYS_LLAMA, \
    LLM_KEYS_DECODER

static const struct llm_config_key qwen2_keys[] = {KEYS, LLM_KEY_END};
static const struct llm_config_key qwen3_keys[] = {
    KEYS, {"attention_bias", LLM_KEY_BOOL, LLM_AT(attention_bias), 0, 0, NULL, LLM_KEY_HF}, LLM_KEY_END};

static const struct llm_config_key qwen3_moe_keys[] = {
    KEYS, {"attention_bias", LLM_KEY_BOOL, LLM_AT(attention_bias), 0, 0, NULL, LLM_KEY_HF},
    {"num_experts", LLM_KEY_INT, LLM_AT(num_experts), 1, LLM_MAX_EXPERTS, NULL, LLM_KEY_HF},
    {"num_local_experts", LLM_KEY_INT, LLM_AT(num_experts), 1, LLM_MAX_EXPERTS, NULL, LLM_KEY_HF}, /* the key in newer files */
    {"moe_intermediate_size", LLM_KEY_INT, LLM_AT(moe_intermediate_size), 1, 1 << 22, NULL, LLM_KEY_HF},
    {"norm_topk_prob", LLM_KEY_BOOL, LLM_AT(norm_topk_prob), 0, 0, NULL, LLM_KEY_HF},
    {"decoder_sparse_step", LLM_KEY_INT, LLM_AT(moe_layer_freq), 1, LLM_MAX_LAYERS, NULL, LLM_KEY_HF},
    {"mlp_only_layers", LLM_KEY_LAYERS, LLM_AT(mlp_only_layers), 0, 0, NULL, LLM_KEY_OURS},
    LLM_KEYS_EXPERTS, LLM_KEY_END};

static void defaults(struct llm_config *c)
{
    llm_llama_defaults(c);
    c->vocab_size = 151936;
    c->intermediate_size = 22016;
    c->num_key_value_heads = 32;
    c->max_position_embeddings = 32768;
    c->use_sliding_window = false;
    c->sliding_window = 4096;
    c->max_window_layers = 28;
    c->bos_token_id = c->eos_token_id = -1;
}

static void qwen2_defaults(struct llm_config *c)
{
    defaults(c);
    c->attention_bias = true;
}

static void qwen3_defaults(struct llm_config *c)
{
    defaults(c);
    c->head_dim = 128;
    c->qk_norm = LLM_QK_NORM_HEAD;
}

static void qwen3_moe_defaults(struct llm_config *c)
{
    defaults(c);
    c->vocab_size = 151936;
    c->hidden_size = 2048;
    c->intermediate_size = 6144;
    c->num_hidden_layers = 24;
    c->num_key_value_heads = 4;
    c->max_window_layers = 0; /* in this family use_sliding_window applies to all layers */
    c->qk_norm = LLM_QK_NORM_HEAD;
    c->num_experts = 128;
    c->num_experts_per_tok = 8;
    c->moe_intermediate_size = 768;
    c->router_aux_loss_coef = .001;
}

static const char *const ignored[] = {LLM_IGNORED_PARTIAL, LLM_IGNORED_VARIANTS, "sliding_window_pattern", NULL};

const struct llm_arch llm_arch_qwen2 = {
    .model_type = "qwen2",
    .gguf = "qwen2",
    .architecture = "Qwen2ForCausalLM",
    .keys = qwen2_keys,
    .ignored = ignored,
    .defaults = qwen2_defaults,
    .finish = llm_decoder_finish,
    .extra = llm_decoder_extra,
    .names = LLM_NAMES_LLAMA(),
    .out_bias_apart = true,
    .declare = llm_decoder_declare,
};

const struct llm_arch llm_arch_qwen3 = {
    .model_type = "qwen3",
    .gguf = "qwen3",
    .architecture = "Qwen3ForCausalLM",
    .keys = qwen3_keys,
    .ignored = ignored,
    .defaults = qwen3_defaults,
    .finish = llm_decoder_finish,
    .extra = llm_decoder_extra,
    .names = LLM_NAMES_LLAMA([LLM_STEM_Q_NORM] = "self_attn.q_norm", [LLM_STEM_K_NORM] = "self_attn.k_norm"),
    .declare = llm_decoder_declare,
};

static const struct llm_gguf_key qwen3_moe_gguf[] = {
    {"expert_count", LLM_GGUF_KEY_WHOLE, LLM_AT(num_experts), 1, LLM_MAX_EXPERTS, 0},
    {"expert_used_count", LLM_GGUF_KEY_WHOLE, LLM_AT(num_experts_per_tok), 1, LLM_MAX_EXPERTS, 0},
    {"expert_feed_forward_length", LLM_GGUF_KEY_WHOLE, LLM_AT(moe_intermediate_size), 1, 1 << 22, 0},
    {NULL, 0, 0, 0, 0, 0}};

static int qwen3_moe_gguf_get(struct llm_config *c, const struct llm_gguf *g, struct llm_err *e)
{
    (void)g;
    c->norm_topk_prob = true; /* llama.cpp has no other choice, so GGUF has no key */
    if (c->num_experts < 1) return llm_fail(e, EX_DATAERR, "qwen3moe.expert_count: expected at least 1, found none");
    if (c->moe_intermediate_size == 0 && c->num_experts_per_tok > 0) c->moe_intermediate_size = c->intermediate_size / c->num_experts_per_tok;
    return 0;
}

static const char *const qwen3_moe_ignored[] = {LLM_IGNORED_PARTIAL, LLM_IGNORED_VARIANTS, "max_window_layers", "sliding_window_pattern",
    "layer_types",
    "n_shared_experts", "first_k_dense_replace", "moe_layer_freq", "scoring_func", "n_group", "topk_group", "routed_scaling_factor", NULL};

const struct llm_arch llm_arch_qwen3_moe = {
    .model_type = "qwen3_moe",
    .gguf = "qwen3moe",
    .gguf_keys = qwen3_moe_gguf,
    .gguf_get = qwen3_moe_gguf_get,
    .architecture = "Qwen3MoeForCausalLM",
    .keys = qwen3_moe_keys,
    .ignored = qwen3_moe_ignored,
    .defaults = qwen3_moe_defaults,
    .finish = llm_decoder_finish,
    .extra = llm_decoder_extra,
    .names = LLM_NAMES_LLAMA([LLM_STEM_Q_NORM] = "self_attn.q_norm", [LLM_STEM_K_NORM] = "self_attn.k_norm",
                             LLM_NAMES_EXPERTS("mlp", "gate_proj", "up_proj", "down_proj")),
    .declare = llm_decoder_declare,
};
