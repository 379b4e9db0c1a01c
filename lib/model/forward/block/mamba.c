/* Mamba (Gu & Dao 2023) and Mamba 2 (Dao & Gu 2024): projections, a short convolution, a selective scan, a gate. Names and sizes are those of
 * transformers' MambaForCausalLM and Mamba2ForCausalLM. */
#include "model/config/arch.h"

enum { IN, CONV, X_PROJ, DT, OUT, SCAN /* w: A_log, b: D */, NORM };

static void conv(struct llm_declare *d, struct llm_module *m, int64_t channels)
{
    llm_declare_plain(d, &m->p[CONV].w, LLM_STEM_CONV, channels, d->config->conv_kernel, "channels, conv_kernel", LLM_INIT_CONV);
    llm_declare_exact(d, true);
    llm_declare_file_shape(d, channels, d->config->conv_kernel);
    if (d->config->conv_bias) llm_declare_plain(d, &m->p[CONV].b, LLM_STEM_CONV_BIAS, channels, 0, "channels", LLM_INIT_ZERO);
}

static void declare_mamba(struct llm_declare *d, struct llm_module *m)
{
    const struct llm_config *c = d->config;
    int64_t inner = c->intermediate_size, rank = c->time_step_rank;
    llm_declare_linear(d, &m->p[IN], LLM_STEM_QKV, 2 * inner, c->hidden_size, "2 intermediate_size, hidden_size", c->mlp_bias);
    conv(d, m, inner);
    llm_declare_plain(d, &m->p[X_PROJ].w, LLM_STEM_STATES, rank + 2 * c->state_size, inner, "time_step_rank + 2 state_size, intermediate_size",
                      LLM_INIT_NORMAL);
    llm_declare_plain(d, &m->p[DT].w, LLM_STEM_TIME, inner, rank, "intermediate_size, time_step_rank", LLM_INIT_TIME_PROJECTION);
    llm_declare_plain(d, &m->p[DT].b, LLM_STEM_TIME_BIAS, inner, 0, "intermediate_size", LLM_INIT_TIME_STEP);
    llm_declare_plain(d, &m->p[SCAN].w, LLM_STEM_DECAY, inner, c->state_size, "intermediate_size, state_size", LLM_INIT_LOG_COLUMN);
    llm_declare_exact(d, false);
    llm_declare_minus_exp(d);
    llm_declare_plain(d, &m->p[SCAN].b, LLM_STEM_SKIP, inner, 0, "intermediate_size", LLM_INIT_ONE);
    llm_declare_linear(d, &m->p[OUT], LLM_STEM_OUT, c->hidden_size, inner, "hidden_size, intermediate_size", c->mlp_bias);
}

/* The convolution, followed by the configuration's activation. */
static struct llm_tensor *short_conv(struct llm_ctx *c, const struct llm_module *m, const struct llm_config *f, struct llm_tensor *x,
                                     const struct llm_segment *last, int64_t n)
{
    bool silu = f->act == LLM_ACT_SILU;
    x = llm_short_conv(c, x, m->p[CONV].w, m->p[CONV].b, silu, last, n);
    return silu ? x : llm_activation(c, x, f->act);
}

static struct llm_tensor *forward_mamba(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    const struct llm_config *f = p->config;
    int64_t inner = f->intermediate_size, n;
    const struct llm_segment *last = llm_pass_segments(c, p, 0, &n);
    struct llm_scan o = {.groups = 1, .dt_max = (float)f->time_step_max_limit};
    o.segments = llm_pass_segments(c, p, (f->conv_kernel - 1) * inner, &o.n_segments);
    struct llm_tensor *both = llm_linear(c, x, m->p[IN].w, m->p[IN].b);
    struct llm_tensor *u = short_conv(c, m, f, llm_columns(c, both, 0, inner), last, n);
    u = llm_visit(c, &p->site, LLM_PLACE_MIXER_CONV, u);
    struct llm_tensor *seen = llm_linear(c, u, m->p[X_PROJ].w, NULL);
    struct llm_tensor *time = llm_visit(c, &p->site, LLM_PLACE_MIXER_TIME, llm_columns(c, seen, 0, f->time_step_rank));
    struct llm_tensor *dt = llm_linear(c, time, m->p[DT].w, NULL);
    struct llm_tensor *b = llm_columns(c, seen, f->time_step_rank, f->state_size);
    struct llm_tensor *to = llm_columns(c, seen, f->time_step_rank + f->state_size, f->state_size);
    struct llm_tensor *y = llm_selective_scan(c, u, dt, b, to, m->p[SCAN].w, m->p[SCAN].b, m->p[DT].b, &o);
    c->passing = LLM_PASSING_INNER;
    y = llm_gated(c, llm_columns(c, both, inner, inner), y, LLM_ACT_SILU); /* whatever hidden_act says */
    c->passing = LLM_STAYS;
    y = llm_visit(c, &p->site, LLM_PLACE_MIXER_HIDDEN, y);
    return llm_linear(c, y, m->p[OUT].w, m->p[OUT].b);
}

/* FLOPs per token of decay, input and output: 5 for each state of each channel, in addition to the 2 that are counted for each element of a_log. */
static double extra_flops(const struct llm_config *c, int64_t layer, int64_t context)
{
    (void)layer, (void)context;
    return 5.0 * (double)c->intermediate_size * (double)c->state_size;
}

