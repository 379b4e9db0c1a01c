/* Mamba and Mamba 2: keys and names of transformers' MambaForCausalLM and Mamba2ForCausalLM (state-spaces/mamba-*-hf). */
#include <math.h>
#include <string.h>
#include "cpu/kernels/scan.h"
#include "model/arch/keys.h"

#define COMMON_KEYS \
    {"vocab_size", LLM_KEY_INT, LLM_AT(vocab_size), 0, 1 << 24, NULL, false}, \
    {"hidden_size", LLM_KEY_INT, LLM_AT(hidden_size), 1, 1 << 20, NULL, false}, \
    {"num_hidden_layers", LLM_KEY_INT, LLM_AT(num_hidden_layers), 1, LLM_MAX_LAYERS, NULL, false}, \
    {"state_size", LLM_KEY_INT, LLM_AT(state_size), 1, LLM_SCAN_STATES, NULL, false}, \
    {"conv_kernel", LLM_KEY_INT, LLM_AT(conv_kernel), 1, LLM_CONV_TAPS, NULL, false}, \
    {"expand", LLM_KEY_REAL, LLM_AT(ssm_expand), 1e-3, 1e3, NULL, false}, \
    {"use_bias", LLM_KEY_BOOL, LLM_AT(mlp_bias), 0, 0, NULL, false}, \
    {"use_conv_bias", LLM_KEY_BOOL, LLM_AT(conv_bias), 0, 0, NULL, false}, \
    {"layer_norm_epsilon", LLM_KEY_REAL, LLM_AT(norm_eps), 0, 1, NULL, false}, \
    {"time_step_min", LLM_KEY_REAL, LLM_AT(time_step_min), 1e-9, 1e3, NULL, false}, \
    {"time_step_max", LLM_KEY_REAL, LLM_AT(time_step_max), 1e-9, 1e3, NULL, false}, \
    {"time_step_floor", LLM_KEY_REAL, LLM_AT(time_step_floor), 1e-9, 1e3, NULL, false}, \
    {"initializer_range", LLM_KEY_REAL, LLM_AT(initializer_range), 0, 100, NULL, false}, \
    {"tie_word_embeddings", LLM_KEY_BOOL, LLM_AT(tie_word_embeddings), 0, 0, NULL, false}, \
    {"bos_token_id", LLM_KEY_TOKEN, LLM_AT(bos_token_id), 0, 0, NULL, false}, \
    {"eos_token_id", LLM_KEY_TOKEN, LLM_AT(eos_token_id), 0, 0, NULL, false}, \
    {"max_position_embeddings", LLM_KEY_INT, LLM_AT(max_position_embeddings), 1, 1 << 24, NULL, true}, \
    {"embd_pdrop", LLM_KEY_REAL, LLM_AT(embd_pdrop), 0, .999, NULL, true}, \
    {"resid_pdrop", LLM_KEY_REAL, LLM_AT(resid_pdrop), 0, .999, NULL, true}, \
    {"logit_scale", LLM_KEY_SCALE, LLM_AT(logit_scale), 0, 1e6, NULL, true}

static const struct llm_config_key mamba_keys[] = {COMMON_KEYS, LLM_KEY_END};
static const struct llm_config_key mamba2_keys[] = {
    COMMON_KEYS,
    {"num_heads", LLM_KEY_INT, LLM_AT(ssm_heads), 1, 1 << 16, NULL, false},
    {"head_dim", LLM_KEY_INT, LLM_AT(ssm_head_dim), 1, 1 << 16, NULL, false},
    {"n_groups", LLM_KEY_INT, LLM_AT(ssm_groups), 1, 1 << 14, NULL, false},
    LLM_KEY_END,
};

static void defaults(struct llm_config *c)
{
    c->vocab_size = 50280;
    c->hidden_size = 768;
    c->num_hidden_layers = 32;
    c->state_size = 16;
    c->conv_kernel = 4;
    c->ssm_expand = 2;
    c->ssm_groups = 1;
    c->conv_bias = true;
    c->norm = LLM_NORM_RMS;
    c->norm_eps = 1e-5;
    c->time_step_min = .001;
    c->time_step_max = .1;
    c->time_step_floor = 1e-4;
    c->time_step_max_limit = INFINITY;
    c->initializer_range = .1;
    c->tie_word_embeddings = true;
    c->max_position_embeddings = 2048; /* of training and of windows in scoring: a state has no length */
    c->position = LLM_POSITION_NONE;
    c->num_attention_heads = c->num_key_value_heads = c->head_dim = 1;
    c->bos_token_id = c->eos_token_id = 0;
    c->mixer = LLM_MIXER_MAMBA;
}

