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

/* Sizes, special tokens and rotary base, under the names of LlamaConfig; in: the section that they stand in, as "text_config.". */
#define LLM_KEYS_SIZES_IN(in) \
    {in "vocab_size", LLM_KEY_INT, LLM_AT(vocab_size), 0, 1 << 24, NULL, LLM_KEY_HF}, \
    {in "hidden_size", LLM_KEY_INT, LLM_AT(hidden_size), 1, 1 << 20, NULL, LLM_KEY_HF}, \
    {in "intermediate_size", LLM_KEY_INT, LLM_AT(intermediate_size), 1, 1 << 22, NULL, LLM_KEY_HF}, \
    {in "num_hidden_layers", LLM_KEY_INT, LLM_AT(num_hidden_layers), 1, LLM_MAX_LAYERS, NULL, LLM_KEY_HF}, \
    {in "num_attention_heads", LLM_KEY_INT, LLM_AT(num_attention_heads), 1, 1 << 14, NULL, LLM_KEY_HF}, \
    {in "num_key_value_heads", LLM_KEY_INT, LLM_AT(num_key_value_heads), 1, 1 << 14, NULL, LLM_KEY_HF}, \
    {in "head_dim", LLM_KEY_INT, LLM_AT(head_dim), 1, 1 << 14, NULL, LLM_KEY_HF}, \
    {in "max_position_embeddings", LLM_KEY_INT, LLM_AT(max_position_embeddings), 1, 1 << 24, NULL, LLM_KEY_HF}, \
    {in "attention_dropout", LLM_KEY_REAL, LLM_AT(attn_pdrop), 0, .999, NULL, LLM_KEY_HF}, \
    {in "initializer_range", LLM_KEY_REAL, LLM_AT(initializer_range), 0, 100, NULL, LLM_KEY_HF}, \
    {in "tie_word_embeddings", LLM_KEY_BOOL, LLM_AT(tie_word_embeddings), 0, 0, NULL, LLM_KEY_HF}, \
    {in "bos_token_id", LLM_KEY_TOKEN, LLM_AT(bos_token_id), 0, 0, NULL, LLM_KEY_HF}, \
    {in "eos_token_id", LLM_KEY_TOKEN, LLM_AT(eos_token_id), 0, 0, NULL, LLM_KEY_HF}, \
    {in "rope_theta", LLM_KEY_REAL, LLM_AT(rope_theta), 1, 1e12, NULL, LLM_KEY_HF}

#define LLM_KEYS_SIZES LLM_KEYS_SIZES_IN("")

/* Sizes, and the activation and norm of LlamaConfig. */
#define LLM_KEYS_LLAMA_IN(in) \
    LLM_KEYS_SIZES_IN(in), \
    {in "hidden_act", LLM_KEY_ACT, LLM_AT(act), 0, 0, NULL, LLM_KEY_HF}, \
    {in "rms_norm_eps", LLM_KEY_REAL, LLM_AT(norm_eps), 0, 1, NULL, LLM_KEY_HF}
#define LLM_KEYS_LLAMA LLM_KEYS_LLAMA_IN("")

/* Vision transformers. */
#define LLM_KEYS_VIT \
    {"hidden_size", LLM_KEY_INT, LLM_AT(hidden_size), 1, 1 << 20, NULL, LLM_KEY_HF}, \
    {"num_hidden_layers", LLM_KEY_INT, LLM_AT(num_hidden_layers), 1, LLM_MAX_LAYERS, NULL, LLM_KEY_HF}, \
    {"num_attention_heads", LLM_KEY_INT, LLM_AT(num_attention_heads), 1, 1 << 14, NULL, LLM_KEY_HF}, \
    {"hidden_act", LLM_KEY_ACT, LLM_AT(act), 0, 0, NULL, LLM_KEY_HF}, \
    {"initializer_range", LLM_KEY_REAL, LLM_AT(initializer_range), 0, 100, NULL, LLM_KEY_HF}, \
    {"layer_norm_eps", LLM_KEY_REAL, LLM_AT(norm_eps), 0, 1, NULL, LLM_KEY_HF}, \
    {"image_size", LLM_KEY_INT, LLM_AT(image_size), 1, 1 << 14, NULL, LLM_KEY_HF}, \
    {"patch_size", LLM_KEY_INT, LLM_AT(patch_size), 1, 1 << 10, NULL, LLM_KEY_HF}, \
    {"num_channels", LLM_KEY_INT, LLM_AT(num_channels), 1, 64, NULL, LLM_KEY_HF}
/* llm_arch.defaults and finish of ViT (vit.c); families that derive from it call them. */
void llm_vit_defaults(struct llm_config *c);
int llm_vit_finish(struct llm_config *c, const json_t *o, struct llm_err *e) LLM_MUST_CHECK;

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

/* A tower of CLIP; in: its section, of: the part of struct llm_config that describes it, with a dot, or nothing. */
#define LLM_KEYS_TOWER_SIZES(in, of) \
    {in "hidden_size", LLM_KEY_INT, LLM_AT(of hidden_size), 1, 1 << 20, NULL, LLM_KEY_HF}, \
    {in "intermediate_size", LLM_KEY_INT, LLM_AT(of intermediate_size), 1, 1 << 22, NULL, LLM_KEY_HF}, \
    {in "num_hidden_layers", LLM_KEY_INT, LLM_AT(of num_hidden_layers), 1, LLM_MAX_LAYERS, NULL, LLM_KEY_HF}, \
    {in "num_attention_heads", LLM_KEY_INT, LLM_AT(of num_attention_heads), 1, 1 << 14, NULL, LLM_KEY_HF}
