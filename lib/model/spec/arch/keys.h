/* Rows for the keys of config.json that families share; their tables are composed of these. */
#ifndef LLM_MODEL_ARCH_KEYS_H
#define LLM_MODEL_ARCH_KEYS_H

#include "model/spec/block.h"

#define LLM_AT(field) offsetof(struct llm_config, field)
#define LLM_KEY_END {NULL, LLM_KEY_INT, 0, 0, 0, NULL, LLM_KEY_HF}

static const char *const llm_position_words[] = {"rope", "learned", "sinusoidal", "none", "buckets", NULL};
static const char *const llm_place_words[] = {"pre", "post", "sandwich", "output", NULL};
static const char *const llm_scoring_words[] __attribute__((unused)) = {"softmax", "sigmoid", NULL};
static const char *const llm_routing_words[] __attribute__((unused)) = {"soft", "gumbel", "straight_through", NULL};
static const char *const llm_pairing_words[] = {"halves", "interleaved", NULL};

/* Keys that the rows below have, but that transformers' classes of most decoders ignore: a file may contain them (struct llm_arch, ignored). */
#define LLM_IGNORED_VARIANTS "query_pre_attn_scalar", "logit_scale", "resid_pdrop", "embd_pdrop", "num_nextn_predict_layers"
#define LLM_IGNORED_WINDOW "sliding_window", "use_sliding_window", "max_window_layers", "sliding_window_pattern", "layer_types"
#define LLM_IGNORED_PARTIAL "partial_rotary_factor", "rope_parameters.partial_rotary_factor"
#define LLM_IGNORED_LLAMA LLM_IGNORED_PARTIAL, LLM_IGNORED_VARIANTS, LLM_IGNORED_WINDOW

/* Sizes, special tokens and rotary base, under the names of LlamaConfig. */
#define LLM_KEYS_SIZES \
    {"vocab_size", LLM_KEY_INT, LLM_AT(vocab_size), 0, 1 << 24, NULL, LLM_KEY_HF}, \
    {"hidden_size", LLM_KEY_INT, LLM_AT(hidden_size), 1, 1 << 20, NULL, LLM_KEY_HF}, \
    {"intermediate_size", LLM_KEY_INT, LLM_AT(intermediate_size), 1, 1 << 22, NULL, LLM_KEY_HF}, \
    {"num_hidden_layers", LLM_KEY_INT, LLM_AT(num_hidden_layers), 1, LLM_MAX_LAYERS, NULL, LLM_KEY_HF}, \
    {"num_attention_heads", LLM_KEY_INT, LLM_AT(num_attention_heads), 1, 1 << 14, NULL, LLM_KEY_HF}, \
    {"num_key_value_heads", LLM_KEY_INT, LLM_AT(num_key_value_heads), 1, 1 << 14, NULL, LLM_KEY_HF}, \
    {"head_dim", LLM_KEY_INT, LLM_AT(head_dim), 1, 1 << 14, NULL, LLM_KEY_HF}, \
    {"max_position_embeddings", LLM_KEY_INT, LLM_AT(max_position_embeddings), 1, 1 << 24, NULL, LLM_KEY_HF}, \
    {"attention_dropout", LLM_KEY_REAL, LLM_AT(attn_pdrop), 0, .999, NULL, LLM_KEY_HF}, \
    {"initializer_range", LLM_KEY_REAL, LLM_AT(initializer_range), 0, 100, NULL, LLM_KEY_HF}, \
    {"tie_word_embeddings", LLM_KEY_BOOL, LLM_AT(tie_word_embeddings), 0, 0, NULL, LLM_KEY_HF}, \
    {"bos_token_id", LLM_KEY_TOKEN, LLM_AT(bos_token_id), 0, 0, NULL, LLM_KEY_HF}, \
    {"eos_token_id", LLM_KEY_TOKEN, LLM_AT(eos_token_id), 0, 0, NULL, LLM_KEY_HF}, \
    {"rope_theta", LLM_KEY_REAL, LLM_AT(rope_theta), 1, 1e12, NULL, LLM_KEY_HF}

/* LLM_KEYS_SIZES, and the activation and norm of LlamaConfig. */
#define LLM_KEYS_LLAMA \
    LLM_KEYS_SIZES, \
    {"hidden_act", LLM_KEY_ACT, LLM_AT(act), 0, 0, NULL, LLM_KEY_HF}, \
    {"rms_norm_eps", LLM_KEY_REAL, LLM_AT(norm_eps), 0, 1, NULL, LLM_KEY_HF}

