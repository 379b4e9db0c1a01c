/* LLaVA 1.5 (Liu et al. 2023): a language model that reads pictures. The states of the patches after one layer of CLIP's vision tower, or of
 * SigLIP's, pass through a projector of two matrices; its outputs stand for the embeddings of placeholder tokens. LLaVA-NeXT (Liu et al. 2024)
 * reads larger pictures as tiles beside the whole (model/config/picture.h). Keys and names are those of transformers'
 * LlavaForConditionalGeneration and LlavaNextForConditionalGeneration. */
#include <stdio.h>
#include <string.h>
#include "model/spec/arch/keys.h"

static const char *const select_words[] = {"default", "full", NULL};

static const struct llm_config_key keys[] = {
    LLM_KEYS_LLAMA_IN("text_config."),
    {"text_config.attention_bias", LLM_KEY_BOOL, LLM_AT(attention_bias), 0, 0, NULL, LLM_KEY_HF},
    {"text_config.mlp_bias", LLM_KEY_BOOL, LLM_AT(mlp_bias), 0, 0, NULL, LLM_KEY_HF},
    {"text_config.sliding_window", LLM_KEY_LENGTH, LLM_AT(sliding_window), 0, 1 << 24, NULL, LLM_KEY_OURS},
    LLM_KEYS_VISION,
    {"image_token_index", LLM_KEY_INT, LLM_AT(projector.image_token), 0, INT32_MAX, NULL, LLM_KEY_HF},
    {"image_token_id", LLM_KEY_INT, LLM_AT(projector.image_token), 0, INT32_MAX, NULL, LLM_KEY_ALIAS},
    {"vision_feature_layer", LLM_KEY_INT, LLM_AT(projector.feature_layer), -LLM_MAX_LAYERS - 1, LLM_MAX_LAYERS, NULL, LLM_KEY_HF},
    {"vision_feature_select_strategy", LLM_KEY_WORD, LLM_AT(projector.select), 0, 0, select_words, LLM_KEY_HF},
    {"projector_hidden_act", LLM_KEY_ACT, LLM_AT(projector.act), 0, 0, NULL, LLM_KEY_HF},
    {"multimodal_projector_bias", LLM_KEY_BOOL, LLM_AT(projector.bias), 0, 0, NULL, LLM_KEY_HF},
    LLM_KEY_END,
};

static void defaults(struct llm_config *c)
{
    llm_llama_defaults(c);
    c->vision = (struct llm_vision)LLM_VISION_CLIP;
    c->projector = (struct llm_projector){.image_token = 32000, .feature_layer = -2, .act = LLM_ACT_GELU, .bias = true};
}

static void next_defaults(struct llm_config *c)
{
    static const int64_t grids[][2] = {{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}};
    defaults(c);
    c->vision.hidden_size = 1024;
    c->vision.intermediate_size = 4096;
    c->vision.num_hidden_layers = 24;
    c->vision.num_attention_heads = 16;
    c->vision.image_size = 336;
    c->vision.patch_size = 14;
    c->projector.n_grids = sizeof grids / sizeof *grids;
    memcpy(c->projector.grids, grids, sizeof grids);
}

int llm_section_check(const json_t *o, const char *key, const char *type, struct llm_err *e)
{
    const char *found = json_string_value(json_object_get(o, key));
    if (!found || strcmp(found, type) == 0) return 0;
    return llm_fail(e, EX_UNAVAILABLE, "%s: expected %s, found %s", key, type, found);
}

/* The members of the section "text_config" of a flat configuration, under their own names. NULL: out of memory. */
static json_t *text_section(const json_t *o)
{
    static const char prefix[] = "text_config.";
    const char *name;
    json_t *value, *text = json_object();
    json_object_foreach((json_t *)(uintptr_t)o, name, value) {
        if (text && strncmp(name, prefix, sizeof prefix - 1) == 0) json_object_set(text, name + sizeof prefix - 1, value);
    }
    return text;
}

/* Gives the keys of a section that the file does not have the defaults of the section's own family; tokens that it does not name stay unknown. */
static void section_defaults(struct llm_config *c, const json_t *o, const char *section, const char *family)
{
    const struct llm_config blank = llm_config_blank(llm_arch_find(family));
    static const size_t sizes[] = {[LLM_KEY_INT] = sizeof(int64_t), [LLM_KEY_LENGTH] = sizeof(int64_t), [LLM_KEY_REAL] = sizeof(double),
                                   [LLM_KEY_BOOL] = sizeof(bool), [LLM_KEY_ACT] = sizeof(enum llm_act), [LLM_KEY_SCALE] = 0};
    for (const struct llm_config_key *k = keys; k->name; k++) {
        if (strncmp(k->name, section, strlen(section)) != 0 || json_object_get(o, k->name)) continue;
        memcpy((char *)c + k->offset, (const char *)&blank + k->offset, sizes[k->type]);
    }
    if (!blank.use_sliding_window) c->sliding_window = 0;
}

