/* Llama (Touvron et al. 2023) and what differs from it by parameters: RMSNorm, RoPE by halves, SwiGLU, grouped keys and values; Mistral is the
 * same with a sliding window. Keys and names are those of transformers' LlamaForCausalLM. */
#include <string.h>
#include "model/arch.h"

#define AT(field) offsetof(struct llm_config, field)

static const char *const positions[] = {"rope", "learned", "sinusoidal", "none", NULL};
static const char *const places[] = {"pre", "post", NULL};
static const char *const pairings[] = {"halves", "interleaved", NULL};

static const struct llm_config_key keys[] = {
    {"vocab_size", LLM_KEY_INT, AT(vocab_size), 0, 1 << 24, NULL, false},
    {"hidden_size", LLM_KEY_INT, AT(hidden_size), 1, 1 << 20, NULL, false},
    {"intermediate_size", LLM_KEY_INT, AT(intermediate_size), 1, 1 << 22, NULL, false},
    {"num_hidden_layers", LLM_KEY_INT, AT(num_hidden_layers), 1, 10000, NULL, false},
    {"num_attention_heads", LLM_KEY_INT, AT(num_attention_heads), 1, 1 << 14, NULL, false},
    {"num_key_value_heads", LLM_KEY_INT, AT(num_key_value_heads), 1, 1 << 14, NULL, false},
    {"head_dim", LLM_KEY_INT, AT(head_dim), 1, 1 << 14, NULL, false},
    {"max_position_embeddings", LLM_KEY_INT, AT(max_position_embeddings), 1, 1 << 24, NULL, false},
    {"hidden_act", LLM_KEY_ACT, AT(act), 0, 0, NULL, false},
    {"rms_norm_eps", LLM_KEY_REAL, AT(norm_eps), 0, 1, NULL, false},
    {"rope_theta", LLM_KEY_REAL, AT(rope_theta), 1, 1e12, NULL, false},
    {"attention_bias", LLM_KEY_BOOL, AT(attention_bias), 0, 0, NULL, false},
    {"mlp_bias", LLM_KEY_BOOL, AT(mlp_bias), 0, 0, NULL, false},
    {"attention_dropout", LLM_KEY_REAL, AT(attn_pdrop), 0, .999, NULL, false},
    {"initializer_range", LLM_KEY_REAL, AT(initializer_range), 0, 100, NULL, false},
    {"tie_word_embeddings", LLM_KEY_BOOL, AT(tie_word_embeddings), 0, 0, NULL, false},
    {"bos_token_id", LLM_KEY_TOKEN, AT(bos_token_id), 0, 0, NULL, false},
    {"eos_token_id", LLM_KEY_TOKEN, AT(eos_token_id), 0, 0, NULL, false},
    {"sliding_window", LLM_KEY_INT, AT(sliding_window), 0, 1 << 24, NULL, true},
    {"embd_pdrop", LLM_KEY_REAL, AT(embd_pdrop), 0, .999, NULL, true},
    {"resid_pdrop", LLM_KEY_REAL, AT(resid_pdrop), 0, .999, NULL, true},
    {"position_embedding", LLM_KEY_WORD, AT(position), 0, 0, positions, true},
    {"rope_pairing", LLM_KEY_WORD, AT(rope_pairing), 0, 0, pairings, true},
    {"norm_place", LLM_KEY_WORD, AT(norm_place), 0, 0, places, true},
    {"logit_scale", LLM_KEY_SCALE, AT(logit_scale), 0, 1e6, NULL, true},
    {NULL, LLM_KEY_INT, 0, 0, 0, NULL, false},
};

static void defaults(struct llm_config *c)
{
    c->vocab_size = 32000;
    c->hidden_size = 4096;
    c->intermediate_size = 11008;
    c->num_hidden_layers = c->num_attention_heads = 32;
    c->max_position_embeddings = 2048;
    c->norm = LLM_NORM_RMS;
    c->norm_eps = 1e-6;
    c->position = LLM_POSITION_ROPE;
    c->rope_theta = 10000;
    c->act = LLM_ACT_SILU;
    c->gated = true;
    c->bos_token_id = 1;
    c->eos_token_id = 2;
}

static void mistral_defaults(struct llm_config *c)
{
    defaults(c);
    c->intermediate_size = 14336;
    c->num_key_value_heads = 8;
    c->max_position_embeddings = 4096 * 32;
    c->sliding_window = 4096;
}

/* RoPE's base stands at the top or, since transformers 5, in "rope_parameters"; kinds that rescale frequencies are refused rather than ignored. */
static int rope(struct llm_config *c, const json_t *o, const char *key, struct llm_err *e)
{
    const json_t *r = json_object_get(o, key);
    const char *type = "default";
    if (!r || json_is_null(r)) return 0;
    if (!json_is_object(r)) return llm_fail(e, EX_DATAERR, "%s: expected an object", key);
    if (llm_json_real(r, "rope_theta", &c->rope_theta, e) < 0 || llm_json_str(r, "type", &type, e) < 0
        || llm_json_str(r, "rope_type", &type, e) < 0) {
        return llm_in(e, "%s", key);
    }
    if (strcmp(type, "default") != 0) return llm_fail(e, EX_DATAERR, "%s: expected 'default', found '%s'", key, type);
    return 0;
}

static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    if (c->num_key_value_heads == 0) c->num_key_value_heads = c->num_attention_heads;
    if (rope(c, o, "rope_scaling", e) < 0 || rope(c, o, "rope_parameters", e) < 0) return -1;
    if (!(c->rope_theta >= 1 && c->rope_theta <= 1e12)) {
        return llm_fail(e, EX_DATAERR, "rope_theta: expected 1 to 1e12, found %g", c->rope_theta);
    }
    if (c->head_dim == 0) {
        if (c->hidden_size % c->num_attention_heads != 0) {
            return llm_fail(e, EX_DATAERR, "hidden_size: expected a multiple of num_attention_heads (%lld), found %lld",
                            (long long)c->num_attention_heads, (long long)c->hidden_size);
        }
        c->head_dim = c->hidden_size / c->num_attention_heads;
    }
    return 0;
}

#define NAMES                                                                                                                                    \
    {.prefix = "model.", .embed = "embed_tokens", .positions = "embed_positions", .layer = "layers.", .final_norm = "norm", .head = "lm_head", \
     .stem = {[LLM_STEM_Q] = "self_attn.q_proj", [LLM_STEM_K] = "self_attn.k_proj", [LLM_STEM_V] = "self_attn.v_proj",                           \
              [LLM_STEM_OUT] = "self_attn.o_proj", [LLM_STEM_GATE] = "mlp.gate_proj", [LLM_STEM_UP] = "mlp.up_proj",                             \
              [LLM_STEM_DOWN] = "mlp.down_proj", [LLM_STEM_NORM_1] = "input_layernorm", [LLM_STEM_NORM_2] = "post_attention_layernorm"}}

const struct llm_arch llm_arch_llama = {
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
    .keys = keys,
    .defaults = defaults,
    .finish = finish,
    .names = NAMES,
    .declare = llm_decoder_declare,
    .forward = llm_decoder_forward,
};

const struct llm_arch llm_arch_mistral = {
    .model_type = "mistral",
    .architecture = "MistralForCausalLM",
    .keys = keys,
    .defaults = mistral_defaults,
    .finish = finish,
    .names = NAMES,
    .declare = llm_decoder_declare,
    .forward = llm_decoder_forward,
};
