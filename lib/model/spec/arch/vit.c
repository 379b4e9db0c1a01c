/* ViT (Dosovitskiy et al. 2021): an encoder of a picture's patches behind a class token, with learned positions and LayerNorm before each sub-layer.
 * Keys and names are those of transformers' ViTForImageClassification, which is also the class of DeiT's files without distillation. */
#include "model/spec/arch/keys.h"

#include <string.h>

static const struct llm_config_key keys[] = {
    {"hidden_size", LLM_KEY_INT, LLM_AT(hidden_size), 1, 1 << 20, NULL, LLM_KEY_HF},
    {"num_hidden_layers", LLM_KEY_INT, LLM_AT(num_hidden_layers), 1, LLM_MAX_LAYERS, NULL, LLM_KEY_HF},
    {"num_attention_heads", LLM_KEY_INT, LLM_AT(num_attention_heads), 1, 1 << 14, NULL, LLM_KEY_HF},
    {"intermediate_size", LLM_KEY_INT, LLM_AT(intermediate_size), 1, 1 << 22, NULL, LLM_KEY_HF},
    {"hidden_act", LLM_KEY_ACT, LLM_AT(act), 0, 0, NULL, LLM_KEY_HF},
    {"hidden_dropout_prob", LLM_KEY_REAL, LLM_AT(resid_pdrop), 0, .999, NULL, LLM_KEY_HF},
    {"attention_probs_dropout_prob", LLM_KEY_REAL, LLM_AT(attn_pdrop), 0, .999, NULL, LLM_KEY_HF},
    {"initializer_range", LLM_KEY_REAL, LLM_AT(initializer_range), 0, 100, NULL, LLM_KEY_HF},
    {"layer_norm_eps", LLM_KEY_REAL, LLM_AT(norm_eps), 0, 1, NULL, LLM_KEY_HF},
    {"image_size", LLM_KEY_INT, LLM_AT(image_size), 1, 1 << 14, NULL, LLM_KEY_HF},
    {"patch_size", LLM_KEY_INT, LLM_AT(patch_size), 1, 1 << 10, NULL, LLM_KEY_HF},
    {"num_channels", LLM_KEY_INT, LLM_AT(num_channels), 1, 64, NULL, LLM_KEY_HF},
    {"qkv_bias", LLM_KEY_BOOL, LLM_AT(attention_bias), 0, 0, NULL, LLM_KEY_HF},
    LLM_KEY_END,
};

static void defaults(struct llm_config *c)
{
    c->hidden_size = 768;
    c->num_hidden_layers = c->num_attention_heads = 12;
    c->intermediate_size = 3072;
    c->image_size = 224;
    c->patch_size = 16;
    c->num_channels = 3;
    c->norm = LLM_NORM_LAYER;
    c->norm_eps = 1e-12;
    c->position = LLM_POSITION_LEARNED;
    c->act = LLM_ACT_GELU;
    c->bidirectional = true;
    c->attention_bias = c->attention_out_bias = c->mlp_bias = c->norm_bias = true;
    c->pooling = LLM_POOL_CLS;
}

static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    if (c->patch_size > c->image_size)
        return llm_fail(e, EX_DATAERR, "patch_size: expected at most %lld (image_size), found %lld", (long long)c->image_size,
                        (long long)c->patch_size);
    if (llm_config_patches(c) > 1 << 20) return llm_fail(e, EX_DATAERR, "image_size: more than %d patches", 1 << 20);
    c->vocab_size = 1; /* the class token */
    c->max_position_embeddings = llm_config_patches(c) + 1;
    c->num_key_value_heads = c->num_attention_heads;
    c->embd_pdrop = c->resid_pdrop;
    return llm_decoder_finish(c, o, e);
}

/* The pooler of ViTModel, which its classifier does not use. */
static const char *const unused[] = {"vit.pooler.", "pooler.", NULL};

static const struct llm_other_key others[] = {
    {"encoder_stride", "*"}, {"pooler_output_size", "*"}, {"pooler_act", "*"}, {"num_key_value_heads", "*"}, {"vocab_size", "*"},
    {"max_position_embeddings", "*"}, {"bos_token_id", "*"}, {"eos_token_id", "*"}, {NULL, NULL}};

const struct llm_arch llm_arch_vit = {
    .model_type = "vit",
    .architecture = "ViTForImageClassification",
    .keys = keys,
    .other_keys = others,
    .defaults = defaults,
    .finish = finish,
    .extra = llm_decoder_extra,
    .names = {.prefix = "vit.", .embed = "embeddings.cls_token", .patches = "embeddings.patch_embeddings.projection",
              .positions = "embeddings.position_embeddings", .layer = "encoder.layer.", .final_norm = "layernorm", .head = "head",
              .stem = {[LLM_STEM_Q] = "attention.attention.query", [LLM_STEM_K] = "attention.attention.key",
                       [LLM_STEM_V] = "attention.attention.value", [LLM_STEM_OUT] = "attention.output.dense",
                       [LLM_STEM_NORM_1] = "layernorm_before", [LLM_STEM_UP] = "intermediate.dense", [LLM_STEM_DOWN] = "output.dense",
                       [LLM_STEM_NORM_2] = "layernorm_after"}},
    .unused = unused,
    .out_bias_apart = true,
    .declare = llm_decoder_declare,
};