/* Sliding-window attention. */
#define LLM_KEYS_WINDOW \
    {"sliding_window", LLM_KEY_LENGTH, LLM_AT(sliding_window), 0, 1 << 24, NULL, LLM_KEY_OURS}, \
    {"use_sliding_window", LLM_KEY_BOOL, LLM_AT(use_sliding_window), 0, 0, NULL, LLM_KEY_OURS}, \
    {"max_window_layers", LLM_KEY_INT, LLM_AT(max_window_layers), 0, 1 << 24, NULL, LLM_KEY_OURS}, \
    {"sliding_window_pattern", LLM_KEY_LENGTH, LLM_AT(sliding_window_pattern), 0, LLM_MAX_LAYERS, NULL, LLM_KEY_OURS}

/* Multi-token prediction. */
#define LLM_KEYS_NEXT \
    {"num_nextn_predict_layers", LLM_KEY_LENGTH, LLM_AT(num_nextn_predict_layers), 0, LLM_MAX_NEXT, NULL, LLM_KEY_OURS}, \
    {"mtp_loss_weight", LLM_KEY_REAL, LLM_AT(mtp_loss_weight), 0, 100, NULL, LLM_KEY_OURS}

/* Variants that transformers has in some families only, or not at all; then the names are our own. */
#define LLM_KEYS_VARIANTS \
    {"embd_pdrop", LLM_KEY_REAL, LLM_AT(embd_pdrop), 0, .999, NULL, LLM_KEY_OURS}, \
    {"resid_pdrop", LLM_KEY_REAL, LLM_AT(resid_pdrop), 0, .999, NULL, LLM_KEY_OURS}, \
    {"position_embedding", LLM_KEY_WORD, LLM_AT(position), 0, 0, llm_position_words, LLM_KEY_OURS}, \
    {"rope_pairing", LLM_KEY_WORD, LLM_AT(rope_pairing), 0, 0, llm_pairing_words, LLM_KEY_OURS}, \
    {"partial_rotary_factor", LLM_KEY_REAL, LLM_AT(partial_rotary_factor), 0, 1, NULL, LLM_KEY_OURS}, \
    {"norm_place", LLM_KEY_WORD, LLM_AT(norm_place), 0, 0, llm_place_words, LLM_KEY_OURS}, \
    {"norm_gain_offset", LLM_KEY_REAL, LLM_AT(norm_gain_offset), 0, 1, NULL, LLM_KEY_OURS}, \
    {"embedding_scale", LLM_KEY_REAL, LLM_AT(embedding_scale), 0, 1e6, NULL, LLM_KEY_OURS}, \
    LLM_KEYS_NEXT, \
    {"dual_chunk_size", LLM_KEY_LENGTH, LLM_AT(dual_chunk_size), 0, 1 << 24, NULL, LLM_KEY_OURS}, \
    {"dual_chunk_local", LLM_KEY_LENGTH, LLM_AT(dual_chunk_local), 0, 1 << 24, NULL, LLM_KEY_OURS}, \
    {"kv_sharing", LLM_KEY_INT, LLM_AT(kv_sharing), 1, LLM_MAX_LAYERS, NULL, LLM_KEY_OURS}, \
    {"attention_sinks", LLM_KEY_BOOL, LLM_AT(attention_sinks), 0, 0, NULL, LLM_KEY_OURS}, \
    {"logit_scale", LLM_KEY_SCALE, LLM_AT(logit_scale), 0, 1e6, NULL, LLM_KEY_OURS}

/* Attention scores are multiplied by 1/sqrt of this; default: the width of a head. Families that have the key in transformers have their own row. */
#define LLM_KEYS_SCORES \
    {"query_pre_attn_scalar", LLM_KEY_REAL, LLM_AT(query_pre_attn_scalar), 0, 1e9, NULL, LLM_KEY_OURS}

/* Variants of any decoder with attention. */
#define LLM_KEYS_DECODER LLM_KEYS_WINDOW, LLM_KEYS_VARIANTS, LLM_KEYS_SCORES

