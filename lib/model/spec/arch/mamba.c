/* Mamba and Mamba 2: keys and names of transformers' MambaForCausalLM and Mamba2ForCausalLM (state-spaces/mamba-*-hf). */
#include <math.h>
#include <string.h>
#include "cpu/kernels/scan.h"
#include "model/spec/arch/keys.h"

#define COMMON_KEYS \
    {"vocab_size", LLM_KEY_INT, LLM_AT(vocab_size), 0, 1 << 24, NULL, LLM_KEY_HF}, \
    {"hidden_size", LLM_KEY_INT, LLM_AT(hidden_size), 1, 1 << 20, NULL, LLM_KEY_HF}, \
    {"num_hidden_layers", LLM_KEY_INT, LLM_AT(num_hidden_layers), 1, LLM_MAX_LAYERS, NULL, LLM_KEY_HF}, \
    {"state_size", LLM_KEY_INT, LLM_AT(state_size), 1, LLM_SCAN_STATES, NULL, LLM_KEY_HF}, \
    {"conv_kernel", LLM_KEY_INT, LLM_AT(conv_kernel), 1, LLM_CONV_TAPS, NULL, LLM_KEY_HF}, \
    {"expand", LLM_KEY_REAL, LLM_AT(ssm_expand), 1e-3, 1e3, NULL, LLM_KEY_HF}, \
    {"use_bias", LLM_KEY_BOOL, LLM_AT(mlp_bias), 0, 0, NULL, LLM_KEY_HF}, \
    {"use_conv_bias", LLM_KEY_BOOL, LLM_AT(conv_bias), 0, 0, NULL, LLM_KEY_HF}, \
    {"layer_norm_epsilon", LLM_KEY_REAL, LLM_AT(norm_eps), 0, 1, NULL, LLM_KEY_HF}, \
    {"time_step_min", LLM_KEY_REAL, LLM_AT(time_step_min), 1e-9, 1e3, NULL, LLM_KEY_HF}, \
    {"time_step_max", LLM_KEY_REAL, LLM_AT(time_step_max), 1e-9, 1e3, NULL, LLM_KEY_HF}, \
    {"time_step_floor", LLM_KEY_REAL, LLM_AT(time_step_floor), 1e-9, 1e3, NULL, LLM_KEY_HF}, \
    {"initializer_range", LLM_KEY_REAL, LLM_AT(initializer_range), 0, 100, NULL, LLM_KEY_HF}, \
    {"tie_word_embeddings", LLM_KEY_BOOL, LLM_AT(tie_word_embeddings), 0, 0, NULL, LLM_KEY_HF}, \
    {"bos_token_id", LLM_KEY_TOKEN, LLM_AT(bos_token_id), 0, 0, NULL, LLM_KEY_HF}, \
    {"eos_token_id", LLM_KEY_TOKEN, LLM_AT(eos_token_id), 0, 0, NULL, LLM_KEY_HF}, \
    {"max_position_embeddings", LLM_KEY_INT, LLM_AT(max_position_embeddings), 1, 1 << 24, NULL, LLM_KEY_OURS}, \
    {"embd_pdrop", LLM_KEY_REAL, LLM_AT(embd_pdrop), 0, .999, NULL, LLM_KEY_OURS}, \
    {"resid_pdrop", LLM_KEY_REAL, LLM_AT(resid_pdrop), 0, .999, NULL, LLM_KEY_OURS}, \
    {"hidden_act", LLM_KEY_ACT, LLM_AT(act), 0, 0, NULL, LLM_KEY_OURS}, \
    {"logit_scale", LLM_KEY_SCALE, LLM_AT(logit_scale), 0, 1e6, NULL, LLM_KEY_OURS}

