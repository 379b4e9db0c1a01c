/* The parameters of cross-attention. */
#include "model/spec/block.h"

static void declare(struct llm_declare *d, struct llm_module *m)
{
    const struct llm_config *c = d->config;
    int64_t q = c->num_attention_heads * c->head_dim, kv = c->num_key_value_heads * c->head_dim;
    llm_declare_linear(d, &m->p[LLM_CROSS_Q], LLM_STEM_CROSS_Q, q, c->hidden_size, "num_attention_heads * head_dim, hidden_size", c->attention_bias);
    llm_declare_linear(d, &m->p[LLM_CROSS_K], LLM_STEM_CROSS_K, kv, c->hidden_size, "num_key_value_heads * head_dim, hidden_size", c->attention_bias);
    llm_declare_linear(d, &m->p[LLM_CROSS_V], LLM_STEM_CROSS_V, kv, c->hidden_size, "num_key_value_heads * head_dim, hidden_size", c->attention_bias);
    llm_declare_linear(d, &m->p[LLM_CROSS_OUT], LLM_STEM_CROSS_OUT, c->hidden_size, q, "hidden_size, num_attention_heads * head_dim",
                       c->attention_out_bias);
}

/* FLOPs per token of the scores and of the weighted sum of values, for a source of `context` tokens. */
static double extra_flops(const struct llm_config *c, int64_t layer, int64_t context)
{
    int64_t queries = llm_config_learns_latents(c) && context > 0 ? c->num_latents : context; /* the queries are the latents */
    (void)layer;
    return 4.0 * (double)(c->num_attention_heads * c->head_dim) * (double)queries;
}

static uint64_t places(const struct llm_config *c, int64_t layer)
{
    (void)c, (void)layer;
    return LLM_PLACE_BIT(CROSS_Q) | LLM_PLACE_BIT(CROSS_K) | LLM_PLACE_BIT(CROSS_V) | LLM_PLACE_BIT(CROSS_HEADS);
}

const struct llm_module_kind llm_module_cross = {
    .number = LLM_MODULE_cross, .input = LLM_PLACE_CROSS_INPUT, .output = LLM_PLACE_CROSS_OUTPUT, .places = places,
    .unit = LLM_UNIT_CROSS_ATTENTION, .declare = declare, .extra_flops = extra_flops};
