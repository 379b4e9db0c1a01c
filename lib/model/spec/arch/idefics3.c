/* Idefics 3 (Laurencon et al. 2024) and SmolVLM (Marafioti et al. 2025), which is the same: a Llama that reads pictures as tiles and as a whole. The
 * states of SigLIP's vision tower pass through one matrix, those of a square of patches side by side (pixel shuffle). Tokens of the text say where
 * each tile lies (llm_picture_text). Keys and names are those of transformers' Idefics3ForConditionalGeneration.
 * A patch's position is its own. transformers finds it by comparing fractions in single precision, which is the same for the sides of towers that
 * were published (26, 27, 32), and one less for some patches of others (25, 31). */
#include <string.h>
#include "model/spec/arch/keys.h"

static const struct llm_config_key keys[] = {
    LLM_KEYS_LLAMA_IN("text_config."),
    {"text_config.attention_bias", LLM_KEY_BOOL, LLM_AT(attention_bias), 0, 0, NULL, LLM_KEY_HF},
    {"text_config.mlp_bias", LLM_KEY_BOOL, LLM_AT(mlp_bias), 0, 0, NULL, LLM_KEY_HF},
    LLM_KEYS_VISION,
    {"tie_word_embeddings", LLM_KEY_BOOL, LLM_AT(tie_word_embeddings), 0, 0, NULL, LLM_KEY_HF},
    {"image_token_id", LLM_KEY_INT, LLM_AT(projector.image_token), 0, INT32_MAX, NULL, LLM_KEY_HF},
    {"scale_factor", LLM_KEY_INT, LLM_AT(projector.shuffle), 1, 64, NULL, LLM_KEY_HF},
    LLM_KEY_END,
};

static void defaults(struct llm_config *c)
{
    llm_llama_defaults(c);
    c->norm_eps = 1e-5;
    c->vision = (struct llm_vision){.hidden_size = 1152, .intermediate_size = 3072, .num_hidden_layers = 12, .num_attention_heads = 16,
                                    .image_size = 224, .patch_size = 32, .num_channels = 3, .act = LLM_ACT_GELU_TANH, .norm_eps = 1e-6,
                                    .patches_only = true};
    c->projector = (struct llm_projector){.image_token = 128257, .feature_layer = -1, .shuffle = 2};
}

static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    static const char *const towers[] = {"idefics3_vision", "idefics3", "smolvlm_vision", "smolvlm"};
    const char *tower = json_string_value(json_object_get(o, "vision_config.model_type"));
    const int64_t across = c->vision.image_size / c->vision.patch_size;
    bool known = !tower;
    for (size_t i = 0; i < sizeof towers / sizeof *towers && tower; i++) known |= strcmp(tower, towers[i]) == 0;
    if (!known) return llm_fail(e, EX_UNAVAILABLE, "vision_config.model_type: expected %s, found %s", towers[0], tower);
    if (llm_section_check(o, "text_config.model_type", "llama", e) < 0 || llm_projecting_finish(c, o, e) < 0) return -1;
    if (across % c->projector.shuffle == 0 && across > 0) return 0;
    return llm_fail(e, EX_DATAERR, "scale_factor: expected a divisor of %lld (vision_config.image_size / patch_size), found %lld", (long long)across,
                    (long long)c->projector.shuffle);
}

static int extra(const struct llm_config *c, json_t *o)
{
    json_t *text = json_object_get(o, "text_config"), *vision = json_object_get(o, "vision_config");
    const bool smol = strcmp(c->model_type, "smolvlm") == 0;
    int failed = json_object_set_new(text, "model_type", json_string("llama"));
    failed |= json_object_set_new(vision, "model_type", json_string(smol ? "smolvlm_vision" : "idefics3_vision"));
    return failed | llm_decoder_extra(c, text) ? -1 : 0;
}

/* Older files say only in text_config whether the head is the embeddings, and some say it wrongly. */
static void in_files(struct llm_config *c, const struct llm_model_files *files)
{
    struct llm_checkpoint *file;
    if (llm_model_files_find(files, "model.text_model.embed_tokens.weight", &file))
        c->tie_word_embeddings = !llm_model_files_find(files, "lm_head.weight", &file);
}

static const struct llm_names vision = {
    .prefix = "model.vision_model.", .embed = "", .patches = "embeddings.patch_embedding", .positions = "embeddings.position_embedding",
    .layer = "encoder.layers.", .final_norm = "post_layernorm", .projector = {"model.connector.modality_projection.proj", NULL},
    .stem = LLM_STEMS_CLIP};

static const char *const sections[] = {"text_config", "vision_config", NULL};

/* What these say follows from other keys, or concerns parts that the models do not have. */
static const struct llm_other_key others[] = {
    {"vocab_size", "*"}, {"_pad_token_id", "*"}, {"use_reentrant_checkpointing", "*"},
    {"text_config.perceiver_config", "*"}, {"text_config.pixel_shuffle_factor", "*"},
    {"text_config.qk_layer_norms", "[false]"}, {"text_config.use_resampler", "[false]"}, {"text_config.neftune_noise_alpha", "*"},
    {"vision_config.max_image_size", "*"}, {"vision_config.size", "*"}, {"vision_config.use_base_siglip", "*"},
    {"vision_config.initializer_range", "*"}, {"vision_config.tie_word_embeddings", "*"}, {NULL, NULL}};

#define IDEFICS3 \
    .keys = keys, .other_keys = others, .sections = sections, .defaults = defaults, .finish = finish, .extra = extra, .in_files = in_files, \
    .declare = llm_decoder_declare, \
    .names = {.prefix = "model.text_model.", .embed = "embed_tokens", .layer = "layers.", .final_norm = "norm", .head = "lm_head", \
              .vision = &vision, .stem = LLM_STEMS_LLAMA}

const struct llm_arch llm_arch_idefics3 = {.model_type = "idefics3", .architecture = "Idefics3ForConditionalGeneration", IDEFICS3};
const struct llm_arch llm_arch_smolvlm = {.model_type = "smolvlm", .architecture = "SmolVLMForConditionalGeneration", IDEFICS3};