#define LLM_KEYS_TOWER_LAYERS(in, of) \
    {in "hidden_act", LLM_KEY_ACT, LLM_AT(of act), 0, 0, NULL, LLM_KEY_HF}, \
    {in "layer_norm_eps", LLM_KEY_REAL, LLM_AT(of norm_eps), 0, 1, NULL, LLM_KEY_HF}, \
    {in "attention_dropout", LLM_KEY_REAL, LLM_AT(of attn_pdrop), 0, .999, NULL, LLM_KEY_HF}
#define LLM_KEYS_VISION \
    LLM_KEYS_TOWER_SIZES("vision_config.", vision.), \
    {"vision_config.image_size", LLM_KEY_INT, LLM_AT(vision.image_size), 1, 1 << 14, NULL, LLM_KEY_HF}, \
    {"vision_config.patch_size", LLM_KEY_INT, LLM_AT(vision.patch_size), 1, 1 << 10, NULL, LLM_KEY_HF}, \
    {"vision_config.num_channels", LLM_KEY_INT, LLM_AT(vision.num_channels), 1, 64, NULL, LLM_KEY_HF}, \
    LLM_KEYS_TOWER_LAYERS("vision_config.", vision.)
#define LLM_KEYS_TEXT_TOWER \
    {"text_config.vocab_size", LLM_KEY_INT, LLM_AT(vocab_size), 0, 1 << 24, NULL, LLM_KEY_HF}, \
    LLM_KEYS_TOWER_SIZES("text_config.", ), \
    {"text_config.max_position_embeddings", LLM_KEY_INT, LLM_AT(max_position_embeddings), 1, 1 << 24, NULL, LLM_KEY_HF}, \
    LLM_KEYS_TOWER_LAYERS("text_config.", )

/* transformers' default vision tower of CLIP. */
#define LLM_VISION_CLIP \
    {.hidden_size = 768, .intermediate_size = 3072, .num_hidden_layers = 12, .num_attention_heads = 12, .image_size = 224, .patch_size = 32, \
     .num_channels = 3, .act = LLM_ACT_QUICK_GELU, .norm_eps = 1e-5}

/* The names of the tensors of a layer of CLIP's towers in files of transformers. */
#define LLM_STEMS_CLIP \
    {[LLM_STEM_Q] = "self_attn.q_proj", [LLM_STEM_K] = "self_attn.k_proj", [LLM_STEM_V] = "self_attn.v_proj", \
     [LLM_STEM_OUT] = "self_attn.out_proj", [LLM_STEM_NORM_1] = "layer_norm1", [LLM_STEM_UP] = "mlp.fc1", [LLM_STEM_DOWN] = "mlp.fc2", \
     [LLM_STEM_NORM_2] = "layer_norm2"}
/* Checks what later code relies on: whole patches, equal heads. 0 or -1. */
int llm_vision_check(const struct llm_vision *v, struct llm_err *e) LLM_MUST_CHECK;
/* Models that read pictures in texts: checks that a section, if it names its family under `key`, names `type` (EX_UNAVAILABLE). 0 or -1. */
int llm_section_check(const json_t *o, const char *key, const char *type, struct llm_err *e) LLM_MUST_CHECK;
/* The finish of these models: their tower, their placeholder, and the language model of text_config. 0 or -1. */
int llm_projecting_finish(struct llm_config *c, const json_t *o, struct llm_err *e) LLM_MUST_CHECK;

/* The names of the tensors of Llama's layers in files of transformers, and more. */
#define LLM_STEMS_LLAMA_AND(...) \
    {[LLM_STEM_Q] = "self_attn.q_proj", [LLM_STEM_K] = "self_attn.k_proj", [LLM_STEM_V] = "self_attn.v_proj", \
     [LLM_STEM_OUT] = "self_attn.o_proj", [LLM_STEM_SINKS] = "self_attn.sinks", [LLM_STEM_GATE] = "mlp.gate_proj", \
     [LLM_STEM_UP] = "mlp.up_proj", \
     [LLM_STEM_DOWN] = "mlp.down_proj", [LLM_STEM_NORM_1] = "input_layernorm", [LLM_STEM_NORM_2] = "post_attention_layernorm", \
     [LLM_STEM_NEXT_TOKEN_NORM] = "enorm", [LLM_STEM_NEXT_HIDDEN_NORM] = "hnorm", [LLM_STEM_NEXT_JOIN] = "eh_proj", \
     [LLM_STEM_NEXT_NORM] = "shared_head.norm", __VA_ARGS__}
#define LLM_STEMS_LLAMA LLM_STEMS_LLAMA_AND()
#define LLM_NAMES_LLAMA(...) \
    {.prefix = "model.", .embed = "embed_tokens", .positions = "embed_positions", .layer = "layers.", .final_norm = "norm", .head = "lm_head", \
     .stem = LLM_STEMS_LLAMA_AND(__VA_ARGS__)}

#endif