static const struct llm_config_key mamba_keys[] = {COMMON_KEYS, LLM_KEY_END};
static const struct llm_config_key mamba2_keys[] = {
    COMMON_KEYS,
    {"num_heads", LLM_KEY_INT, LLM_AT(ssm_heads), 1, 1 << 16, NULL, LLM_KEY_HF},
    {"head_dim", LLM_KEY_INT, LLM_AT(ssm_head_dim), 1, 1 << 16, NULL, LLM_KEY_HF},
    {"n_groups", LLM_KEY_INT, LLM_AT(ssm_groups), 1, 1 << 14, NULL, LLM_KEY_HF},
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
    c->act = LLM_ACT_SILU;
    c->norm = LLM_NORM_RMS;
    c->norm_eps = 1e-5;
    c->time_step_min = .001;
    c->time_step_max = .1;
    c->time_step_floor = 1e-4;
    c->time_step_max_limit = INFINITY;
    c->initializer_range = .1;
    c->tie_word_embeddings = true;
    c->max_position_embeddings = 2048; /* the length of training rows and of windows in scoring; the state itself has no limit */
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

/* Reads time_step_rank: an integer, "auto", or absent. */
static int read_rank(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    const char *word = json_string_value(json_object_get(o, "time_step_rank"));
    if (c->time_step_rank == 0) c->time_step_rank = (c->hidden_size + 15) / 16;
    if (word && strcmp(word, "auto") == 0) return 0;
    return llm_json_int(o, "time_step_rank", 1, 1 << 20, &c->time_step_rank, e);
}

static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    c->intermediate_size = (int64_t)(c->ssm_expand * (double)c->hidden_size + 1e-6); /* ssm_expand is a quotient, so the product may be slightly below
                                                                                      * the integer */
    if (c->mixer == LLM_MIXER_MAMBA && llm_json_int(o, "intermediate_size", 1, 1 << 22, &c->intermediate_size, e) < 0) return -1;
    if (c->intermediate_size >= 1 && c->intermediate_size <= 1 << 22) return read_rank(c, o, e);
    return llm_fail(e, EX_DATAERR, "expand: expected 1 to %d channels within layers, found %lld", 1 << 22, (long long)c->intermediate_size);
}

static int mamba2_finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    const json_t *limit = json_object_get(o, "time_step_limit"), *low = json_array_get(limit, 0), *high = json_array_get(limit, 1);
    if (finish(c, o, e) < 0) return -1;
    if (json_is_number(low)) c->time_step_min_limit = json_number_value(low);
    if (json_is_number(high) && json_number_value(high) < LLM_JSON_INFINITY) c->time_step_max_limit = json_number_value(high);
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

/* transformers writes Infinity for no limit, which is not valid JSON. */
static int mamba2_extra(const struct llm_config *c, json_t *o)
{
    json_t *high = isinf(c->time_step_max_limit) ? json_null() : json_real(c->time_step_max_limit);
    return json_object_set_new(o, "time_step_limit", json_pack("[f,o]", c->time_step_min_limit, high));
}

#define NAMES(...) \
    {.prefix = "backbone.", .embed = "embeddings", .layer = "layers.", .final_norm = "norm_f", .head = "lm_head", \
     .stem = {[LLM_STEM_QKV] = "mixer.in_proj", [LLM_STEM_OUT] = "mixer.out_proj", [LLM_STEM_NORM_1] = "norm", \
              [LLM_STEM_CONV] = "mixer.conv1d.weight", [LLM_STEM_CONV_BIAS] = "mixer.conv1d.bias", [LLM_STEM_DECAY] = "mixer.A_log", \
              [LLM_STEM_SKIP] = "mixer.D", __VA_ARGS__}}
static const struct llm_names gguf_names = {
    .prefix = "", .embed = "token_embd", .layer = "blk.", .final_norm = "output_norm", .head = "output",
    .stem = {[LLM_STEM_QKV] = "ssm_in", [LLM_STEM_OUT] = "ssm_out", [LLM_STEM_NORM_1] = "attn_norm", [LLM_STEM_CONV] = "ssm_conv1d.weight",
             [LLM_STEM_CONV_BIAS] = "ssm_conv1d.bias", [LLM_STEM_STATES] = "ssm_x.weight", [LLM_STEM_TIME] = "ssm_dt.weight",
             [LLM_STEM_TIME_BIAS] = "ssm_dt.bias", [LLM_STEM_DECAY] = "ssm_a", [LLM_STEM_SKIP] = "ssm_d", [LLM_STEM_GATED_NORM] = "ssm_norm.weight"}};

/* GGUF's common keys about attention and feed-forward parts have no meaning in these families. */
#define GGUF_KEYS \
    {"ssm.conv_kernel", LLM_GGUF_KEY_WHOLE, LLM_AT(conv_kernel), 1, LLM_CONV_TAPS, 4}, \
    {"ssm.state_size", LLM_GGUF_KEY_WHOLE, LLM_AT(state_size), 1, LLM_SCAN_STATES, 16}, \
    {"ssm.inner_size", LLM_GGUF_KEY_WHOLE, LLM_AT(intermediate_size), 1, 1 << 22, 0}, \
    {"feed_forward_length", LLM_GGUF_KEY_OWN, 0, 0, 0, 0}, \
    {"attention.head_count", LLM_GGUF_KEY_OWN, 0, 0, 0, 0}, \
    {"attention.head_count_kv", LLM_GGUF_KEY_OWN, 0, 0, 0, 0}, \
    {"attention.key_length", LLM_GGUF_KEY_OWN, 0, 0, 0, 0}, \
    {"attention.value_length", LLM_GGUF_KEY_OWN, 0, 0, 0, 0}

