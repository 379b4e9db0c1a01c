/* What follows from a configuration for one of its layers: windows, blocks, mixtures, the scale of attention scores. */
#include <math.h>
#include "model/config/config.h"

bool llm_layer_in(const llm_layer_set s, int64_t layer)
{
    return s[layer / 64] >> layer % 64 & 1;
}

int64_t llm_config_embedding(const struct llm_config *c)
{
    return c->embedding_size > 0 ? c->embedding_size : c->hidden_size;
}

int64_t llm_config_window(const struct llm_config *c, int64_t layer)
{
    return llm_layer_in(c->local_layers, layer) ? c->sliding_window : 0;
}

int64_t llm_config_block(const struct llm_config *c, int64_t layer)
{
    return c->num_latents > 0 && c->latents == LLM_LATENTS_LAST && layer > 0 ? c->num_latents : 0;
}

bool llm_config_learns_latents(const struct llm_config *c)
{
    return c->num_latents > 0 && c->latents == LLM_LATENTS_LEARNED;
}

bool llm_config_is_mixture(const struct llm_config *c, int64_t layer)
{
    return c->num_experts > 0 && layer >= c->first_k_dense_replace && (layer + 1) % c->moe_layer_freq == 0
           && !(layer < LLM_MAX_LAYERS && llm_layer_in(c->mlp_only_layers, layer)); /* layers that predict further may have higher numbers */
}

double llm_config_attention_scale(const struct llm_config *c, int64_t layer)
{
    double scale = c->scale_attn_weights ? 1 / sqrt(c->query_pre_attn_scalar > 0 ? c->query_pre_attn_scalar : (double)c->head_dim) : 1;
    return c->scale_attn_by_inverse_layer_idx ? scale / (double)(layer + 1) : scale;
}

int64_t llm_config_together(const struct llm_config *c)
{
    return c->mixer == LLM_MIXER_RWKV7 ? c->num_hidden_layers : c->kv_sharing; /* RWKV 7: the first layer's values */
}
