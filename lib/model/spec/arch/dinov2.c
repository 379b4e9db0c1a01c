/* DINOv2 (Oquab et al. 2023), and its models with registers (Darcet et al. 2023): ViT with learned factors after each sub-layer. Positions are not
 * added to registers. Classes are told by the class token and the mean of the patches. Keys and names are those of transformers'
 * Dinov2ForImageClassification and Dinov2WithRegistersForImageClassification. */
#include "model/spec/arch/keys.h"

#define KEYS \
    LLM_KEYS_VIT, \
    {"hidden_dropout_prob", LLM_KEY_REAL, LLM_AT(resid_pdrop), 0, .999, NULL, LLM_KEY_HF}, \
    {"attention_probs_dropout_prob", LLM_KEY_REAL, LLM_AT(attn_pdrop), 0, .999, NULL, LLM_KEY_HF}, \
    {"qkv_bias", LLM_KEY_BOOL, LLM_AT(attention_bias), 0, 0, NULL, LLM_KEY_HF}, \
    {"layerscale_value", LLM_KEY_REAL, LLM_AT(layer_scale_init), -1e6, 1e6, NULL, LLM_KEY_HF}, \
    {"mlp_ratio", LLM_KEY_INT, LLM_AT(mlp_ratio), 1, 1 << 10, NULL, LLM_KEY_HF}

static const struct llm_config_key keys[] = {KEYS, LLM_KEY_END};
static const struct llm_config_key registers_keys[] = {
    KEYS, {"num_register_tokens", LLM_KEY_INT, LLM_AT(num_registers), 0, 1 << 16, NULL, LLM_KEY_HF}, LLM_KEY_END};

static void defaults(struct llm_config *c)
{
    llm_vit_defaults(c);
    c->norm_eps = 1e-6;
    c->mlp_ratio = 4;
    c->layer_scale = c->bare_registers = true;
    c->layer_scale_init = 1;
    c->class_vector = LLM_CLASSES_OF_TOKEN_AND_MEAN;
}

static void registers_defaults(struct llm_config *c)
{
    defaults(c);
    c->num_registers = 4;
}

static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    c->intermediate_size = c->hidden_size * c->mlp_ratio;
    return llm_vit_finish(c, o, e);
}

static const struct llm_other_key others[] = {
    {"use_swiglu_ffn", "[false]"}, {"drop_path_rate", "[0]"}, {"apply_layernorm", "*"}, {"reshape_hidden_states", "*"}, {"out_features", "*"},
    {"out_indices", "*"}, {"stage_names", "*"}, {"use_mask_token", "*"}, {NULL, NULL}};

/* The token of masked patches, which only training on them needs. Without registers files have an empty tensor of them. */
static const char *const unused[] = {"dinov2.embeddings.mask_token", "dinov2_with_registers.embeddings.mask_token", "embeddings.mask_token",
                                     "dinov2_with_registers.embeddings.register_tokens", "embeddings.register_tokens", NULL};

#define NAMES(of) \
    {.prefix = of ".", .embed = "embeddings.cls_token", .registers = "embeddings.register_tokens", \
     .patches = "embeddings.patch_embeddings.projection", .positions = "embeddings.position_embeddings", .layer = "encoder.layer.", \
     .final_norm = "layernorm", .head = "head", \
     .stem = {[LLM_STEM_Q] = "attention.attention.query", [LLM_STEM_K] = "attention.attention.key", [LLM_STEM_V] = "attention.attention.value", \
              [LLM_STEM_OUT] = "attention.output.dense", [LLM_STEM_NORM_1] = "norm1", [LLM_STEM_NORM_2] = "norm2", [LLM_STEM_UP] = "mlp.fc1", \
              [LLM_STEM_DOWN] = "mlp.fc2", [LLM_STEM_POST_1] = "layer_scale1.lambda1", [LLM_STEM_POST_2] = "layer_scale2.lambda1"}}

const struct llm_arch llm_arch_dinov2 = {
    .model_type = "dinov2",
    .architecture = "Dinov2ForImageClassification",
    .keys = keys,
    .other_keys = others,
    .defaults = defaults,
    .finish = finish,
    .extra = llm_decoder_extra,
    .names = NAMES("dinov2"),
    .unused = unused,
    .out_bias_apart = true,
    .fits_positions = LLM_FIT_CUBIC,
    .declare = llm_decoder_declare,
};

const struct llm_arch llm_arch_dinov2_with_registers = {
    .model_type = "dinov2_with_registers",
    .architecture = "Dinov2WithRegistersForImageClassification",
    .keys = registers_keys,
    .other_keys = others,
    .defaults = registers_defaults,
    .finish = finish,
    .extra = llm_decoder_extra,
    .names = NAMES("dinov2_with_registers"),
    .unused = unused,
    .out_bias_apart = true,
    .fits_positions = LLM_FIT_ANTIALIASED,
    .declare = llm_decoder_declare,
};
