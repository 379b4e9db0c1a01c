/* The feed-forward block: down(act(up(x))), or gated, down(act(gate(x)) ⊙ up(x)). */
#include "model/forward/block.h"

/* The channels of slice j of n, or all (0 of 1), and their part of the output with the bias. */
static struct llm_tensor *feed(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x, int64_t j, int64_t n)
{
    const struct llm_config *f = p->config;
    const int64_t width = f->intermediate_size / n;
    (void)j;
    struct llm_tensor *gate = NULL, *up;
    if (m->p[LLM_MLP_GATE_UP].w) {
        struct llm_tensor *both = llm_linear(c, x, m->p[LLM_MLP_GATE_UP].w, m->p[LLM_MLP_GATE_UP].b);
        gate = llm_columns(c, both, 0, width);
        up = llm_columns(c, both, width, width);
    } else {
        struct llm_tensor *y[2] = {NULL};
        llm_linears(c, x, f->gated ? 2 : 1, (struct llm_param *[]){m->p[LLM_MLP_UP].w, m->p[LLM_MLP_GATE].w},
                    (struct llm_param *[]){m->p[LLM_MLP_UP].b, m->p[LLM_MLP_GATE].b}, y);
        up = y[0];
        gate = y[1];
    }
    if (gate) gate = llm_visit(c, &p->site, LLM_PLACE_MLP_GATE, gate);
    up = llm_visit(c, &p->site, LLM_PLACE_MLP_UP, up);
    c->recompute = LLM_RECOMPUTE_INNER;
    llm_panels_for(c, 1, &m->p[LLM_MLP_DOWN].w);
    struct llm_tensor *inner = gate ? llm_gated(c, gate, up, f->act) : llm_activation(c, up, f->act);
    c->recompute = LLM_KEPT;
    c->to_panels = false;
    inner = llm_visit(c, &p->site, LLM_PLACE_MLP_HIDDEN, inner);
    return llm_linear(c, inner, m->p[LLM_MLP_DOWN].w, m->p[LLM_MLP_DOWN].b);
}

struct llm_tensor *llm_forward_mlp(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    return llm_module_slices(c, m, p, x, LLM_MLP_DOWN, feed);
}
