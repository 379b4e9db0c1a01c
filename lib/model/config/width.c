/* Configurations at other widths, and how a parametrisation follows the width (model/config/config.h). */
#include "model/config/config.h"

void llm_config_mup(struct llm_config *c, int64_t base_width, int64_t base_head_dim)
{
    c->mup_base_width = base_width;
    c->logit_scale *= (double)base_width / (double)c->hidden_size;
    if (base_head_dim <= 0 || base_head_dim == c->head_dim) return;
    double before = c->query_pre_attn_scalar > 0 ? c->query_pre_attn_scalar : (double)c->head_dim;
    c->query_pre_attn_scalar = before * (double)c->head_dim / (double)base_head_dim;
}

static int widen(int64_t *n, int64_t width, int64_t before, const char *name, struct llm_err *e)
{
    if (*n * width % before != 0) {
        return llm_fail(e, LLM_EX_USAGE, "width %lld: expected %s (%lld of %lld wide) to grow by a whole number", (long long)width, name,
                        (long long)*n, (long long)before);
    }
    *n = *n * width / before;
    return 0;
}

int llm_config_widen(struct llm_config *c, int64_t width, struct llm_err *e)
{
    int64_t before = c->hidden_size;
    if (width < 1 || width > 1 << 20) return llm_fail(e, LLM_EX_USAGE, "width: expected 1 to %d, found %lld", 1 << 20, (long long)width);
    if (widen(&c->num_attention_heads, width, before, "num_attention_heads", e) < 0
        || widen(&c->intermediate_size, width, before, "intermediate_size", e) < 0) {
        return -1;
    }
    if (c->num_key_value_heads > 1 && widen(&c->num_key_value_heads, width, before, "num_key_value_heads", e) < 0) return -1;
    c->hidden_size = width;
    return 0;
}