/* The tower: CLIP's, or SigLIP's without its pooling. */
static int read_tower(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    const char *type = json_string_value(json_object_get(o, "vision_config.model_type"));
    if (!type || strcmp(type, "siglip_vision_model") != 0) return llm_section_check(o, "vision_config.model_type", "clip_vision_model", e);
    section_defaults(c, o, "vision_config.", "siglip");
    c->vision.patches_only = true;
    return 0;
}

/* The language model: a Llama, a Mistral, or a Qwen 2, whose queries, keys and values have biases. */
static int read_text(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    const char *type = json_string_value(json_object_get(o, "text_config.model_type"));
    const bool mistral = type && strcmp(type, "mistral") == 0, qwen = type && strcmp(type, "qwen2") == 0;
    if (mistral || qwen) section_defaults(c, o, "text_config.", type);
    if (qwen) c->attention_out_bias = false;
    if (mistral || qwen) return 0;
    if (llm_section_check(o, "text_config.model_type", "llama", e) < 0) return -1;
    return c->sliding_window == 0 ? 0 : llm_fail(e, EX_DATAERR, "text_config.sliding_window: expected none in a Llama, found %lld",
                                                 (long long)c->sliding_window);
}

static int read_grids(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    const json_t *list = json_object_get(o, "image_grid_pinpoints");
    struct llm_projector *p = &c->projector;
    if (list && !json_is_null(list)) {
        p->n_grids = (int64_t)json_array_size(list);
        if (p->n_grids < 1 || p->n_grids > LLM_MAX_GRIDS)
            return llm_fail(e, EX_DATAERR, "image_grid_pinpoints: expected 1 to %d pairs of numbers", LLM_MAX_GRIDS);
        for (int64_t i = 0; i < 2 * p->n_grids; i++)
            p->grids[i / 2][i % 2] = json_integer_value(json_array_get(json_array_get(list, (size_t)i / 2), (size_t)i % 2));
    }
    for (int64_t i = 0; i < p->n_grids; i++) {
        const int64_t *g = p->grids[i], side = c->vision.image_size;
        if (g[0] >= side && g[1] >= side && g[0] % side == 0 && g[1] % side == 0 && g[0] <= 1 << 14 && g[1] <= 1 << 14) continue;
        return llm_fail(e, EX_DATAERR, "image_grid_pinpoints: element %lld: expected a height and a width that are multiples of %lld "
                        "(vision_config.image_size) up to %d, found another", (long long)i, (long long)side, 1 << 14);
    }
    return 0;
}

int llm_projecting_finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    if (llm_vision_check(&c->vision, e) < 0) return -1;
    if (c->projector.image_token >= c->vocab_size) {
        return llm_fail(e, EX_DATAERR, "image_token_index: expected below %lld (vocab_size), found %lld", (long long)c->vocab_size,
                        (long long)c->projector.image_token);
    }
    json_t *text = text_section(o);
    int status = text ? llm_decoder_finish(c, text, e) : llm_no_memory(e, "configuration");
    json_decref(text);
    return status < 0 ? llm_in(e, "text_config") : 0;
}

static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    const int64_t asked = c->projector.feature_layer;
    if (read_tower(c, o, e) < 0 || read_text(c, o, e) < 0) return -1;
    const int64_t layers = c->vision.num_hidden_layers;
    if (llm_config_feature_layers(c) < 0 || llm_config_feature_layers(c) > layers) {
        return llm_fail(e, EX_DATAERR, "vision_feature_layer: expected %lld to %lld (a layer of the tower), found %lld", -(long long)layers - 1,
                        (long long)layers, (long long)asked);
    }
    return llm_projecting_finish(c, o, e);
}

/* Tiles are laid out by patches, so that all states of patches are needed, and no other. */
static int next_finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    if (finish(c, o, e) < 0 || read_grids(c, o, e) < 0) return -1;
    if ((c->projector.select == LLM_SELECT_ALL) == c->vision.patches_only) return 0;
    return llm_fail(e, EX_DATAERR, "vision_feature_select_strategy: expected %s, which is the states of all patches, found another",
                    select_words[c->vision.patches_only]);
}

