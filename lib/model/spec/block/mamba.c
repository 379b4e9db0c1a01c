/* The parameters of Mamba (Gu & Dao 2023) and Mamba 2 (Dao & Gu 2024). Names and sizes are those of transformers' MambaForCausalLM and
 * Mamba2ForCausalLM. */
#include "model/spec/block.h"

static void conv(struct llm_declare *d, struct llm_module *m, int64_t channels)
{
    llm_declare_plain(d, &m->p[LLM_MAMBA_CONV].w, LLM_STEM_CONV, channels, d->config->conv_kernel, "channels, conv_kernel", LLM_INIT_CONV);
    llm_declare_exact(d, true);
    llm_declare_file_shape(d, channels, d->config->conv_kernel);
    if (d->config->conv_bias) llm_declare_plain(d, &m->p[LLM_MAMBA_CONV].b, LLM_STEM_CONV_BIAS, channels, 0, "channels", LLM_INIT_ZERO);
}

static void declare_mamba(struct llm_declare *d, struct llm_module *m)
{
    const struct llm_config *c = d->config;
    int64_t inner = c->intermediate_size, rank = c->time_step_rank;
    llm_declare_linear(d, &m->p[LLM_MAMBA_IN], LLM_STEM_QKV, 2 * inner, c->hidden_size, "2 intermediate_size, hidden_size", c->mlp_bias);
    llm_declare_fused(d, (int64_t[]){inner, inner}, 2); /* channels and their gates */
    conv(d, m, inner);
    llm_declare_plain(d, &m->p[LLM_MAMBA_X_PROJ].w, LLM_STEM_STATES, rank + 2 * c->state_size, inner,
                      "time_step_rank + 2 state_size, intermediate_size", LLM_INIT_NORMAL);
    llm_declare_plain(d, &m->p[LLM_MAMBA_DT].w, LLM_STEM_TIME, inner, rank, "intermediate_size, time_step_rank", LLM_INIT_TIME_PROJECTION);
    llm_declare_plain(d, &m->p[LLM_MAMBA_DT].b, LLM_STEM_TIME_BIAS, inner, 0, "intermediate_size", LLM_INIT_TIME_STEP);
    llm_declare_plain(d, &m->p[LLM_MAMBA_SCAN].w, LLM_STEM_DECAY, inner, c->state_size, "intermediate_size, state_size", LLM_INIT_LOG_COLUMN);
    llm_declare_exact(d, false);
    llm_declare_minus_exp(d);
    llm_declare_plain(d, &m->p[LLM_MAMBA_SCAN].b, LLM_STEM_SKIP, inner, 0, "intermediate_size", LLM_INIT_ONE);
    llm_declare_linear(d, &m->p[LLM_MAMBA_OUT], LLM_STEM_OUT, c->hidden_size, inner, "hidden_size, intermediate_size", c->mlp_bias);
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
    .number = LLM_MODULE_mamba, .input = LLM_PLACE_MIXER_INPUT, .output = LLM_PLACE_MIXER_OUTPUT, .places = places_mamba,
    .unit = LLM_UNIT_MAMBA, .declare = declare_mamba, .extra_flops = extra_flops, .state = state_mamba};

/* ---- Mamba 2: one decay per head, groups of b and c, a convolution over x, b and c, a norm after the gate ---- */

static void declare_mamba2(struct llm_declare *d, struct llm_module *m)
{
    const struct llm_config *c = d->config;
    int64_t inner = c->intermediate_size, bc = c->ssm_groups * c->state_size, heads = c->ssm_heads;
    llm_declare_linear(d, &m->p[LLM_MAMBA_IN], LLM_STEM_QKV, inner + llm_mamba2_conv_width(c) + heads, c->hidden_size,
                       "2 intermediate_size + 2 n_groups * state_size + num_heads, hidden_size", c->mlp_bias);
    llm_declare_fused(d, (int64_t[]){inner, inner, bc, bc, heads}, 5); /* gates, x, b, c, time steps */
    conv(d, m, llm_mamba2_conv_width(c));
    llm_declare_fused(d, (int64_t[]){inner, bc, bc}, 3);
    llm_declare_plain(d, &m->p[LLM_MAMBA_DT].b, LLM_STEM_TIME_BIAS, heads, 0, "num_heads", LLM_INIT_TIME_STEP);
    llm_declare_plain(d, &m->p[LLM_MAMBA_SCAN].w, LLM_STEM_DECAY, heads, 0, "num_heads", LLM_INIT_LOG_COLUMN);
    llm_declare_minus_exp(d);
    llm_declare_file_shape(d, heads, 1);
    llm_declare_plain(d, &m->p[LLM_MAMBA_SCAN].b, LLM_STEM_SKIP, heads, 0, "num_heads", LLM_INIT_ONE);
    llm_declare_file_shape(d, heads, 1);
    llm_declare_plain(d, &m->p[LLM_MAMBA_NORM].w, LLM_STEM_GATED_NORM, inner, 0, "intermediate_size", LLM_INIT_ONE);
    llm_declare_file_shape(d, c->ssm_groups, inner / c->ssm_groups);
    llm_declare_linear(d, &m->p[LLM_MAMBA_OUT], LLM_STEM_OUT, c->hidden_size, inner, "hidden_size, intermediate_size", c->mlp_bias);
}

static void state_mamba2(const struct llm_config *c, int64_t layer, struct llm_state_shape *s)
{
    state_mamba(c, layer, s);
    s->parts[0].cols = llm_mamba2_conv_width(c);
}

static uint64_t places_mamba2(const struct llm_config *c, int64_t layer)
{
    (void)c, (void)layer;
    return LLM_PLACE_BIT(MIXER_CONV) | LLM_PLACE_BIT(MIXER_HIDDEN);
}

const struct llm_module_kind llm_module_mamba2 = {
    .number = LLM_MODULE_mamba2, .input = LLM_PLACE_MIXER_INPUT, .output = LLM_PLACE_MIXER_OUTPUT, .places = places_mamba2,
    .unit = LLM_UNIT_MAMBA2, .declare = declare_mamba2, .extra_flops = extra_flops, .state = state_mamba2};
