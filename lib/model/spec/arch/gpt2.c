/* GPT-2 (Radford et al. 2019) and its variants: LayerNorm, learned or sinusoidal positions, GELU, biases, tied head. Keys and names are those of
 * transformers' GPT2LMHeadModel, whose matrices are Conv1D: [in, out] in files. */
#include "model/spec/arch/keys.h"

static const struct llm_config_key keys[] = {
    {"vocab_size", LLM_KEY_INT, LLM_AT(vocab_size), 0, 1 << 24, NULL, LLM_KEY_HF},
    {"n_positions", LLM_KEY_INT, LLM_AT(max_position_embeddings), 1, 1 << 24, NULL, LLM_KEY_HF},
    {"n_embd", LLM_KEY_INT, LLM_AT(hidden_size), 1, 1 << 20, NULL, LLM_KEY_HF},
    {"n_layer", LLM_KEY_INT, LLM_AT(num_hidden_layers), 1, LLM_MAX_LAYERS, NULL, LLM_KEY_HF},
    {"n_head", LLM_KEY_INT, LLM_AT(num_attention_heads), 1, 1 << 14, NULL, LLM_KEY_HF},
    {"n_inner", LLM_KEY_INT, LLM_AT(intermediate_size), 1, 1 << 22, NULL, LLM_KEY_HF},
    {"activation_function", LLM_KEY_ACT, LLM_AT(act), 0, 0, NULL, LLM_KEY_HF},
    {"layer_norm_epsilon", LLM_KEY_REAL, LLM_AT(norm_eps), 0, 1, NULL, LLM_KEY_HF},
    {"embd_pdrop", LLM_KEY_REAL, LLM_AT(embd_pdrop), 0, .999, NULL, LLM_KEY_HF},
    {"attn_pdrop", LLM_KEY_REAL, LLM_AT(attn_pdrop), 0, .999, NULL, LLM_KEY_HF},
    {"resid_pdrop", LLM_KEY_REAL, LLM_AT(resid_pdrop), 0, .999, NULL, LLM_KEY_HF},
    {"initializer_range", LLM_KEY_REAL, LLM_AT(initializer_range), 0, 100, NULL, LLM_KEY_HF},
    {"tie_word_embeddings", LLM_KEY_BOOL, LLM_AT(tie_word_embeddings), 0, 0, NULL, LLM_KEY_HF},
    {"bos_token_id", LLM_KEY_TOKEN, LLM_AT(bos_token_id), 0, 0, NULL, LLM_KEY_HF},
    {"eos_token_id", LLM_KEY_TOKEN, LLM_AT(eos_token_id), 0, 0, NULL, LLM_KEY_HF},
    {"bias", LLM_KEY_BOOL, LLM_AT(norm_bias), 0, 0, NULL, LLM_KEY_OURS},
    {"position_embedding", LLM_KEY_WORD, LLM_AT(position), 0, 0, llm_position_words, LLM_KEY_OURS},
    {"rope_theta", LLM_KEY_REAL, LLM_AT(rope_theta), 1, 1e12, NULL, LLM_KEY_OURS},
    {"norm_place", LLM_KEY_WORD, LLM_AT(norm_place), 0, 0, llm_place_words, LLM_KEY_OURS},
    {"sliding_window", LLM_KEY_LENGTH, LLM_AT(sliding_window), 0, 1 << 24, NULL, LLM_KEY_OURS},
    {"logit_scale", LLM_KEY_SCALE, LLM_AT(logit_scale), 0, 1e6, NULL, LLM_KEY_OURS},
    LLM_KEYS_SCORES,
    {"scale_attn_weights", LLM_KEY_BOOL, LLM_AT(scale_attn_weights), 0, 0, NULL, LLM_KEY_OURS},
    {"scale_attn_by_inverse_layer_idx", LLM_KEY_BOOL, LLM_AT(scale_attn_by_inverse_layer_idx), 0, 0, NULL, LLM_KEY_OURS},
    LLM_KEY_END,
};

static void defaults(struct llm_config *c)
{
    c->vocab_size = 50257;
    c->max_position_embeddings = 1024;
    c->hidden_size = 768;
    c->num_hidden_layers = c->num_attention_heads = 12;
    c->norm = LLM_NORM_LAYER;
    c->norm_eps = 1e-5;
    c->position = LLM_POSITION_LEARNED;
    c->rope_theta = 10000;
    c->act = LLM_ACT_GELU_TANH;
    c->norm_bias = true;
    c->tie_word_embeddings = true;
    c->embd_pdrop = c->attn_pdrop = c->resid_pdrop = .1;
    c->bos_token_id = c->eos_token_id = 50256;
}

static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    c->num_key_value_heads = c->num_attention_heads;
    if (c->intermediate_size == 0) c->intermediate_size = 4 * c->hidden_size;
    if (c->hidden_size % c->num_attention_heads != 0) {
        return llm_fail(e, EX_DATAERR, "n_embd: expected a multiple of n_head (%lld), found %lld", (long long)c->num_attention_heads,
                        (long long)c->hidden_size);
    }
    c->head_dim = c->hidden_size / c->num_attention_heads;
    c->attention_bias = c->attention_out_bias = c->mlp_bias = c->norm_bias;
    return llm_decoder_finish(c, o, e);
}

static const char *const ignored[] = {"rope_theta", "sliding_window", "logit_scale", "query_pre_attn_scalar", NULL};

static const struct llm_other_key others[] = {
    {"reorder_and_upcast_attn", "*"}, {"n_ctx", "*"}, {"n_special", "*"}, {"predict_special_tokens", "*"}, {NULL, NULL}};

const struct llm_arch llm_arch_gpt2 = {
    .model_type = "gpt2",
    .gguf = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .keys = keys,
    .ignored = ignored,
    .other_keys = others,
    .defaults = defaults,
    .finish = finish,
    .extra = llm_decoder_extra,
    .names = {.prefix = "transformer.", .embed = "wte", .positions = "wpe", .layer = "h.", .final_norm = "ln_f", .head = "lm_head",
              .stem = {[LLM_STEM_QKV] = "attn.c_attn", [LLM_STEM_OUT] = "attn.c_proj", [LLM_STEM_UP] = "mlp.c_fc",
                       [LLM_STEM_DOWN] = "mlp.c_proj", [LLM_STEM_NORM_1] = "ln_1", [LLM_STEM_NORM_2] = "ln_2"}},
    .transposed = true,
    .scaled_residual = true,
    .declare = llm_decoder_declare,
};
