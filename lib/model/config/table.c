/* Families by name, the keys that all of them have, and the configuration before any key is read. */
#include <string.h>
#include "model/config/arch.h"

/* Keys of all families. */
static const char *const pooling_words[] = {"unset", "mean", "cls", "last", "eos", "other", NULL};
static const char *const norm_words[] = {"rms", "layer", "group", "batch", NULL};
const struct llm_config_key llm_config_common_keys[] = {
    {"norm", LLM_KEY_WORD, offsetof(struct llm_config, norm), 0, 0, norm_words, LLM_KEY_OURS},
    {"norm_groups", LLM_KEY_INT, offsetof(struct llm_config, norm_groups), 1, 1 << 20, NULL, LLM_KEY_OURS},
    {"pooling", LLM_KEY_WORD, offsetof(struct llm_config, pooling), 0, 0, pooling_words, LLM_KEY_OURS},
    {"num_labels", LLM_KEY_LENGTH, offsetof(struct llm_config, num_labels), 0, LLM_MAX_LABELS, NULL, LLM_KEY_OURS},
    {"contrastive", LLM_KEY_BOOL, offsetof(struct llm_config, contrastive), 0, 0, NULL, LLM_KEY_OURS},
    {"sigmoid_loss", LLM_KEY_BOOL, offsetof(struct llm_config, sigmoid_loss), 0, 0, NULL, LLM_KEY_OURS},
    {"fixed_logit_scale", LLM_KEY_BOOL, offsetof(struct llm_config, fixed_logit_scale), 0, 0, NULL, LLM_KEY_OURS},
    {"logit_scale_init_value", LLM_KEY_REAL, offsetof(struct llm_config, logit_scale_init), -10, 10, NULL, LLM_KEY_OURS},
    {"prefix_lm", LLM_KEY_BOOL, offsetof(struct llm_config, prefix_lm), 0, 0, NULL, LLM_KEY_OURS},
    {"normalize_embeddings", LLM_KEY_BOOL, offsetof(struct llm_config, normalize_embeddings), 0, 0, NULL, LLM_KEY_OURS},
    {0}};

struct llm_config llm_config_blank(const struct llm_arch *arch)
{
    struct llm_config c = {.logit_scale = 1, .norm_groups = 8, .embedding_scale = 1, .partial_rotary_factor = 1, .initializer_range = .02,
                           .use_sliding_window = true, .scale_attn_weights = true,
                           .moe_layer_freq = 1, .mtp_loss_weight = .3, .kv_sharing = 1, .n_group = 1, .topk_group = 1, .group_top = 1,
                           .routed_scaling_factor = 1, .router_temperature = 1, .router_bias_update_rate = .001, .logit_scale_init = 2.6592,
                           .bos_token_id = -1, .eos_token_id = -1, .mask_token_id = -1, .decoder_start_token_id = -1,
                           .text_padding = -1};
    strncpy(c.model_type, arch->model_type, sizeof c.model_type - 1);
    arch->defaults(&c);
    return c;
}

bool llm_config_has_row(const struct llm_arch *arch, const char *name)
{
    for (const struct llm_config_key *k = arch->keys; k->name; k++) {
        if (strcmp(k->name, name) == 0) return true;
    }
    for (const struct llm_config_key *k = llm_config_common_keys; k->name; k++) {
        if (strcmp(k->name, name) == 0) return true;
    }
    return false;
}

const struct llm_arch *llm_arch_find(const char *model_type)
{
    for (size_t i = 0; llm_archs[i]; i++) {
        if (strcmp(llm_archs[i]->model_type, model_type) == 0) return llm_archs[i];
    }
    return NULL;
}
