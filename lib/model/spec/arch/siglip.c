/* SigLIP (Zhai et al. 2023): a vision transformer without class token, whose patches a learned query pools, and an encoder of texts that are filled
 * with padding to one length; the last place is the text's vector. Whether a picture and a text belong together is a sigmoid of their own. Keys and
 * names are those of transformers' SiglipModel. */
#include "model/spec/arch/keys.h"

static const struct llm_config_key keys[] = {
    LLM_KEYS_TEXT_TOWER,
    {"text_config.pad_token_id", LLM_KEY_TOKEN, LLM_AT(text_padding), 0, 0, NULL, LLM_KEY_HF},
    {"text_config.projection_size", LLM_KEY_LENGTH, LLM_AT(projection_dim), 0, 1 << 20, NULL, LLM_KEY_HF},
    {"initializer_range", LLM_KEY_REAL, LLM_AT(initializer_range), 0, 100, NULL, LLM_KEY_OURS},
    LLM_KEYS_VISION,
    LLM_KEY_END,
};

static void defaults(struct llm_config *c)
{
    c->vocab_size = 32000;
    c->hidden_size = 768;
    c->intermediate_size = 3072;
    c->num_hidden_layers = c->num_attention_heads = 12;
    c->max_position_embeddings = 64;
    c->text_padding = 1;
    c->vision = (struct llm_vision){.hidden_size = 768, .intermediate_size = 3072, .num_hidden_layers = 12, .num_attention_heads = 12,
                                    .image_size = 224, .patch_size = 16, .num_channels = 3, .act = LLM_ACT_GELU_TANH, .norm_eps = 1e-6,
                                    .patches_only = true, .attention_pooling = true};
    c->norm = LLM_NORM_LAYER;
    c->norm_eps = 1e-6;
    c->position = LLM_POSITION_LEARNED;
    c->act = LLM_ACT_GELU_TANH;
    c->attention_bias = c->mlp_bias = c->norm_bias = c->projection_bias = c->bidirectional = true;
    c->contrastive = c->sigmoid_loss = c->normalize_embeddings = true;
    c->logit_scale_init = 2.302585; /* log 10, as the paper begins */
    c->pooling = LLM_POOL_LAST;
}

static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    c->num_key_value_heads = c->num_attention_heads;
    if (c->projection_dim == 0) c->projection_dim = c->hidden_size;
    if (c->projection_dim != c->vision.hidden_size) {
        return llm_fail(e, EX_DATAERR, "text_config.projection_size: expected %lld (vision_config.hidden_size), found %lld",
                        (long long)c->vision.hidden_size, (long long)c->projection_dim);
    }
    if (c->text_padding >= c->vocab_size) {
        return llm_fail(e, EX_DATAERR, "text_config.pad_token_id: expected below %lld (vocab_size), found %lld", (long long)c->vocab_size,
                        (long long)c->text_padding);
    }
    return llm_vision_check(&c->vision, e) < 0 ? -1 : llm_decoder_finish(c, o, e);
}

static const struct llm_names vision = {
    .prefix = "vision_model.", .embed = "", .patches = "embeddings.patch_embedding", .positions = "embeddings.position_embedding",
    .layer = "encoder.layers.", .final_norm = "post_layernorm",
    .probe = {"head.probe", "head.attention.in_proj_weight", "head.attention.in_proj_bias", "head.attention.out_proj", "head.layernorm",
              "head.mlp.fc1", "head.mlp.fc2"},
    .stem = LLM_STEMS_CLIP};

/* Lists of position ids, which are constant. */
static const char *const unused[] = {"text_model.embeddings.position_ids", "vision_model.embeddings.position_ids", NULL};

static const char *const sections[] = {"text_config", "vision_config", NULL};

static const struct llm_other_key others[] = {
    {"initializer_factor", "*"}, {"vision_config.vision_use_head", "[true]"}, {"text_config.bos_token_id", "*"}, {"text_config.eos_token_id", "*"},
    {"text_config.initializer_range", "*"}, {"text_config.initializer_factor", "*"}, {"vision_config.initializer_range", "*"},
    {"vision_config.initializer_factor", "*"}, {"text_config.tie_word_embeddings", "*"}, {"vision_config.tie_word_embeddings", "*"},
    {"tie_word_embeddings", "*"}, {NULL, NULL}};

const struct llm_arch llm_arch_siglip = {
    .model_type = "siglip",
    .architecture = "SiglipModel",
    .keys = keys,
    .other_keys = others,
    .sections = sections,
    .defaults = defaults,
    .finish = finish,
    .extra = llm_decoder_extra,
    .names = {.prefix = "text_model.", .embed = "embeddings.token_embedding", .positions = "embeddings.position_embedding",
              .layer = "encoder.layers.", .final_norm = "final_layer_norm", .head = "lm_head", .projection = "text_model.head", .vision = &vision,
              .stem = LLM_STEMS_CLIP},
    .unused = unused,
    .declare = llm_decoder_declare,
};
