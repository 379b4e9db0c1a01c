/* Mamba (Gu & Dao 2023) and Mamba 2 (Dao & Gu 2024): projections, a short convolution, a selective scan, a gate. Names and sizes are those of
 * transformers' MambaForCausalLM and Mamba2ForCausalLM. */
#include "model/forward/block.h"
#include "tensor/slices.h"

/* The convolution, followed by the configuration's activation. */
static struct llm_tensor *short_conv(struct llm_ctx *c, const struct llm_module *m, const struct llm_config *f, struct llm_tensor *x,
                                     const struct llm_segment *last, int64_t n)
{
    bool silu = f->act == LLM_ACT_SILU;
    x = llm_short_conv(c, x, m->p[LLM_MAMBA_CONV].w, m->p[LLM_MAMBA_CONV].b, silu, last, n);
    return silu ? x : llm_activation(c, x, f->act);
}

/* Channels of a Mamba block, all or those of a slice, before and after the convolution. */
struct channels { struct llm_tensor *both, *u; };

/* What the `inner` channels of `m` add to the output of x_proj, which all channels read: time step, B and C, [time_step_rank + 2 state_size]. */
static struct llm_tensor *states_seen(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x, int64_t inner,
                                      struct channels *k)
{
    int64_t n;
    const struct llm_segment *last = llm_pass_segments(c, p, 0, &n);
    k->both = llm_linear(c, x, m->p[LLM_MAMBA_IN].w, m->p[LLM_MAMBA_IN].b);
    struct llm_tensor *u = short_conv(c, m, p->config, llm_columns(c, k->both, 0, inner), last, n);
    k->u = llm_visit(c, &p->site, LLM_PLACE_MIXER_CONV, u);
    return llm_linear(c, k->u, m->p[LLM_MAMBA_X_PROJ].w, NULL);
}

/* The scan of the channels of `m`, and their part of the output. */
static struct llm_tensor *scan_channels(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, const struct channels *k,
                                        struct llm_tensor *seen, int64_t inner)
{
    const struct llm_config *f = p->config;
    struct llm_scan o = {.groups = 1, .dt_max = (float)f->time_step_max_limit};
    o.segments = llm_pass_segments(c, p, (f->conv_kernel - 1) * inner, &o.n_segments);
    struct llm_tensor *time = llm_visit(c, &p->site, LLM_PLACE_MIXER_TIME, llm_columns(c, seen, 0, f->time_step_rank));
    struct llm_tensor *dt = llm_linear(c, time, m->p[LLM_MAMBA_DT].w, NULL);
    struct llm_tensor *b = llm_columns(c, seen, f->time_step_rank, f->state_size);
    struct llm_tensor *to = llm_columns(c, seen, f->time_step_rank + f->state_size, f->state_size);
    struct llm_tensor *y = llm_selective_scan(c, k->u, dt, b, to, m->p[LLM_MAMBA_SCAN].w, m->p[LLM_MAMBA_SCAN].b, m->p[LLM_MAMBA_DT].b, &o);
    c->recompute = LLM_RECOMPUTE_INNER;
    llm_panels_for(c, 1, &m->p[LLM_MAMBA_OUT].w);
    y = llm_gated(c, llm_columns(c, k->both, inner, inner), y, LLM_ACT_SILU); /* whatever hidden_act says */
    c->recompute = LLM_KEPT;
    c->to_panels = false;
    y = llm_visit(c, &p->site, LLM_PLACE_MIXER_HIDDEN, y);
    return llm_linear(c, y, m->p[LLM_MAMBA_OUT].w, m->p[LLM_MAMBA_OUT].b);
}

