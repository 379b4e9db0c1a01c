/* GPT-NeoX (Black et al. 2022) and Pythia: LayerNorm, biases, parallel attention and feed-forward parts, RoPE of a quarter of each head, and one
 * matrix with the queries, keys and values of each head together. */
#include "model/spec/arch/keys.h"

static const struct llm_config_key keys[] = {
    LLM_KEYS_SIZES,
    {"hidden_act", LLM_KEY_ACT, LLM_AT(act), 0, 0, NULL, LLM_KEY_HF},
    {"layer_norm_eps", LLM_KEY_REAL, LLM_AT(norm_eps), 0, 1, NULL, LLM_KEY_HF},
    {"attention_bias", LLM_KEY_BOOL, LLM_AT(attention_bias), 0, 0, NULL, LLM_KEY_HF},
    {"use_parallel_residual", LLM_KEY_BOOL, LLM_AT(parallel_residual), 0, 0, NULL, LLM_KEY_HF},
    {"rotary_pct", LLM_KEY_REAL, LLM_AT(partial_rotary_factor), 0, 1, NULL, LLM_KEY_HF},
    {"rotary_emb_base", LLM_KEY_REAL, LLM_AT(rope_theta), 1, 1e12, NULL, LLM_KEY_HF},
    LLM_KEYS_DECODER,
    LLM_KEY_END,
};

static void defaults(struct llm_config *c)
{
    c->vocab_size = 50432;
    c->hidden_size = 6144;
    c->intermediate_size = 24576;
    c->num_hidden_layers = 44;
    c->num_attention_heads = 64;
    c->max_position_embeddings = 2048;
    c->norm = LLM_NORM_LAYER;
    c->norm_eps = 1e-5;
    c->position = LLM_POSITION_ROPE;
    c->rope_theta = 10000;
    c->partial_rotary_factor = .25;
    c->act = LLM_ACT_GELU;
    c->attention_bias = c->mlp_bias = c->norm_bias = true;
    c->parallel_residual = true;
    c->qkv_by_head = true;
    c->bos_token_id = 0;
    c->eos_token_id = 2;
}

static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    double dropout = 0;
    if (llm_json_real(o, "hidden_dropout", &dropout, e) < 0) return -1;
    if (!(dropout >= 0 && dropout <= .999)) return llm_fail(e, EX_DATAERR, "hidden_dropout: expected 0 to 0.999, found %g", dropout);
    if (dropout > 0) c->embd_pdrop = c->resid_pdrop = dropout;
    c->num_key_value_heads = c->num_attention_heads;
    return llm_decoder_finish(c, o, e);
}

static const char *const ignored[] = {"partial_rotary_factor", LLM_IGNORED_VARIANTS, LLM_IGNORED_WINDOW, "rope_theta", "head_dim", NULL};

static const struct llm_other_key others[] = {
    {"hidden_dropout", "read"}, {"num_key_value_heads", "*"}, {"attention_probs_dropout_prob", "*"},
    {"hidden_dropout_prob", "*"}, {NULL, NULL}};

const struct llm_arch llm_arch_gpt_neox = {
    .model_type = "gpt_neox",
    .gguf = "gptneox",
    .architecture = "GPTNeoXForCausalLM",
    .keys = keys,
    .ignored = ignored,
    .other_keys = others,
    .defaults = defaults,
    .finish = finish,
    .extra = llm_decoder_extra,
    .names = {.prefix = "gpt_neox.", .embed = "embed_in", .positions = "embed_positions", .layer = "layers.", .final_norm = "final_layer_norm",
              .head = "embed_out",
              .stem = {[LLM_STEM_QKV] = "attention.query_key_value", [LLM_STEM_OUT] = "attention.dense", [LLM_STEM_UP] = "mlp.dense_h_to_4h",
                       [LLM_STEM_DOWN] = "mlp.dense_4h_to_h", [LLM_STEM_NORM_1] = "input_layernorm",
                       [LLM_STEM_NORM_2] = "post_attention_layernorm"}},
    .declare = llm_decoder_declare,
};
