/* The parameters of a mixture of experts: a router, many feed-forward experts, and shared experts. */
#include "model/spec/block.h"

static void declare(struct llm_declare *d, struct llm_module *m)
{
    const struct llm_config *c = d->config;
    int64_t n = c->num_experts, wide = c->moe_intermediate_size, shared = c->n_shared_experts * wide;
    llm_declare_linear(d, &m->p[LLM_MOE_ROUTER], LLM_STEM_ROUTER, n, c->hidden_size, "num_experts, hidden_size", false);
    if (c->router_bias) llm_declare_vector(d, &m->p[LLM_MOE_BIAS].w, LLM_STEM_ROUTER_BIAS, n, "num_experts", true);
    m->experts = llm_calloc((size_t)(3 * n), sizeof *m->experts, "experts", d->err);
    if (!m->experts) {
        d->failed = true;
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        llm_declare_expert(d, &m->experts[i], i, LLM_STEM_EXPERT_GATE, wide, c->hidden_size, "moe_intermediate_size, hidden_size");
        llm_declare_expert(d, &m->experts[n + i], i, LLM_STEM_EXPERT_UP, wide, c->hidden_size, "moe_intermediate_size, hidden_size");
        llm_declare_expert(d, &m->experts[2 * n + i], i, LLM_STEM_EXPERT_DOWN, c->hidden_size, wide, "hidden_size, moe_intermediate_size");
    }
    if (shared == 0) return;
    llm_declare_linear(d, &m->p[LLM_MOE_SHARED_GATE], LLM_STEM_SHARED_GATE, shared, c->hidden_size,
                       "n_shared_experts * moe_intermediate_size, hidden_size", false);
    llm_declare_linear(d, &m->p[LLM_MOE_SHARED_UP], LLM_STEM_SHARED_UP, shared, c->hidden_size,
                       "n_shared_experts * moe_intermediate_size, hidden_size", false);
    llm_declare_linear(d, &m->p[LLM_MOE_SHARED_DOWN], LLM_STEM_SHARED_DOWN, c->hidden_size, shared,
                       "hidden_size, n_shared_experts * moe_intermediate_size", false);
}

static uint64_t places(const struct llm_config *c, int64_t layer)
{
    (void)layer;
    return LLM_PLACE_BIT(ROUTER) | LLM_PLACE_BIT(MLP_HIDDEN) | (c->n_shared_experts > 0 ? LLM_PLACE_BIT(MLP_SHARED) : 0);
}

const struct llm_module_kind llm_module_moe = {.number = LLM_MODULE_moe, .unit = LLM_UNIT_EXPERTS, .declare = declare,
    .input = LLM_PLACE_MLP_INPUT, .output = LLM_PLACE_MLP_OUTPUT, .places = places};
