/* The parameters of the feed-forward block. */
#include "model/spec/block.h"

static void declare(struct llm_declare *d, struct llm_module *m)
{
    const struct llm_config *c = d->config;
    static const char wide[] = "intermediate_size, hidden_size", narrow[] = "hidden_size, intermediate_size";
    if (d->arch->names.stem[LLM_STEM_GATE_UP]) {
        llm_declare_linear(d, &m->p[LLM_MLP_GATE_UP], LLM_STEM_GATE_UP, 2 * c->intermediate_size, c->hidden_size, "2 intermediate_size, hidden_size",
                           c->mlp_bias);
        llm_declare_parts(d, c->intermediate_size, c->intermediate_size, 0);
    } else {
        if (c->gated) llm_declare_linear(d, &m->p[LLM_MLP_GATE], LLM_STEM_GATE, c->intermediate_size, c->hidden_size, wide, c->mlp_bias);
        llm_declare_linear(d, &m->p[LLM_MLP_UP], LLM_STEM_UP, c->intermediate_size, c->hidden_size, wide, c->mlp_bias);
    }
    llm_declare_linear(d, &m->p[LLM_MLP_DOWN], LLM_STEM_DOWN, c->hidden_size, c->intermediate_size, narrow, c->mlp_bias);
}

static uint64_t places(const struct llm_config *c, int64_t layer)
{
    (void)layer;
    return LLM_PLACE_BIT(MLP_UP) | LLM_PLACE_BIT(MLP_HIDDEN) | (c->gated ? LLM_PLACE_BIT(MLP_GATE) : 0);
}

const struct llm_module_kind llm_module_mlp = {.number = LLM_MODULE_mlp, .unit = LLM_UNIT_MLP, .declare = declare,
    .input = LLM_PLACE_MLP_INPUT, .output = LLM_PLACE_MLP_OUTPUT, .places = places};
