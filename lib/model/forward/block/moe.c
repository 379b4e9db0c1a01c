/* A mixture of experts as the feed-forward block: a router sends each token to a few of many gated feed-forward experts; shared experts process every
 * token (Mixtral; DeepSeek-V2 and V3). */
#include "model/forward/block.h"
#include "tensor/slices.h"

/* Computed in FP32 whatever the precision of the other products: a rounding error here can send a token to another expert. */
static struct llm_tensor *router_logits(struct llm_ctx *c, const struct llm_module *m, struct llm_tensor *x)
{
    enum llm_compute compute = c->compute;
    c->compute = LLM_COMPUTE_F32;
    struct llm_tensor *y = llm_linear(c, x, m->p[LLM_MOE_ROUTER].w, NULL);
    c->compute = compute;
    return y;
}

/* The experts, routed and shared, that `m` has: all of their channels, or those of a slice. */
static struct llm_tensor *feed(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x,
                               struct llm_tensor *weights, const int32_t *chosen)
{
    const struct llm_config *f = p->config;
    const struct llm_experts experts = {.n = f->num_experts, .gate = m->experts, .up = m->experts + f->num_experts,
                                        .down = m->experts + 2 * f->num_experts, .act = f->act,
                                        .inner = llm_watch_inner(c, &p->site, LLM_PLACE_MLP_HIDDEN)};
    struct llm_tensor *y = llm_mixture(c, x, weights, chosen, &experts);
    if (!m->p[LLM_MOE_SHARED_GATE].w) return y;
    struct llm_tensor *both[2];
    llm_linears(c, x, 2, (struct llm_param *[]){m->p[LLM_MOE_SHARED_GATE].w, m->p[LLM_MOE_SHARED_UP].w}, (struct llm_param *[]){NULL, NULL}, both);
    c->recompute = LLM_RECOMPUTE_INNER;
    llm_panels_for(c, 1, &m->p[LLM_MOE_SHARED_DOWN].w);
    struct llm_tensor *inner = llm_gated(c, both[0], both[1], f->act);
    c->recompute = LLM_KEPT;
    c->to_panels = false;
    inner = llm_visit(c, &p->site, LLM_PLACE_MLP_SHARED, inner);
    return llm_add_over(c, y, llm_linear(c, inner, m->p[LLM_MOE_SHARED_DOWN].w, NULL));
}

struct llm_tensor *llm_forward_moe(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    const struct llm_config *f = p->config;
    const int32_t *chosen = NULL;
    const struct llm_route route = {
        .k = f->num_experts_per_tok, .sigmoid = f->router_scoring == LLM_SCORING_SIGMOID, .normalise = f->norm_topk_prob,
        .scale = f->routed_scaling_factor, .n_group = f->n_group, .topk_group = f->topk_group, .group_top = f->group_top,
        .bias = m->p[LLM_MOE_BIAS].w, .straight_through = f->routing == LLM_ROUTING_STRAIGHT_THROUGH, .gumbel = f->routing == LLM_ROUTING_GUMBEL,
        .temperature = f->router_temperature, .capacity = f->expert_capacity_factor, .balance = f->router_aux_loss_coef,
        .z = f->router_z_loss_coef, .report = p->batch->routers};
    struct llm_tensor *logits = llm_visit(c, &p->site, LLM_PLACE_ROUTER, router_logits(c, m, x));
    struct llm_tensor *weights = llm_route(c, logits, &route, &chosen);
    const struct llm_slices *s = m->experts[0]->slices;
    struct llm_tensor *in[LLM_MAX_SLICES], *shares[LLM_MAX_SLICES], *out[LLM_MAX_SLICES];
    if (!s) return feed(c, m, p, x, weights, chosen);
    llm_slices_enter(c, x, s, in);
    llm_slices_enter(c, weights, s, shares);
    for (int i = 0; i < s->end - s->first && !llm_ctx_failed(c); i++) {
        const struct llm_module slice = llm_module_slice(c, m, s->first + i, p->config->num_experts);
        if (!llm_ctx_failed(c)) out[i] = feed(c, &slice, p, in[i], shares[i], chosen);
    }
    return llm_slices_sum(c, out, s, NULL);
}