/* Slice by slice. Time steps, inputs and outputs of the states are of all channels: sums over the slices, which each slice reads. */
static struct llm_tensor *mamba_slices(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x,
                                       const struct llm_slices *s)
{
    const int64_t inner = p->config->intermediate_size / s->n;
    const int own = s->end - s->first;
    struct llm_tensor *in[LLM_MAX_SLICES], *seen[LLM_MAX_SLICES], *out[LLM_MAX_SLICES];
    struct channels k[LLM_MAX_SLICES];
    llm_slices_enter(c, x, s, in);
    for (int i = 0; i < own; i++) {
        const struct llm_module slice = llm_module_slice(c, m, s->first + i, 0);
        seen[i] = states_seen(c, &slice, p, in[i], inner, &k[i]);
    }
    llm_slices_enter(c, llm_slices_sum(c, seen, s, NULL), s, seen);
    for (int i = 0; i < own; i++) {
        struct llm_module slice = llm_module_slice(c, m, s->first + i, 0);
        slice.p[LLM_MAMBA_OUT].b = NULL; /* it is added once, to the sum */
        out[i] = scan_channels(c, &slice, p, &k[i], seen[i], inner);
    }
    return llm_slices_sum(c, out, s, m->p[LLM_MAMBA_OUT].b);
}

struct llm_tensor *llm_forward_mamba(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    const struct llm_slices *s = m->p[LLM_MAMBA_OUT].w->slices;
    const int64_t inner = p->config->intermediate_size;
    struct channels k;
    if (s) return mamba_slices(c, m, p, x, s);
    struct llm_tensor *seen = states_seen(c, m, p, x, inner, &k);
    return scan_channels(c, m, p, &k, seen, inner);
}

/* ---- Mamba 2: one decay per head, groups of b and c, a convolution over x, b and c, a norm after the gate ---- */

/* The projections and the convolution of the heads of `m`, one of n slices or all. */
static struct channels mamba2_channels(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x, int64_t n)
{
    const struct llm_config *f = p->config;
    int64_t inner = f->intermediate_size / n, wide = llm_mamba2_conv_width(f) / n, n_segments;
    const struct llm_segment *last = llm_pass_segments(c, p, 0, &n_segments);
    struct channels k = {.both = llm_linear(c, x, m->p[LLM_MAMBA_IN].w, m->p[LLM_MAMBA_IN].b)};
    k.u = llm_visit(c, &p->site, LLM_PLACE_MIXER_CONV, short_conv(c, m, f, llm_columns(c, k.both, inner, wide), last, n_segments));
    return k;
}

/* The scan of a slice's heads, which make `groups` groups with inputs b and outputs `to` of the states (B and C), and the gate. n: slices. */
static struct llm_tensor *mamba2_scan(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, const struct channels *k,
                                      struct llm_tensor *b, struct llm_tensor *to, int64_t groups, int64_t n)
{
    const struct llm_config *f = p->config;
    const struct llm_linear_params *scan = &m->p[LLM_MAMBA_SCAN];
    int64_t inner = f->intermediate_size / n, wide = llm_mamba2_conv_width(f) / n, heads = f->ssm_heads / n;
    struct llm_scan o = {.by_head = true, .heads = heads, .groups = groups, .dt_min = (float)f->time_step_min_limit,
                         .dt_max = (float)f->time_step_max_limit};
    o.segments = llm_pass_segments(c, p, (f->conv_kernel - 1) * wide, &o.n_segments);
    struct llm_tensor *y = llm_selective_scan(c, llm_columns(c, k->u, 0, inner), llm_columns(c, k->both, inner + wide, heads), b, to,
                                              scan->w, scan->b, m->p[LLM_MAMBA_DT].b, &o);
    return llm_gated(c, llm_columns(c, k->both, 0, inner), y, LLM_ACT_SILU); /* whatever hidden_act says */
}

static struct llm_tensor *mamba2_out(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *y)
{
    return llm_linear(c, llm_visit(c, &p->site, LLM_PLACE_MIXER_HIDDEN, y), m->p[LLM_MAMBA_OUT].w, m->p[LLM_MAMBA_OUT].b);
}