static const struct llm_gguf_key mamba_gguf[] = {
    GGUF_KEYS, {"ssm.time_step_rank", LLM_GGUF_KEY_WHOLE, LLM_AT(time_step_rank), 1, 1 << 20, 0}, {NULL, 0, 0, 0, 0, 0}};
static const struct llm_gguf_key mamba2_gguf[] = {
    GGUF_KEYS, {"ssm.time_step_rank", LLM_GGUF_KEY_WHOLE, LLM_AT(ssm_heads), 1, 1 << 16, 1},
    {"ssm.group_count", LLM_GGUF_KEY_WHOLE, LLM_AT(ssm_groups), 1, 1 << 14, 1}, {NULL, 0, 0, 0, 0, 0}};

/* Computes the widths that follow from other keys. */
static int gguf_get(struct llm_config *c, const struct llm_gguf *g, struct llm_err *e)
{
    bool norms = false;
    if (llm_gguf_bool(g, "mamba.ssm.dt_b_c_rms", &norms, e) < 0) return -1;
    if (norms) return llm_fail(e, EX_UNAVAILABLE, "mamba.ssm.dt_b_c_rms: norms of time steps and states are not supported");
    if (c->intermediate_size < 1) return llm_fail(e, EX_DATAERR, "ssm.inner_size: expected at least 1, found none");
    c->ssm_expand = (double)c->intermediate_size / (double)c->hidden_size;
    if (c->mixer == LLM_MIXER_MAMBA2) c->ssm_head_dim = c->intermediate_size / c->ssm_heads;
    c->num_attention_heads = c->num_key_value_heads = c->head_dim = 1;
    return 0;
}

static void gguf_put(struct llm_gguf_out *o, const struct llm_config *c, bool kv_b_whole)
{
    (void)kv_b_whole;
    bool second = c->mixer == LLM_MIXER_MAMBA2;
    llm_gguf_put_u32(o, second ? "mamba2.feed_forward_length" : "mamba.feed_forward_length", 0);
    llm_gguf_put_u32(o, second ? "mamba2.attention.head_count" : "mamba.attention.head_count", 0);
}

/* Keys that are ignored: initialisation of time steps and weights, values that follow from other keys, and choices between equal computations. */
#define OTHER_KEYS \
    {"time_step_rank", "read"}, {"intermediate_size", "read"}, {"time_step_scale", "*"}, {"time_step_init_scheme", "*"}, \
    {"rescale_prenorm_residual", "*"}, {"use_mambapy", "*"}, {"use_associative_scan", "*"}, {"residual_in_fp32", "*"}, {"rms_norm", "[true]"}, \
    {"ssm_cfg", "*"}, {"d_model", "*"}, {"d_inner", "*"}, {"n_layer", "*"}, {"pad_vocab_size_multiple", "*"}, {"norm_before_gate", "*"}, \
    {"chunk_size", "*"}, {"num_attention_heads", "*"}, {"num_key_value_heads", "*"}
static const struct llm_other_key mamba_others[] = {OTHER_KEYS, {NULL, NULL}};
static const struct llm_other_key mamba2_others[] = {OTHER_KEYS, {"time_step_limit", "read"}, {NULL, NULL}};
static const char *const ignored[] = {"embd_pdrop", "resid_pdrop", "logit_scale", NULL};

const struct llm_arch llm_arch_mamba = {
    .model_type = "mamba", .gguf = "mamba", .gguf_keys = mamba_gguf, .gguf_get = gguf_get, .gguf_put = gguf_put, .gguf_names = &gguf_names,
    .architecture = "MambaForCausalLM", .keys = mamba_keys, .other_keys = mamba_others, .ignored = ignored,
    .defaults = defaults, .finish = finish, .extra = extra,
    .names = NAMES([LLM_STEM_STATES] = "mixer.x_proj.weight", [LLM_STEM_TIME] = "mixer.dt_proj.weight",
                   [LLM_STEM_TIME_BIAS] = "mixer.dt_proj.bias"),
    .out_bias_apart = true, .declare = llm_decoder_declare,};
const struct llm_arch llm_arch_mamba2 = {
    .model_type = "mamba2", .gguf = "mamba2", .gguf_keys = mamba2_gguf, .gguf_get = gguf_get, .gguf_put = gguf_put, .gguf_names = &gguf_names,
    .architecture = "Mamba2ForCausalLM", .keys = mamba2_keys, .other_keys = mamba2_others, .ignored = ignored,
    .defaults = mamba2_defaults, .finish = mamba2_finish, .extra = mamba2_extra,
    .names = NAMES([LLM_STEM_TIME_BIAS] = "mixer.dt_bias", [LLM_STEM_GATED_NORM] = "mixer.norm.weight"),
    .out_bias_apart = true, .declare = llm_decoder_declare,};
