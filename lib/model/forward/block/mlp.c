/* The feed-forward block: down(act(up(x))), or gated, down(act(gate(x)) ⊙ up(x)). */
#include "model/config/arch.h"

enum { GATE, UP, DOWN, GATE_UP };

static void declare(struct llm_declare *d, struct llm_module *m)
{
    const struct llm_config *c = d->config;
    static const char wide[] = "intermediate_size, hidden_size", narrow[] = "hidden_size, intermediate_size";
    if (d->arch->names.stem[LLM_STEM_GATE_UP]) {
        llm_declare_linear(d, &m->p[GATE_UP], LLM_STEM_GATE_UP, 2 * c->intermediate_size, c->hidden_size, "2 intermediate_size, hidden_size",
                           c->mlp_bias);
        llm_declare_parts(d, c->intermediate_size, c->intermediate_size, 0);
    } else {
        if (c->gated) llm_declare_linear(d, &m->p[GATE], LLM_STEM_GATE, c->intermediate_size, c->hidden_size, wide, c->mlp_bias);
        llm_declare_linear(d, &m->p[UP], LLM_STEM_UP, c->intermediate_size, c->hidden_size, wide, c->mlp_bias);
    }
    llm_declare_linear(d, &m->p[DOWN], LLM_STEM_DOWN, c->hidden_size, c->intermediate_size, narrow, c->mlp_bias);
}

static struct llm_tensor *forward(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    const struct llm_config *f = p->config;
    struct llm_tensor *gate = NULL, *up;
    if (m->p[GATE_UP].w) {
        struct llm_tensor *both = llm_linear(c, x, m->p[GATE_UP].w, m->p[GATE_UP].b);
        gate = llm_columns(c, both, 0, f->intermediate_size);
        up = llm_columns(c, both, f->intermediate_size, f->intermediate_size);
    } else {
        struct llm_tensor *y[2] = {NULL};
        llm_linears(c, x, f->gated ? 2 : 1, (struct llm_param *[]){m->p[UP].w, m->p[GATE].w}, (struct llm_param *[]){m->p[UP].b, m->p[GATE].b}, y);
        up = y[0];
        gate = y[1];
    }
    if (gate) gate = llm_visit(c, &p->site, LLM_PLACE_MLP_GATE, gate);
    up = llm_visit(c, &p->site, LLM_PLACE_MLP_UP, up);
    c->passing = LLM_PASSING_INNER;
    struct llm_tensor *inner = gate ? llm_gated(c, gate, up, f->act) : llm_activation(c, up, f->act);
    c->passing = LLM_STAYS;
    inner = llm_visit(c, &p->site, LLM_PLACE_MLP_HIDDEN, inner);
    return llm_linear(c, inner, m->p[DOWN].w, m->p[DOWN].b);
}

static uint64_t places(const struct llm_config *c, int64_t layer)
{
    (void)layer;
    return LLM_PLACE_BIT(MLP_UP) | LLM_PLACE_BIT(MLP_HIDDEN) | (c->gated ? LLM_PLACE_BIT(MLP_GATE) : 0);
}

const struct llm_module_kind llm_module_mlp = {.unit = LLM_UNIT_MLP, .declare = declare, .forward = forward,
    .input = LLM_PLACE_MLP_INPUT, .output = LLM_PLACE_MLP_OUTPUT, .places = places};