static int extra(const struct llm_config *c, json_t *o)
{
    json_t *text = json_object_get(o, "text_config"), *vision = json_object_get(o, "vision_config"), *grids = json_array();
    const bool qwen = c->attention_bias && !c->attention_out_bias;
    int failed = json_object_set_new(text, "model_type", json_string(qwen ? "qwen2" : c->sliding_window > 0 ? "mistral" : "llama"));
    failed |= json_object_set_new(vision, "model_type", json_string(c->vision.patches_only ? "siglip_vision_model" : "clip_vision_model"));
    for (int64_t i = 0; i < c->projector.n_grids; i++) {
        failed |= json_array_append_new(grids, json_pack("[I,I]", (json_int_t)c->projector.grids[i][0], (json_int_t)c->projector.grids[i][1]));
    }
    if (c->projector.n_grids > 0) failed |= json_object_set(o, "image_grid_pinpoints", grids);
    json_decref(grids);
    return failed | llm_decoder_extra(c, text) ? -1 : 0;
}

static const struct llm_names vision = {
    .prefix = "vision_tower.vision_model.", .embed = "embeddings.class_embedding", .patches = "embeddings.patch_embedding",
    .positions = "embeddings.position_embedding", .embed_norm = "pre_layrnorm", .layer = "encoder.layers.", .final_norm = "post_layernorm",
    .projector = {"multi_modal_projector.linear_1", "multi_modal_projector.linear_2"},
    .newline = "image_newline", .stem = LLM_STEMS_CLIP};

static const struct llm_rename renamed[] = {
    {"language_model.model.", "model.language_model."}, {"language_model.lm_head.", "lm_head."},
    {"vision_tower.vision_model.", "model.vision_tower.vision_model."}, {"vision_tower.vision_model.", "model.vision_tower."},
    {"vision_tower.vision_model.", "vision_tower."}, {"multi_modal_projector.", "model.multi_modal_projector."},
    {"image_newline", "model.image_newline"}, {NULL, NULL}};

/* Lists of position ids, which are constant; what pools the states of SigLIP's tower. */
static const char *const unused[] = {"vision_tower.vision_model.embeddings.position_ids", "model.vision_tower.vision_model.embeddings.position_ids",
                                     "model.vision_tower.embeddings.position_ids", "vision_tower.embeddings.position_ids",
                                     "vision_tower.vision_model.head.", "model.vision_tower.vision_model.head.", "model.vision_tower.head.",
                                     "vision_tower.head.", NULL};

static const char *const sections[] = {"text_config", "vision_config", NULL};

/* The vocabulary's size is the language model's. "image_seq_length" follows from the tower. */
#define OTHERS \
    {"vocab_size", "*"}, {"image_seq_length", "*"}, {"ignore_index", "*"}, {"tie_word_embeddings", "*"}, \
    {"vision_config.initializer_factor", "*"}, {"vision_config.initializer_range", "*"}, {"vision_config.projection_dim", "*"}, \
    {"vision_config.dropout", "[0]"}, {"vision_config.vocab_size", "*"}, {"vision_config.bos_token_id", "*"}, {"vision_config.eos_token_id", "*"}, \
    {"vision_config.vision_use_head", "*"}, {"text_config.max_window_layers", "*"}, \
    {NULL, NULL}
static const struct llm_other_key others[] = {OTHERS};
static const struct llm_other_key next_others[] = {
    {"image_grid_pinpoints", "read"}, {"use_image_newline_parameter", "[true]"}, OTHERS};

#define LLAVA \
    .keys = keys, .sections = sections, .extra = extra, .renamed = renamed, .unused = unused, .declare = llm_decoder_declare, \
    .names = {.prefix = "language_model.model.", .embed = "embed_tokens", .layer = "layers.", .final_norm = "norm", \
              .head = "language_model.lm_head", .vision = &vision, .stem = LLM_STEMS_LLAMA}

const struct llm_arch llm_arch_llava = {
    .model_type = "llava",
    .architecture = "LlavaForConditionalGeneration",
    .other_keys = others,
    .defaults = defaults,
    .finish = finish,
    LLAVA,
};

const struct llm_arch llm_arch_llava_next = {
    .model_type = "llava_next",
    .architecture = "LlavaNextForConditionalGeneration",
    .other_keys = next_others,
    .defaults = next_defaults,
    .finish = next_finish,
    LLAVA,
};