/* Mixtures of experts. */
#define LLM_KEYS_EXPERTS \
    {"num_experts_per_tok", LLM_KEY_INT, LLM_AT(num_experts_per_tok), 1, LLM_MAX_EXPERTS, NULL, LLM_KEY_HF}, \
    {"router_aux_loss_coef", LLM_KEY_REAL, LLM_AT(router_aux_loss_coef), 0, 1e3, NULL, LLM_KEY_HF}, \
    {"n_shared_experts", LLM_KEY_LENGTH, LLM_AT(n_shared_experts), 0, 1 << 10, NULL, LLM_KEY_OURS}, \
    {"first_k_dense_replace", LLM_KEY_LENGTH, LLM_AT(first_k_dense_replace), 0, LLM_MAX_LAYERS, NULL, LLM_KEY_OURS}, \
    {"moe_layer_freq", LLM_KEY_INT, LLM_AT(moe_layer_freq), 1, LLM_MAX_LAYERS, NULL, LLM_KEY_OURS}, \
    {"scoring_func", LLM_KEY_WORD, LLM_AT(router_scoring), 0, 0, llm_scoring_words, LLM_KEY_OURS}, \
    {"router_bias", LLM_KEY_BOOL, LLM_AT(router_bias), 0, 0, NULL, LLM_KEY_OURS}, \
    {"router_bias_update_rate", LLM_KEY_REAL, LLM_AT(router_bias_update_rate), 0, 1, NULL, LLM_KEY_OURS}, \
    {"n_group", LLM_KEY_INT, LLM_AT(n_group), 1, LLM_MAX_EXPERTS, NULL, LLM_KEY_OURS}, \
    {"topk_group", LLM_KEY_INT, LLM_AT(topk_group), 1, LLM_MAX_EXPERTS, NULL, LLM_KEY_OURS}, \
    {"routed_scaling_factor", LLM_KEY_REAL, LLM_AT(routed_scaling_factor), 1e-6, 1e6, NULL, LLM_KEY_OURS}, \
    {"router_z_loss_coef", LLM_KEY_REAL, LLM_AT(router_z_loss_coef), 0, 1e3, NULL, LLM_KEY_OURS}, \
    {"expert_capacity_factor", LLM_KEY_REAL, LLM_AT(expert_capacity_factor), 0, 1e3, NULL, LLM_KEY_OURS}, \
    {"routing", LLM_KEY_WORD, LLM_AT(routing), 0, 0, llm_routing_words, LLM_KEY_OURS}, \
    {"router_temperature", LLM_KEY_REAL, LLM_AT(router_temperature), 1e-3, 1e3, NULL, LLM_KEY_OURS}
#define LLM_NAMES_EXPERTS(block, gate, up, down) \
    [LLM_STEM_ROUTER] = block ".gate", [LLM_STEM_ROUTER_BIAS] = block ".gate.e_score_correction_bias", [LLM_STEM_EXPERTS] = block ".experts", \
    [LLM_STEM_EXPERT_GATE] = gate, [LLM_STEM_EXPERT_UP] = up, [LLM_STEM_EXPERT_DOWN] = down, \
    [LLM_STEM_SHARED_GATE] = block ".shared_experts.gate_proj", [LLM_STEM_SHARED_UP] = block ".shared_experts.up_proj", \
    [LLM_STEM_SHARED_DOWN] = block ".shared_experts.down_proj"

/* The names of Llama's tensors in files of transformers. */
#define LLM_NAMES_LLAMA(...) \
    {.prefix = "model.", .embed = "embed_tokens", .positions = "embed_positions", .layer = "layers.", .final_norm = "norm", .head = "lm_head", \
     .stem = {[LLM_STEM_Q] = "self_attn.q_proj", [LLM_STEM_K] = "self_attn.k_proj", [LLM_STEM_V] = "self_attn.v_proj", \
              [LLM_STEM_OUT] = "self_attn.o_proj", [LLM_STEM_SINKS] = "self_attn.sinks", [LLM_STEM_GATE] = "mlp.gate_proj", \
              [LLM_STEM_UP] = "mlp.up_proj", \
              [LLM_STEM_DOWN] = "mlp.down_proj", [LLM_STEM_NORM_1] = "input_layernorm", [LLM_STEM_NORM_2] = "post_attention_layernorm", \
              [LLM_STEM_NEXT_TOKEN_NORM] = "enorm", [LLM_STEM_NEXT_HIDDEN_NORM] = "hnorm", [LLM_STEM_NEXT_JOIN] = "eh_proj", \
              [LLM_STEM_NEXT_NORM] = "shared_head.norm", __VA_ARGS__}}

#endif
