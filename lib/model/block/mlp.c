/* The feed-forward part: down(act(up(x))), or gated down(act(gate(x)) ⊙ up(x)). */
#include "model/block.h"

enum { GATE, UP, DOWN };

static void declare(struct llm_declare *d, struct llm_module *m)
{
    const struct llm_config *c = d->config;
    static const char wide[] = "intermediate_size, hidden_size", narrow[] = "hidden_size, intermediate_size";
    if (c->gated) llm_declare_linear(d, &m->p[GATE], LLM_STEM_GATE, c->intermediate_size, c->hidden_size, wide, c->mlp_bias);
    llm_declare_linear(d, &m->p[UP], LLM_STEM_UP, c->intermediate_size, c->hidden_size, wide, c->mlp_bias);
    llm_declare_linear(d, &m->p[DOWN], LLM_STEM_DOWN, c->hidden_size, c->intermediate_size, narrow, c->mlp_bias);
}

static struct llm_tensor *forward(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    struct llm_tensor *up = llm_linear(c, x, m->p[UP].w, m->p[UP].b);
    struct llm_tensor *h = p->config->gated ? llm_gated(c, llm_linear(c, x, m->p[GATE].w, m->p[GATE].b), up, p->config->act)
                                            : llm_activation(c, up, p->config->act);
    return llm_linear(c, h, m->p[DOWN].w, m->p[DOWN].b);
}

const struct llm_module_kind llm_module_mlp = {.name = "mlp", .declare = declare, .forward = forward};
