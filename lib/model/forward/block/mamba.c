/* Mamba (Gu & Dao 2023) and Mamba 2 (Dao & Gu 2024): projections, a short convolution, a selective scan, a gate. Names and sizes are those of
 * transformers' MambaForCausalLM and Mamba2ForCausalLM. */
#include "model/forward/block.h"

/* The convolution, followed by the configuration's activation. */
static struct llm_tensor *short_conv(struct llm_ctx *c, const struct llm_module *m, const struct llm_config *f, struct llm_tensor *x,
                                     const struct llm_segment *last, int64_t n)
{
    bool silu = f->act == LLM_ACT_SILU;
    x = llm_short_conv(c, x, m->p[LLM_MAMBA_CONV].w, m->p[LLM_MAMBA_CONV].b, silu, last, n);
    return silu ? x : llm_activation(c, x, f->act);
}

struct llm_tensor *llm_forward_mamba(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    const struct llm_config *f = p->config;
    int64_t inner = f->intermediate_size, n;
    const struct llm_segment *last = llm_pass_segments(c, p, 0, &n);
    struct llm_scan o = {.groups = 1, .dt_max = (float)f->time_step_max_limit};
    o.segments = llm_pass_segments(c, p, (f->conv_kernel - 1) * inner, &o.n_segments);
    struct llm_tensor *both = llm_linear(c, x, m->p[LLM_MAMBA_IN].w, m->p[LLM_MAMBA_IN].b);
    struct llm_tensor *u = short_conv(c, m, f, llm_columns(c, both, 0, inner), last, n);
    u = llm_visit(c, &p->site, LLM_PLACE_MIXER_CONV, u);
    struct llm_tensor *seen = llm_linear(c, u, m->p[LLM_MAMBA_X_PROJ].w, NULL);
    struct llm_tensor *time = llm_visit(c, &p->site, LLM_PLACE_MIXER_TIME, llm_columns(c, seen, 0, f->time_step_rank));
    struct llm_tensor *dt = llm_linear(c, time, m->p[LLM_MAMBA_DT].w, NULL);
    struct llm_tensor *b = llm_columns(c, seen, f->time_step_rank, f->state_size);
    struct llm_tensor *to = llm_columns(c, seen, f->time_step_rank + f->state_size, f->state_size);
    struct llm_tensor *y = llm_selective_scan(c, u, dt, b, to, m->p[LLM_MAMBA_SCAN].w, m->p[LLM_MAMBA_SCAN].b, m->p[LLM_MAMBA_DT].b, &o);
    c->recompute = LLM_RECOMPUTE_INNER;
    llm_panels_for(c, 1, &m->p[LLM_MAMBA_OUT].w);
    y = llm_gated(c, llm_columns(c, both, inner, inner), y, LLM_ACT_SILU); /* whatever hidden_act says */
    c->recompute = LLM_KEPT;
    c->to_panels = false;
    y = llm_visit(c, &p->site, LLM_PLACE_MIXER_HIDDEN, y);
    return llm_linear(c, y, m->p[LLM_MAMBA_OUT].w, m->p[LLM_MAMBA_OUT].b);
}

/* ---- Mamba 2: one decay per head, groups of b and c, a convolution over x, b and c, a norm after the gate ---- */

struct llm_tensor *llm_forward_mamba2(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    const struct llm_config *f = p->config;
    int64_t inner = f->intermediate_size, wide = llm_mamba2_conv_width(f), bc = f->ssm_groups * f->state_size, n;
    const struct llm_segment *last = llm_pass_segments(c, p, 0, &n);
    struct llm_scan o = {.by_head = true, .heads = f->ssm_heads, .groups = f->ssm_groups, .dt_min = (float)f->time_step_min_limit,
                         .dt_max = (float)f->time_step_max_limit};
    o.segments = llm_pass_segments(c, p, (f->conv_kernel - 1) * wide, &o.n_segments);
    struct llm_tensor *all = llm_linear(c, x, m->p[LLM_MAMBA_IN].w, m->p[LLM_MAMBA_IN].b);
    struct llm_tensor *u = short_conv(c, m, f, llm_columns(c, all, inner, wide), last, n);
    u = llm_visit(c, &p->site, LLM_PLACE_MIXER_CONV, u);
    const struct llm_linear_params *scan = &m->p[LLM_MAMBA_SCAN];
    struct llm_tensor *y = llm_selective_scan(c, llm_columns(c, u, 0, inner), llm_columns(c, all, inner + wide, f->ssm_heads),
                                              llm_columns(c, u, inner, bc), llm_columns(c, u, inner + bc, bc), scan->w, scan->b,
                                              m->p[LLM_MAMBA_DT].b, &o);
    y = llm_gated(c, llm_columns(c, all, 0, inner), y, LLM_ACT_SILU); /* whatever hidden_act says */
    c->recompute = LLM_RECOMPUTE_INNER;
    llm_panels_for(c, 1, &m->p[LLM_MAMBA_OUT].w);
    y = llm_rmsnorm(c, y, m->p[LLM_MAMBA_NORM].w, (float)f->norm_eps, 0, inner / f->ssm_groups);
    c->recompute = LLM_KEPT;
    c->to_panels = false;
    y = llm_visit(c, &p->site, LLM_PLACE_MIXER_HIDDEN, y);
    return llm_linear(c, y, m->p[LLM_MAMBA_OUT].w, m->p[LLM_MAMBA_OUT].b);
}
