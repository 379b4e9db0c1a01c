/* Gemma 2 (2024): norms before and after each sub-layer, gains stored as gain - 1, embeddings multiplied by sqrt(hidden), GeGLU, soft-capped scores
 * and logits, a sliding window in every other layer. Gemma 3 (2025): norms of each head of queries and keys instead of soft caps, five local layers
 * for each global one, and a separate rotary base in local layers. */
#include "model/spec/arch/keys.h"

#define KEYS \
    LLM_KEYS_SIZES, \
    {"hidden_activation", LLM_KEY_ACT, LLM_AT(act), 0, 0, NULL, LLM_KEY_HF}, \
    {"rms_norm_eps", LLM_KEY_REAL, LLM_AT(norm_eps), 0, 1, NULL, LLM_KEY_HF}, \
    {"attention_bias", LLM_KEY_BOOL, LLM_AT(attention_bias), 0, 0, NULL, LLM_KEY_HF}, \
    {"query_pre_attn_scalar", LLM_KEY_REAL, LLM_AT(query_pre_attn_scalar), 1e-6, 1e6, NULL, LLM_KEY_HF}, \
    {"attn_logit_softcapping", LLM_KEY_CAP, LLM_AT(attn_logit_softcapping), 0, 1e6, NULL, LLM_KEY_HF}, \
    {"final_logit_softcapping", LLM_KEY_CAP, LLM_AT(final_logit_softcapping), 0, 1e6, NULL, LLM_KEY_HF}, \
    LLM_KEYS_WINDOW, \
    LLM_KEYS_VARIANTS

static const struct llm_config_key gemma2_keys[] = {KEYS, LLM_KEY_END};
static const struct llm_config_key gemma3_keys[] = {
    {"use_bidirectional_attention", LLM_KEY_BOOL, LLM_AT(use_bidirectional_attention), 0, 0, NULL, LLM_KEY_OURS}, KEYS,
    {"rope_local_base_freq", LLM_KEY_REAL, LLM_AT(rope_local_theta), 1, 1e12, NULL, LLM_KEY_HF}, LLM_KEY_END};

static void defaults(struct llm_config *c)
{
    c->hidden_size = 2304;
    c->intermediate_size = 9216;
    c->num_hidden_layers = 26;
    c->num_attention_heads = 8;
    c->num_key_value_heads = 4;
    c->head_dim = 256;
    c->norm = LLM_NORM_RMS;
    c->norm_place = LLM_NORM_SANDWICH;
    c->norm_gain_offset = 1;
    c->norm_eps = 1e-6;
    c->position = LLM_POSITION_ROPE;
    c->act = LLM_ACT_GELU_TANH;
    c->gated = true;
    c->tie_word_embeddings = true;
    c->query_pre_attn_scalar = 256;
    c->sliding_window = 4096;
    c->embedding_scale = 0; /* sqrt(hidden_size) */
    c->bos_token_id = 2;
    c->eos_token_id = 1;
}

static void gemma2_defaults(struct llm_config *c)
{
    defaults(c);
    c->vocab_size = 256000;
    c->max_position_embeddings = 8192;
    c->rope_theta = 10000;
    c->sliding_window_pattern = 2;
    c->attn_logit_softcapping = 50;
    c->final_logit_softcapping = 30;
}

static void gemma3_defaults(struct llm_config *c)
{
    defaults(c);
    c->vocab_size = 262208;
    c->max_position_embeddings = 131072;
    c->rope_theta = 1e6;
    c->rope_local_theta = 10000;
    c->sliding_window_pattern = 6;
    c->qk_norm = LLM_QK_NORM_HEAD;
}

/* EmbeddingGemma is bidirectional; its sliding_window counts the tokens on both sides together. */
static int gemma3_finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    c->bidirectional = c->use_bidirectional_attention;
    if (llm_decoder_finish(c, o, e) < 0) return -1;
    if (c->bidirectional && c->sliding_window > 0) c->sliding_window = c->sliding_window / 2 + 1;
    return 0;
}