static void state_mamba(const struct llm_config *c, int64_t layer, struct llm_state_shape *s)
{
    (void)layer;
    s->parts[0] = (struct llm_state_part){"conv", c->conv_kernel - 1, c->intermediate_size};
    s->parts[1] = (struct llm_state_part){"ssm", c->state_size, c->intermediate_size};
}

static uint64_t places_mamba(const struct llm_config *c, int64_t layer)
{
    (void)c, (void)layer;
    return LLM_PLACE_BIT(MIXER_CONV) | LLM_PLACE_BIT(MIXER_TIME) | LLM_PLACE_BIT(MIXER_HIDDEN);
}

const struct llm_module_kind llm_module_mamba = {
    .input = LLM_PLACE_MIXER_INPUT, .output = LLM_PLACE_MIXER_OUTPUT, .places = places_mamba,
    .unit = LLM_UNIT_MAMBA, .declare = declare_mamba, .forward = forward_mamba, .extra_flops = extra_flops, .state = state_mamba};

/* ---- Mamba 2: one decay per head, groups of b and c, a convolution over x, b and c, a norm after the gate ---- */

static int64_t conv_width(const struct llm_config *c)
{
    return c->intermediate_size + 2 * c->ssm_groups * c->state_size;
}

static void declare_mamba2(struct llm_declare *d, struct llm_module *m)
{
    const struct llm_config *c = d->config;
    int64_t inner = c->intermediate_size, heads = c->ssm_heads;
    llm_declare_linear(d, &m->p[IN], LLM_STEM_QKV, inner + conv_width(c) + heads, c->hidden_size,
                       "2 intermediate_size + 2 n_groups * state_size + num_heads, hidden_size", c->mlp_bias);
    conv(d, m, conv_width(c));
    llm_declare_plain(d, &m->p[DT].b, LLM_STEM_TIME_BIAS, heads, 0, "num_heads", LLM_INIT_TIME_STEP);
    llm_declare_plain(d, &m->p[SCAN].w, LLM_STEM_DECAY, heads, 0, "num_heads", LLM_INIT_LOG_COLUMN);
    llm_declare_minus_exp(d);
    llm_declare_file_shape(d, heads, 1);
    llm_declare_plain(d, &m->p[SCAN].b, LLM_STEM_SKIP, heads, 0, "num_heads", LLM_INIT_ONE);
    llm_declare_file_shape(d, heads, 1);
    llm_declare_plain(d, &m->p[NORM].w, LLM_STEM_GATED_NORM, inner, 0, "intermediate_size", LLM_INIT_ONE);
    llm_declare_file_shape(d, c->ssm_groups, inner / c->ssm_groups);
    llm_declare_linear(d, &m->p[OUT], LLM_STEM_OUT, c->hidden_size, inner, "hidden_size, intermediate_size", c->mlp_bias);
}

static struct llm_tensor *forward_mamba2(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    const struct llm_config *f = p->config;
    int64_t inner = f->intermediate_size, wide = conv_width(f), bc = f->ssm_groups * f->state_size, n;
    const struct llm_segment *last = llm_pass_segments(c, p, 0, &n);
    struct llm_scan o = {.by_head = true, .heads = f->ssm_heads, .groups = f->ssm_groups, .dt_min = (float)f->time_step_min_limit,
                         .dt_max = (float)f->time_step_max_limit};
    o.segments = llm_pass_segments(c, p, (f->conv_kernel - 1) * wide, &o.n_segments);
    struct llm_tensor *all = llm_linear(c, x, m->p[IN].w, m->p[IN].b);
    struct llm_tensor *u = short_conv(c, m, f, llm_columns(c, all, inner, wide), last, n);
    u = llm_visit(c, &p->site, LLM_PLACE_MIXER_CONV, u);
    struct llm_tensor *y = llm_selective_scan(c, llm_columns(c, u, 0, inner), llm_columns(c, all, inner + wide, f->ssm_heads),
                                              llm_columns(c, u, inner, bc), llm_columns(c, u, inner + bc, bc), m->p[SCAN].w, m->p[SCAN].b, m->p[DT].b,
                                              &o);
    y = llm_gated(c, llm_columns(c, all, 0, inner), y, LLM_ACT_SILU); /* whatever hidden_act says */
    c->passing = LLM_PASSING_INNER;
    y = llm_rmsnorm(c, y, m->p[NORM].w, (float)f->norm_eps, 0, inner / f->ssm_groups);
    c->passing = LLM_STAYS;
    y = llm_visit(c, &p->site, LLM_PLACE_MIXER_HIDDEN, y);
    return llm_linear(c, y, m->p[OUT].w, m->p[OUT].b);
}

static void state_mamba2(const struct llm_config *c, int64_t layer, struct llm_state_shape *s)
{
    state_mamba(c, layer, s);
    s->parts[0].cols = conv_width(c);
}

static uint64_t places_mamba2(const struct llm_config *c, int64_t layer)
{
    (void)c, (void)layer;
    return LLM_PLACE_BIT(MIXER_CONV) | LLM_PLACE_BIT(MIXER_HIDDEN);
}

const struct llm_module_kind llm_module_mamba2 = {
    .input = LLM_PLACE_MIXER_INPUT, .output = LLM_PLACE_MIXER_OUTPUT, .places = places_mamba2,
    .unit = LLM_UNIT_MAMBA2, .declare = declare_mamba2, .forward = forward_mamba2, .extra_flops = extra_flops, .state = state_mamba2};
