/* CLIP (Radford et al. 2021): two towers, a vision transformer and a causal decoder of texts. The state of a picture's class token and that of a
 * text's end token are projected to vectors of one width, which are compared. Keys and names are those of transformers' CLIPModel. */
#include "model/spec/arch/keys.h"

static const struct llm_config_key keys[] = {
    LLM_KEYS_TEXT_TOWER,
    {"text_config.initializer_range", LLM_KEY_REAL, LLM_AT(initializer_range), 0, 100, NULL, LLM_KEY_HF},
    {"text_config.bos_token_id", LLM_KEY_TOKEN, LLM_AT(bos_token_id), 0, 0, NULL, LLM_KEY_HF},
    {"text_config.eos_token_id", LLM_KEY_TOKEN, LLM_AT(eos_token_id), 0, 0, NULL, LLM_KEY_HF},
    LLM_KEYS_VISION,
    {"projection_dim", LLM_KEY_INT, LLM_AT(projection_dim), 1, 1 << 20, NULL, LLM_KEY_HF},
    LLM_KEY_END,
};

static void defaults(struct llm_config *c)
{
    c->vocab_size = 49408;
    c->hidden_size = c->projection_dim = 512;
    c->intermediate_size = 2048;
    c->num_hidden_layers = 12;
    c->num_attention_heads = 8;
    c->max_position_embeddings = 77;
    c->bos_token_id = 49406;
    c->eos_token_id = 49407;
    c->vision = (struct llm_vision)LLM_VISION_CLIP;
    c->norm = LLM_NORM_LAYER;
    c->norm_eps = 1e-5;
    c->position = LLM_POSITION_LEARNED;
    c->act = LLM_ACT_QUICK_GELU;
    c->attention_bias = c->mlp_bias = c->norm_bias = true;
    c->contrastive = c->normalize_embeddings = true;
    c->pooling = LLM_POOL_EOS;
}

int llm_vision_check(const struct llm_vision *v, struct llm_err *e)
{
    if (v->patch_size > v->image_size) {
        return llm_fail(e, EX_DATAERR, "vision_config.patch_size: expected at most %lld (image_size), found %lld", (long long)v->image_size,
                        (long long)v->patch_size);
    }
    if ((v->image_size / v->patch_size) * (v->image_size / v->patch_size) > 1 << 20)
        return llm_fail(e, EX_DATAERR, "vision_config.image_size: more than %d patches", 1 << 20);
    if (v->hidden_size % v->num_attention_heads == 0) return 0;
    return llm_fail(e, EX_DATAERR, "vision_config.hidden_size: expected a multiple of num_attention_heads (%lld), found %lld",
                    (long long)v->num_attention_heads, (long long)v->hidden_size);
}

static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    c->num_key_value_heads = c->num_attention_heads;
    c->contrastive = true;
    return llm_vision_check(&c->vision, e) < 0 ? -1 : llm_decoder_finish(c, o, e);
}

static const struct llm_names vision = {
    .prefix = "vision_model.", .embed = "embeddings.class_embedding", .patches = "embeddings.patch_embedding",
    .positions = "embeddings.position_embedding", .embed_norm = "pre_layrnorm", .layer = "encoder.layers.", .final_norm = "post_layernorm",
    .projection = "visual_projection", .stem = LLM_STEMS_CLIP};

/* Lists of position ids, which are constant. */
static const char *const unused[] = {"text_model.embeddings.position_ids", "vision_model.embeddings.position_ids", NULL};

static const char *const sections[] = {"text_config", "vision_config", NULL};

static const struct llm_other_key others[] = {
    {"initializer_factor", "*"}, {"text_config.initializer_factor", "*"}, {"vision_config.initializer_factor", "*"},
    {"vision_config.initializer_range", "*"}, {"text_config.projection_dim", "*"}, {"vision_config.projection_dim", "*"},
    {"text_config.dropout", "[0]"}, {"vision_config.dropout", "[0]"}, {"vision_config.bos_token_id", "*"}, {"vision_config.eos_token_id", "*"},
    {"decoder_start_token_id", "*"}, {"text_config.decoder_start_token_id", "*"}, {"vision_config.decoder_start_token_id", "*"},
    {"text_config.tie_word_embeddings", "*"}, {"vision_config.tie_word_embeddings", "*"}, {"tie_word_embeddings", "*"}, {NULL, NULL}};

const struct llm_arch llm_arch_clip = {
    .model_type = "clip",
    .architecture = "CLIPModel",
    .keys = keys,
    .other_keys = others,
    .sections = sections,
    .defaults = defaults,
    .finish = finish,
    .extra = llm_decoder_extra,
    .names = {.prefix = "text_model.", .embed = "embeddings.token_embedding", .positions = "embeddings.position_embedding",
              .layer = "encoder.layers.", .final_norm = "final_layer_norm", .head = "head", .projection = "text_projection", .vision = &vision,
              .stem = LLM_STEMS_CLIP},
    .unused = unused,
    .declare = llm_decoder_declare,
};
