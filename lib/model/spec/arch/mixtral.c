/* Mixtral (Jiang et al. 2024): Mistral with mixtures of experts as feed-forward parts. Also the family for new designs of mixtures: every field of
 * struct llm_route has a key here. */
#include "model/spec/arch/keys.h"

static const struct llm_config_key keys[] = {
    LLM_KEYS_LLAMA,
    {"num_local_experts", LLM_KEY_INT, LLM_AT(num_experts), 1, LLM_MAX_EXPERTS, NULL, LLM_KEY_HF},
    {"moe_intermediate_size", LLM_KEY_INT, LLM_AT(moe_intermediate_size), 0, 1 << 22, NULL, LLM_KEY_OURS},
    {"norm_topk_prob", LLM_KEY_BOOL, LLM_AT(norm_topk_prob), 0, 0, NULL, LLM_KEY_OURS},
    LLM_KEYS_EXPERTS,
    LLM_KEYS_DECODER,
    LLM_KEY_END,
};

static void defaults(struct llm_config *c)
{
    llm_llama_defaults(c);
    c->intermediate_size = 14336;
    c->num_key_value_heads = 8;
    c->max_position_embeddings = 4096 * 32;
    c->norm_eps = 1e-5;
    c->rope_theta = 1e6;
    c->num_experts = 8;
    c->num_experts_per_tok = 2;
    c->norm_topk_prob = true;
    c->router_aux_loss_coef = .001;
}

static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    if (c->moe_intermediate_size == 0) c->moe_intermediate_size = c->intermediate_size;
    return llm_decoder_finish(c, o, e);
}

/* In GGUF the width of experts is feed_forward_length and weights sum to one; there are no keys for other values. */
static const struct llm_gguf_key gguf_keys[] = {
    {"expert_count", LLM_GGUF_KEY_WHOLE, LLM_AT(num_experts), 1, LLM_MAX_EXPERTS, 0},
    {"expert_used_count", LLM_GGUF_KEY_WHOLE, LLM_AT(num_experts_per_tok), 1, LLM_MAX_EXPERTS, 0},
    {NULL, 0, 0, 0, 0, 0}};

static bool is_gguf(const struct llm_gguf *g)
{
    int64_t n = 0;
    return llm_gguf_int(g, "llama.expert_count", 0, INT64_MAX, &n, NULL) == 0 && n > 0;
}

static const char *const ignored[] = {LLM_IGNORED_PARTIAL, LLM_IGNORED_VARIANTS, "use_sliding_window", "max_window_layers", "sliding_window_pattern",
    "layer_types", "moe_intermediate_size", "norm_topk_prob", "n_shared_experts", "first_k_dense_replace", "moe_layer_freq", "scoring_func",
    "n_group", "topk_group", "routed_scaling_factor", NULL};

const struct llm_arch llm_arch_mixtral = {
    .model_type = "mixtral",
    .gguf = "llama",
    .is_gguf = is_gguf,
    .gguf_keys = gguf_keys,
    .in_gguf = llm_llama_in_gguf,
    .architecture = "MixtralForCausalLM",
    .keys = keys,
    .ignored = ignored,
    .defaults = defaults,
    .finish = finish,
    .extra = llm_decoder_extra,
    .names = LLM_NAMES_LLAMA(LLM_NAMES_EXPERTS("block_sparse_moe", "w1", "w3", "w2")),
    .declare = llm_decoder_declare,
};