/* The whole groups of slice j of n, or all (0 of 1), and their part of the output with the bias. */
static struct llm_tensor *mamba2_groups(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x, int64_t j,
                                        int64_t n)
{
    const struct llm_config *f = p->config;
    int64_t inner = f->intermediate_size / n, groups = f->ssm_groups / n, bc = groups * f->state_size;
    (void)j;
    const struct channels k = mamba2_channels(c, m, p, x, n);
    struct llm_tensor *y = mamba2_scan(c, m, p, &k, llm_columns(c, k.u, inner, bc), llm_columns(c, k.u, inner + bc, bc), groups, n);
    c->recompute = LLM_RECOMPUTE_INNER;
    llm_panels_for(c, 1, &m->p[LLM_MAMBA_OUT].w);
    y = llm_rmsnorm(c, y, m->p[LLM_MAMBA_NORM].w, (float)f->norm_eps, 0, inner / groups);
    c->recompute = LLM_KEPT;
    c->to_panels = false;
    return mamba2_out(c, m, p, y);
}

/* Several slices share a group: each convolves a part of B and C of all groups, which are then put together, and the norm is of the channels of all
 * slices of the group. What the norm makes is kept for the backward pass: its parts are no op that recomputes itself. */
static struct llm_tensor *mamba2_slices(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x,
                                        const struct llm_slices *s)
{
    const struct llm_config *f = p->config;
    const int64_t n = s->n, inner = f->intermediate_size / n, bc = f->ssm_groups * f->state_size;
    const int own = s->end - s->first;
    struct llm_tensor *in[LLM_MAX_SLICES], *seen[LLM_MAX_SLICES], *y[LLM_MAX_SLICES], *squares[LLM_MAX_SLICES], *out[LLM_MAX_SLICES];
    struct channels k[LLM_MAX_SLICES];
    llm_slices_enter(c, x, s, in);
    for (int i = 0; i < own; i++) {
        const struct llm_module slice = llm_module_slice(c, m, s->first + i, 0);
        k[i] = mamba2_channels(c, &slice, p, in[i], n);
        seen[i] = llm_slices_place(c, llm_columns(c, k[i].u, inner, 2 * bc / n), 2, bc, (s->first + i) * bc / n);
    }
    llm_slices_enter(c, llm_slices_sum(c, seen, s, NULL), s, seen);
    for (int i = 0; i < own; i++) {
        const struct llm_module slice = llm_module_slice(c, m, s->first + i, 0);
        const int64_t group = (s->first + i) * f->ssm_groups / n;
        y[i] = mamba2_scan(c, &slice, p, &k[i], llm_columns(c, seen[i], group * f->state_size, f->state_size),
                           llm_columns(c, seen[i], bc + group * f->state_size, f->state_size), 1, n);
        squares[i] = llm_slices_place(c, llm_slices_squares(c, y[i]), 1, f->ssm_groups, group);
    }
    llm_slices_enter(c, llm_slices_sum(c, squares, s, NULL), s, squares);
    for (int i = 0; i < own; i++) {
        struct llm_module slice = llm_module_slice(c, m, s->first + i, 0);
        slice.p[LLM_MAMBA_OUT].b = NULL; /* it is added once, to the sum */
        struct llm_tensor *of_group = llm_columns(c, squares[i], (s->first + i) * f->ssm_groups / n, 1);
        y[i] = llm_slices_over_rms(c, y[i], of_group, f->intermediate_size / f->ssm_groups, (float)f->norm_eps);
        out[i] = mamba2_out(c, &slice, p, llm_gain(c, y[i], slice.p[LLM_MAMBA_NORM].w));
    }
    return llm_slices_sum(c, out, s, m->p[LLM_MAMBA_OUT].b);
}

struct llm_tensor *llm_forward_mamba2(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    const struct llm_slices *s = m->p[LLM_MAMBA_OUT].w->slices;
    if (s && llm_mamba2_divides_groups(p->config, s->n)) return mamba2_slices(c, m, p, x, s);
    return llm_module_slices(c, m, p, x, LLM_MAMBA_OUT, mamba2_groups);
}
