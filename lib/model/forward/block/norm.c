/* The norm before or after a sub-layer: RMSNorm, LayerNorm, GroupNorm or BatchNorm by configuration. */
#include "model/forward/block.h"

struct llm_tensor *llm_norm_apply(struct llm_ctx *c, const struct llm_config *config, const struct llm_linear_params *p, struct llm_tensor *x)
{
    float eps = (float)config->norm_eps;
    switch (config->norm) {
    case LLM_NORM_LAYER: return llm_layernorm(c, x, p->w, p->b, eps);
    case LLM_NORM_GROUP: return llm_groupnorm(c, x, p->w, p->b, config->norm_groups, eps);
    case LLM_NORM_BATCH: return llm_batchnorm(c, x, p->w, p->b, p->mean, p->var, eps);
    case LLM_NORM_RMS: break;
    }
    return llm_rmsnorm(c, x, p->w, eps, (float)config->norm_gain_offset, config->hidden_size);
}

struct llm_tensor *llm_forward_norm(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    return llm_norm_apply(c, p->config, &m->p[0], x);
}
