/* DINOv3's ViT (Simeoni et al. 2025): registers, factors after each sub-layer, keys without biases, and rotary positions of two dimensions for
 * patches. Keys and names are those of transformers' DINOv3ViTModel, which has no classifier: ours reads the class token, as ViT's does. The random
 * changes of positions in training (pos_embed_*) are left out. */
#include "model/spec/arch/keys.h"

static const struct llm_config_key keys[] = {
    LLM_KEYS_VIT,
    {"intermediate_size", LLM_KEY_INT, LLM_AT(intermediate_size), 1, 1 << 22, NULL, LLM_KEY_HF},
    {"attention_dropout", LLM_KEY_REAL, LLM_AT(attn_pdrop), 0, .999, NULL, LLM_KEY_HF},
    {"rope_theta", LLM_KEY_REAL, LLM_AT(rope_theta), 1, 1e12, NULL, LLM_KEY_HF},
    {"query_bias", LLM_KEY_BOOL, LLM_AT(attention_bias), 0, 0, NULL, LLM_KEY_HF},
    {"proj_bias", LLM_KEY_BOOL, LLM_AT(attention_out_bias), 0, 0, NULL, LLM_KEY_HF},
    {"mlp_bias", LLM_KEY_BOOL, LLM_AT(mlp_bias), 0, 0, NULL, LLM_KEY_HF},
    {"use_gated_mlp", LLM_KEY_BOOL, LLM_AT(gated), 0, 0, NULL, LLM_KEY_HF},
    {"layerscale_value", LLM_KEY_REAL, LLM_AT(layer_scale_init), -1e6, 1e6, NULL, LLM_KEY_HF},
    {"num_register_tokens", LLM_KEY_INT, LLM_AT(num_registers), 0, 1 << 16, NULL, LLM_KEY_HF},
    LLM_KEY_END,
};

static void defaults(struct llm_config *c)
{
    llm_vit_defaults(c);
    c->hidden_size = 384;
    c->intermediate_size = 1536;
    c->num_attention_heads = 6;
    c->norm_eps = 1e-5;
    c->position = LLM_POSITION_ROPE;
    c->rope_theta = 100;
    c->layer_scale = c->no_key_bias = true;
    c->layer_scale_init = 1;
}

static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    const int64_t width = c->hidden_size / c->num_attention_heads;
    if (width % 4 != 0)
        return llm_fail(e, EX_DATAERR, "hidden_size / num_attention_heads: expected a multiple of 4 (channels of rows and columns), found %lld",
                        (long long)width);
    const json_t *values = json_object_get(o, "value_bias");
    if (json_is_boolean(values) && json_is_true(values) != c->attention_bias)
        return llm_fail(e, EX_DATAERR, "value_bias: expected %s (query_bias), found %s", c->attention_bias ? "true" : "false",
                        c->attention_bias ? "false" : "true");
    return llm_vit_finish(c, o, e);
}

static int extra(const struct llm_config *c, json_t *o)
{
    return json_object_set_new(o, "value_bias", json_boolean(c->attention_bias)) < 0 ? -1 : llm_decoder_extra(c, o);
}

static const struct llm_other_key others[] = {
    {"key_bias", "[false]"}, {"value_bias", "read"}, {"pos_embed_shift", "*"}, {"pos_embed_jitter", "*"}, {"pos_embed_rescale", "*"},
    {"drop_path_rate", "[0]"}, {"apply_layernorm", "*"}, {"reshape_hidden_states", "*"}, {"out_features", "*"}, {"out_indices", "*"},
    {"stage_names", "*"}, {"return_class_token", "*"}, {NULL, NULL}};

/* The token of masked patches, which only training on them needs. Without registers files have an empty tensor of them. */
static const char *const unused[] = {"embeddings.mask_token", "embeddings.register_tokens", NULL};

const struct llm_arch llm_arch_dinov3_vit = {
    .model_type = "dinov3_vit",
    .architecture = "DINOv3ViTModel",
    .keys = keys,
    .other_keys = others,
    .defaults = defaults,
    .finish = finish,
    .extra = extra,
    .names = {.prefix = "", .embed = "embeddings.cls_token", .registers = "embeddings.register_tokens", .patches = "embeddings.patch_embeddings",
              .layer = "layer.", .final_norm = "norm", .head = "head",
              .stem = {[LLM_STEM_Q] = "attention.q_proj", [LLM_STEM_K] = "attention.k_proj", [LLM_STEM_V] = "attention.v_proj",
                       [LLM_STEM_OUT] = "attention.o_proj", [LLM_STEM_NORM_1] = "norm1", [LLM_STEM_NORM_2] = "norm2",
                       [LLM_STEM_GATE] = "mlp.gate_proj", [LLM_STEM_UP] = "mlp.up_proj", [LLM_STEM_DOWN] = "mlp.down_proj",
                       [LLM_STEM_POST_1] = "layer_scale1.lambda1", [LLM_STEM_POST_2] = "layer_scale2.lambda1"}},
    .unused = unused,
    .out_bias_apart = true,
    .declare = llm_decoder_declare,
};