static void mamba2_defaults(struct llm_config *c)
{
    defaults(c);
    c->vocab_size = 32768;
    c->hidden_size = 4096;
    c->num_hidden_layers = 64;
    c->state_size = c->ssm_heads = 128;
    c->ssm_head_dim = 64;
    c->ssm_groups = 8;
    c->tie_word_embeddings = false;
    c->eos_token_id = 2;
    c->mixer = LLM_MIXER_MAMBA2;
}

/* An integer, "auto", or nothing. */
static int read_rank(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    const char *word = json_string_value(json_object_get(o, "time_step_rank"));
    c->time_step_rank = (c->hidden_size + 15) / 16;
    if (word && strcmp(word, "auto") == 0) return 0;
    return llm_json_int(o, "time_step_rank", 1, 1 << 20, &c->time_step_rank, e);
}

static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    c->intermediate_size = (int64_t)(c->ssm_expand * (double)c->hidden_size);
    if (c->mixer == LLM_MIXER_MAMBA && llm_json_int(o, "intermediate_size", 1, 1 << 22, &c->intermediate_size, e) < 0) return -1;
    if (c->intermediate_size >= 1 && c->intermediate_size <= 1 << 22) return read_rank(c, o, e);
    return llm_fail(e, EX_DATAERR, "expand: expected 1 to %d channels within layers, found %lld", 1 << 22, (long long)c->intermediate_size);
}

static int mamba2_finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    const json_t *limit = json_object_get(o, "time_step_limit"), *low = json_array_get(limit, 0), *high = json_array_get(limit, 1);
    if (finish(c, o, e) < 0) return -1;
    if (json_is_number(low)) c->time_step_min_limit = json_number_value(low);
    if (json_is_number(high)) c->time_step_max_limit = json_number_value(high);
    if (c->ssm_heads * c->ssm_head_dim != c->intermediate_size || c->ssm_heads % c->ssm_groups != 0) {
        return llm_fail(e, EX_DATAERR, "num_heads * head_dim: expected expand * hidden_size (%lld), and n_groups equal groups, found %lld * %lld",
                        (long long)c->intermediate_size, (long long)c->ssm_heads, (long long)c->ssm_head_dim);
    }
    return 0;
}

static int extra(const struct llm_config *c, json_t *o)
{
    return json_object_set_new(o, "time_step_rank", json_integer(c->time_step_rank))
           | json_object_set_new(o, "intermediate_size", json_integer(c->intermediate_size));
}

/* Infinity is what transformers writes for no limit, and no number of JSON. */
static int mamba2_extra(const struct llm_config *c, json_t *o)
{
    json_t *high = isinf(c->time_step_max_limit) ? json_null() : json_real(c->time_step_max_limit);
    return json_object_set_new(o, "time_step_limit", json_pack("[f,o]", c->time_step_min_limit, high));
}

#define NAMES {.prefix = "backbone.", .embed = "embeddings", .layer = "layers.", .final_norm = "norm_f", .head = "lm_head", \
               .stem = {[LLM_STEM_QKV] = "mixer.in_proj", [LLM_STEM_OUT] = "mixer.out_proj", [LLM_STEM_NORM_1] = "norm"}}

const struct llm_arch llm_arch_mamba = {
    .model_type = "mamba", .architecture = "MambaForCausalLM", .keys = mamba_keys, .defaults = defaults, .finish = finish, .extra = extra,
    .names = NAMES, .out_bias_apart = true, .declare = llm_decoder_declare, .forward = llm_decoder_forward};
const struct llm_arch llm_arch_mamba2 = {
    .model_type = "mamba2", .architecture = "Mamba2ForCausalLM", .keys = mamba2_keys, .defaults = mamba2_defaults, .finish = mamba2_finish,
    .extra = mamba2_extra, .names = NAMES, .out_bias_apart = true, .declare = llm_decoder_declare, .forward = llm_decoder_forward};