static int gemma3_extra(const struct llm_config *c, json_t *o)
{
    bool halved = c->bidirectional && c->sliding_window > 0;
    if (halved && json_object_set_new(o, "sliding_window", json_integer(2 * (c->sliding_window - 1))) < 0) return -1;
    return llm_decoder_extra(c, o);
}

/* llama.cpp's converter adds 1 to the gains, and drops query_pre_attn_scalar, which equals head_dim except in the largest model of each
 * generation. */
static void in_gguf(struct llm_config *c)
{
    bool largest = c->num_hidden_layers == (c->rope_local_theta > 0 ? 62 : 46);
    c->norm_gain_offset = 0;
    bool own = c->head_dim > 0 && !largest;
    c->query_pre_attn_scalar = own ? (double)c->head_dim : (double)c->hidden_size / (double)c->num_attention_heads;
}

#define NAMES \
    {.prefix = "model.", .embed = "embed_tokens", .positions = "embed_positions", .layer = "layers.", .final_norm = "norm", .head = "lm_head", \
     .stem = {[LLM_STEM_Q] = "self_attn.q_proj", [LLM_STEM_K] = "self_attn.k_proj", [LLM_STEM_V] = "self_attn.v_proj", \
              [LLM_STEM_OUT] = "self_attn.o_proj", [LLM_STEM_GATE] = "mlp.gate_proj", [LLM_STEM_UP] = "mlp.up_proj", \
              [LLM_STEM_DOWN] = "mlp.down_proj", [LLM_STEM_NORM_1] = "input_layernorm", \
              [LLM_STEM_POST_1] = "post_attention_layernorm", [LLM_STEM_NORM_2] = "pre_feedforward_layernorm", \
              [LLM_STEM_POST_2] = "post_feedforward_layernorm", [LLM_STEM_Q_NORM] = "self_attn.q_norm", [LLM_STEM_K_NORM] = "self_attn.k_norm"}}

static const char *const gemma2_ignored[] = {LLM_IGNORED_PARTIAL, "logit_scale", "resid_pdrop", "embd_pdrop", "use_sliding_window",
    "max_window_layers",
    "sliding_window_pattern", NULL};

static const struct llm_other_key gemma2_others[] = {
    {"hidden_act", "*"}, {"use_bidirectional_attention", "*"}, {"_sliding_window_pattern", "*"}, {NULL, NULL}};

const struct llm_arch llm_arch_gemma2 = {
    .model_type = "gemma2",
    .gguf = "gemma2",
    .architecture = "Gemma2ForCausalLM",
    .keys = gemma2_keys,
    .ignored = gemma2_ignored,
    .other_keys = gemma2_others,
    .defaults = gemma2_defaults,
    .finish = llm_decoder_finish,
    .extra = llm_decoder_extra,
    .in_gguf = in_gguf,
    .names = NAMES,
    .declare = llm_decoder_declare,
};

static const char *const gemma3_ignored[] = {LLM_IGNORED_PARTIAL, "logit_scale", "resid_pdrop", "embd_pdrop", "use_sliding_window",
    "max_window_layers",
    "attn_logit_softcapping", NULL};

static const struct llm_other_key gemma3_others[] = {
    {"hidden_act", "*"}, {"_sliding_window_pattern", "*"}, {NULL, NULL}};

const struct llm_arch llm_arch_gemma3 = {
    .model_type = "gemma3_text",
    .gguf = "gemma3",
    .architecture = "Gemma3ForCausalLM",
    .keys = gemma3_keys,
    .ignored = gemma3_ignored,
    .other_keys = gemma3_others,
    .defaults = gemma3_defaults,
    .finish = gemma3_finish,
    .extra = gemma3_extra,
    .in_gguf = in_gguf,
    .names = NAMES,
    .declare = llm_decoder_declare,
};
