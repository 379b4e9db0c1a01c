/* ViT (Dosovitskiy et al. 2021): an encoder of a picture's patches behind a class token, with learned positions and LayerNorm before each sub-layer.
 * DeiT (Touvron et al. 2021) has a second token, of distillation, and a classifier of the class token alone or of each of the two. Keys and names are
 * those of transformers' ViTForImageClassification and DeiTForImageClassification. */
#include "model/spec/arch/keys.h"

#include <string.h>

/* Those of both. */
#define KEYS \
    LLM_KEYS_VIT, \
    {"intermediate_size", LLM_KEY_INT, LLM_AT(intermediate_size), 1, 1 << 22, NULL, LLM_KEY_HF}, \
    {"hidden_dropout_prob", LLM_KEY_REAL, LLM_AT(resid_pdrop), 0, .999, NULL, LLM_KEY_HF}, \
    {"attention_probs_dropout_prob", LLM_KEY_REAL, LLM_AT(attn_pdrop), 0, .999, NULL, LLM_KEY_HF}, \
    {"qkv_bias", LLM_KEY_BOOL, LLM_AT(attention_bias), 0, 0, NULL, LLM_KEY_HF}

static const struct llm_config_key keys[] = {
    KEYS,
    LLM_KEY_END,
};

static const char *const class_words[] = {"token", "token_and_mean", "two_tokens", NULL};
static const struct llm_config_key deit_keys[] = {
    KEYS,
    {"class_vector", LLM_KEY_WORD, LLM_AT(class_vector), 0, 0, class_words, LLM_KEY_OURS},
    LLM_KEY_END,
};

void llm_vit_defaults(struct llm_config *c)
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

static void deit_defaults(struct llm_config *c)
{
    llm_vit_defaults(c);
    c->num_registers = 1;
}

int llm_vit_finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    if (c->patch_size > c->image_size)
        return llm_fail(e, EX_DATAERR, "patch_size: expected at most %lld (image_size), found %lld", (long long)c->image_size,
                        (long long)c->patch_size);
    if (llm_config_patches(c) > 1 << 20) return llm_fail(e, EX_DATAERR, "image_size: more than %d patches", 1 << 20);
    c->vocab_size = 1; /* the class token */
    c->max_position_embeddings = llm_config_picture_tokens(c) - (c->bare_registers ? c->num_registers : 0);
    c->num_key_value_heads = c->num_attention_heads;
    c->embd_pdrop = c->resid_pdrop;
    return llm_decoder_finish(c, o, e);
}

static int deit_finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    const char *architecture = json_string_value(json_array_get(json_object_get(o, "architectures"), 0));
    if (architecture && strstr(architecture, "WithTeacher")) c->class_vector = LLM_CLASSES_OF_TWO_TOKENS;
    if (c->class_vector != LLM_CLASSES_OF_TOKEN_AND_MEAN) return llm_vit_finish(c, o, e);
    return llm_fail(e, EX_DATAERR, "class_vector: expected token or two_tokens, found token_and_mean");
}

/* The pooler of ViTModel, which its classifier does not use, and the token of masked patches. */
static const char *const unused[] = {"vit.pooler.", "pooler.", "vit.embeddings.mask_token", "embeddings.mask_token", NULL};
static const char *const deit_unused[] = {"deit.pooler.", "pooler.", "deit.embeddings.mask_token", "embeddings.mask_token", NULL};

static const struct llm_other_key others[] = {
    {"encoder_stride", "*"}, {"pooler_output_size", "*"}, {"pooler_act", "*"}, {"num_key_value_heads", "*"}, {"vocab_size", "*"},
    {"max_position_embeddings", "*"}, {"bos_token_id", "*"}, {"eos_token_id", "*"}, {NULL, NULL}};

#define STEMS \
    {[LLM_STEM_Q] = "attention.attention.query", [LLM_STEM_K] = "attention.attention.key", [LLM_STEM_V] = "attention.attention.value", \
     [LLM_STEM_OUT] = "attention.output.dense", [LLM_STEM_NORM_1] = "layernorm_before", [LLM_STEM_UP] = "intermediate.dense", \
     [LLM_STEM_DOWN] = "output.dense", [LLM_STEM_NORM_2] = "layernorm_after"}

const struct llm_arch llm_arch_vit = {
    .model_type = "vit",
    .architecture = "ViTForImageClassification",
    .keys = keys,
    .other_keys = others,
    .defaults = llm_vit_defaults,
    .finish = llm_vit_finish,
    .extra = llm_decoder_extra,
    .names = {.prefix = "vit.", .embed = "embeddings.cls_token", .patches = "embeddings.patch_embeddings.projection",
              .positions = "embeddings.position_embeddings", .layer = "encoder.layer.", .final_norm = "layernorm", .head = "head",
              .stem = STEMS},
    .unused = unused,
    .out_bias_apart = true,
    .declare = llm_decoder_declare,
};

const struct llm_arch llm_arch_deit = {
    .model_type = "deit",
    .architecture = "DeiTForImageClassification",
    .keys = deit_keys,
    .other_keys = others,
    .defaults = deit_defaults,
    .finish = deit_finish,
    .extra = llm_decoder_extra,
    .names = {.prefix = "deit.", .embed = "embeddings.cls_token", .registers = "embeddings.distillation_token",
              .patches = "embeddings.patch_embeddings.projection", .positions = "embeddings.position_embeddings", .layer = "encoder.layer.",
              .final_norm = "layernorm", .head = "head", .two_classes = {"cls_classifier", "distillation_classifier"}, .stem = STEMS},
    .unused = deit_unused,
    .out_bias_apart = true,
    .declare = llm_decoder_declare,
};
