/* The parameters of RWKV's layers: time mixing, the recurrence over tokens, and channel mixing, the feed-forward part, which sees the token before as
 * well. Names and sizes are those of transformers' RwkvForCausalLM (version 4; Peng et al. 2023) and of the code that RWKV's folders for transformers
 * bring along (versions 5.2 and 6; Peng et al. 2024); of version 7 (Peng et al. 2025) those of flash-linear-attention's RWKV7ForCausalLM. */
#include "model/spec/block.h"

/* A share in the input of a projection, by channel: of the token itself, from version 6 on of the token before; the rest is of the other. Files have
 * it as [1, 1, hidden_size]. */
static void share(struct llm_declare *d, struct llm_param **slot, enum llm_stem stem)
{
    llm_declare_plain(d, slot, stem, d->config->hidden_size, 0, "hidden_size", LLM_INIT_SHARE);
    llm_declare_vector_shape(d);
}

static void declare_rwkv4(struct llm_declare *d, struct llm_module *m)
{
    const struct llm_config *c = d->config;
    int64_t width = llm_rwkv_width(c);
    llm_declare_plain(d, &m->p[LLM_RWKV_DECAY].w, LLM_STEM_DECAY, width, 0, "attention_hidden_size", LLM_INIT_DECAY);
    llm_declare_minus_exp(d);
    llm_declare_plain(d, &m->p[LLM_RWKV_FIRST].w, LLM_STEM_FIRST, width, 0, "attention_hidden_size", LLM_INIT_FIRST);
    share(d, &m->p[LLM_RWKV_K].share, LLM_STEM_SHARE_K);
    share(d, &m->p[LLM_RWKV_V].share, LLM_STEM_SHARE_V);
    share(d, &m->p[LLM_RWKV_R].share, LLM_STEM_SHARE_R);
    static const char dims[] = "attention_hidden_size, hidden_size";
    llm_declare_linear(d, &m->p[LLM_RWKV_K], LLM_STEM_K, width, c->hidden_size, dims, false);
    llm_declare_linear(d, &m->p[LLM_RWKV_V], LLM_STEM_V, width, c->hidden_size, dims, false);
    llm_declare_linear(d, &m->p[LLM_RWKV_R], LLM_STEM_Q, width, c->hidden_size, dims, false);
    llm_declare_linear(d, &m->p[LLM_RWKV_OUT], LLM_STEM_OUT, c->hidden_size, width, "hidden_size, attention_hidden_size", false);
}

static double flops_rwkv4(const struct llm_config *c, int64_t layer, int64_t context)
{
    (void)layer, (void)context;
    return 15.0 * (double)llm_rwkv_width(c); /* a channel: two maxima, output and state; exponentials count as one */
}

static void state_rwkv4(const struct llm_config *c, int64_t layer, struct llm_state_shape *s)
{
    (void)layer;
    s->parts[0] = (struct llm_state_part){"shift", 2, c->hidden_size}; /* the last inputs of time mixing and of channel mixing */
    s->parts[1] = (struct llm_state_part){"wkv", 3, llm_rwkv_width(c)};
}

static uint64_t places_mixer(const struct llm_config *c, int64_t layer)
{
    (void)c, (void)layer;
    return LLM_PLACE_BIT(MIXER_HIDDEN);
}

const struct llm_module_kind llm_module_rwkv4 = {
    .number = LLM_MODULE_rwkv4, .input = LLM_PLACE_MIXER_INPUT, .output = LLM_PLACE_MIXER_OUTPUT, .places = places_mixer,
    .unit = LLM_UNIT_RWKV, .declare = declare_rwkv4, .extra_flops = flops_rwkv4, .state = state_rwkv4};

/* ---- versions 5 and 6: heads with matrices of states, a norm of each head, a gate ---- */

/* A vector of all heads' channels, which files have by head. */
static void by_head(struct llm_declare *d, struct llm_param **slot, enum llm_stem stem, enum llm_init init)
{
    const struct llm_config *c = d->config;
    llm_declare_plain(d, slot, stem, llm_rwkv_width(c), 0, "heads, head_size", init);
    llm_declare_shape(d, c->num_attention_heads, c->head_dim, 0);
}

/* What both versions have besides decays. */
static void declare_heads(struct llm_declare *d, struct llm_module *m)
{
    const struct llm_config *c = d->config;
    static const char dims[] = "attention_hidden_size, hidden_size";
    int64_t width = llm_rwkv_width(c);
    by_head(d, &m->p[LLM_RWKV_FIRST].w, LLM_STEM_FIRST, LLM_INIT_FIRST);
    share(d, &m->p[LLM_RWKV_K].share, LLM_STEM_SHARE_K);
    share(d, &m->p[LLM_RWKV_V].share, LLM_STEM_SHARE_V);
    share(d, &m->p[LLM_RWKV_R].share, LLM_STEM_SHARE_R);
    share(d, &m->p[LLM_RWKV_GATE].share, LLM_STEM_SHARE_OUT_GATE);
    llm_declare_linear(d, &m->p[LLM_RWKV_K], LLM_STEM_K, width, c->hidden_size, dims, false);
    llm_declare_linear(d, &m->p[LLM_RWKV_V], LLM_STEM_V, width, c->hidden_size, dims, false);
    llm_declare_linear(d, &m->p[LLM_RWKV_R], LLM_STEM_Q, width, c->hidden_size, dims, false);
    llm_declare_linear(d, &m->p[LLM_RWKV_GATE], LLM_STEM_OUT_GATE, width, c->hidden_size, dims, false);
    llm_declare_norm(d, &m->p[LLM_RWKV_NORM], LLM_STEM_POST_1, width, "attention_hidden_size");
    llm_declare_linear(d, &m->p[LLM_RWKV_OUT], LLM_STEM_OUT, c->hidden_size, width, "hidden_size, attention_hidden_size", false);
}

static void declare_rwkv5(struct llm_declare *d, struct llm_module *m)
{
    by_head(d, &m->p[LLM_RWKV_DECAY].w, LLM_STEM_DECAY, LLM_INIT_DECAY);
    llm_declare_exp_minus_exp(d);
    declare_heads(d, m);
}

/* A factor of what tokens add to shares and decays; files of transformers have it as [in, out]. */
static void factor(struct llm_declare *d, struct llm_param **slot, enum llm_stem stem, int64_t out, int64_t in, const char *dims, enum llm_init init)
{
    llm_declare_plain(d, slot, stem, out, in, dims, init);
    llm_declare_transposed(d);
}

static void declare_rwkv6(struct llm_declare *d, struct llm_module *m)
{
    const struct llm_config *c = d->config;
    int64_t mix = c->rwkv_mix_rank, rank = c->rwkv_decay_rank, width = llm_rwkv_width(c);
    share(d, &m->p[LLM_RWKV_MIX_IN].share, LLM_STEM_SHARE_MIX);
    factor(d, &m->p[LLM_RWKV_MIX_IN].w, LLM_STEM_MIX_IN, LLM_RWKV_MIXES * mix, c->hidden_size, "5 ranks, hidden_size", LLM_INIT_ZERO);
    llm_declare_plain(d, &m->p[LLM_RWKV_MIX_OUT].w, LLM_STEM_MIX_OUT, LLM_RWKV_MIXES * mix, c->hidden_size, "5 ranks, hidden_size", LLM_INIT_SMALL);
    llm_declare_exact(d, false);
    llm_declare_shape(d, LLM_RWKV_MIXES, mix, c->hidden_size);
    llm_declare_blocks(d, LLM_RWKV_MIXES);
    share(d, &m->p[LLM_RWKV_DECAY].share, LLM_STEM_SHARE_DECAY);
    by_head(d, &m->p[LLM_RWKV_DECAY].b, LLM_STEM_DECAY, LLM_INIT_DECAY);
    llm_declare_vector_shape(d);
    factor(d, &m->p[LLM_RWKV_DECAY_IN].w, LLM_STEM_DECAY_IN, rank, c->hidden_size, "rank, hidden_size", LLM_INIT_ZERO);
    factor(d, &m->p[LLM_RWKV_DECAY].w, LLM_STEM_DECAY_OUT, width, rank, "attention_hidden_size, rank", LLM_INIT_SMALL);
    declare_heads(d, m);
}

/* ---- version 7 ---- */

/* A share, of which files of rwkv.cpp have all six of a layer in one matrix, this one in row i. */
static void share_row(struct llm_declare *d, struct llm_param **slot, enum llm_stem stem, int64_t i)
{
    llm_declare_plain(d, slot, stem, d->config->hidden_size, 0, "hidden_size", LLM_INIT_RWKV7);
    llm_declare_vector_shape(d);
    llm_declare_row(d, i, 6);
}

/* A vector of all heads' channels. */
static void channels(struct llm_declare *d, struct llm_param **slot, enum llm_stem stem)
{
    llm_declare_plain(d, slot, stem, llm_rwkv_width(d->config), 0, "heads * head_dim", LLM_INIT_RWKV7);
}

/* Two factors of a matrix, hidden_size to all heads' channels. */
static void low_rank(struct llm_declare *d, struct llm_param **in, enum llm_stem in_stem, struct llm_param **out, enum llm_stem out_stem,
                     int64_t rank)
{
    const struct llm_config *c = d->config;
    llm_declare_plain(d, in, in_stem, rank, c->hidden_size, "rank, hidden_size", LLM_INIT_ZERO);
    llm_declare_plain(d, out, out_stem, llm_rwkv_width(c), rank, "heads * head_dim, rank", LLM_INIT_NORMAL);
}

static void declare_rwkv7(struct llm_declare *d, struct llm_module *m)
{
    const struct llm_config *c = d->config;
    static const char dims[] = "heads * head_dim, hidden_size";
    int64_t width = llm_rwkv_width(c);
    struct llm_linear_params *p = m->p;
    share_row(d, &p[LLM_RWKV_R].share, LLM_STEM_SHARE_R, 0);
    share_row(d, &p[LLM_RWKV_DECAY].share, LLM_STEM_SHARE_DECAY, 1);
    share_row(d, &p[LLM_RWKV_K].share, LLM_STEM_SHARE_K, 2);
    share_row(d, &p[LLM_RWKV_V].share, LLM_STEM_SHARE_V, 3);
    share_row(d, &p[LLM_RWKV_RATE].share, LLM_STEM_SHARE_RATE, 4);
    share_row(d, &p[LLM_RWKV_GATE].share, LLM_STEM_SHARE_OUT_GATE, 5);
    channels(d, &p[LLM_RWKV_KEY_SCALE].w, LLM_STEM_KEY_SCALE);
    channels(d, &p[LLM_RWKV_KEY_MIX].w, LLM_STEM_KEY_MIX);
    by_head(d, &p[LLM_RWKV_FIRST].w, LLM_STEM_FIRST, LLM_INIT_RWKV7);
    llm_declare_linear(d, &p[LLM_RWKV_R], LLM_STEM_Q, width, c->hidden_size, dims, false);
    llm_declare_linear(d, &p[LLM_RWKV_K], LLM_STEM_K, width, c->hidden_size, dims, false);
    llm_declare_linear(d, &p[LLM_RWKV_V], LLM_STEM_V, width, c->hidden_size, dims, false);
    low_rank(d, &p[LLM_RWKV_DECAY_IN].w, LLM_STEM_DECAY_IN, &p[LLM_RWKV_DECAY].w, LLM_STEM_DECAY_OUT, c->rwkv_decay_rank);
    channels(d, &p[LLM_RWKV_DECAY].b, LLM_STEM_DECAY);
    low_rank(d, &p[LLM_RWKV_RATE_IN].w, LLM_STEM_RATE_IN, &p[LLM_RWKV_RATE].w, LLM_STEM_RATE_OUT, c->rwkv_rate_rank);
    channels(d, &p[LLM_RWKV_RATE].b, LLM_STEM_RATE);
    if (d->layer > 0) {
        low_rank(d, &p[LLM_RWKV_VALUE_IN].w, LLM_STEM_VALUE_IN, &p[LLM_RWKV_VALUE].w, LLM_STEM_VALUE_OUT, c->rwkv_value_rank);
        channels(d, &p[LLM_RWKV_VALUE].b, LLM_STEM_VALUE);
    }
    low_rank(d, &p[LLM_RWKV_GATE_IN].w, LLM_STEM_OUT_GATE_IN, &p[LLM_RWKV_GATE].w, LLM_STEM_OUT_GATE, c->rwkv_gate_rank);
    llm_declare_norm(d, &p[LLM_RWKV_NORM], LLM_STEM_POST_1, width, "heads * head_dim");
    llm_declare_linear(d, &p[LLM_RWKV_OUT], LLM_STEM_OUT, c->hidden_size, width, "hidden_size, heads * head_dim", false);
}

/* ---- what versions 5 to 7 keep and cost ---- */

static double flops_heads(const struct llm_config *c, int64_t layer, int64_t context)
{
    (void)layer, (void)context;
    return 7.0 * (double)llm_rwkv_width(c) * (double)c->head_dim; /* a state: input, bonus or removal, output, decay */
}

static void state_heads(const struct llm_config *c, int64_t layer, struct llm_state_shape *s)
{
    state_rwkv4(c, layer, s);
    s->parts[1] = (struct llm_state_part){"wkv", llm_rwkv_width(c), c->head_dim};
}

#define HEADS .input = LLM_PLACE_MIXER_INPUT, .output = LLM_PLACE_MIXER_OUTPUT, .places = places_mixer, .unit = LLM_UNIT_RWKV, \
    .extra_flops = flops_heads, .state = state_heads
const struct llm_module_kind llm_module_rwkv5 = {.number = LLM_MODULE_rwkv5, HEADS, .declare = declare_rwkv5};
const struct llm_module_kind llm_module_rwkv6 = {.number = LLM_MODULE_rwkv6, HEADS, .declare = declare_rwkv6};
const struct llm_module_kind llm_module_rwkv7 = {.number = LLM_MODULE_rwkv7, HEADS, .declare = declare_rwkv7};

/* ---- channel mixing ---- */

static void declare_channels(struct llm_declare *d, struct llm_module *m)
{
    const struct llm_config *c = d->config;
    bool gated = llm_rwkv_gates_channels(c);
    if (gated) share(d, &m->p[LLM_MLP_UP].share, LLM_STEM_SHARE_UP);
    else llm_declare_plain(d, &m->p[LLM_MLP_UP].share, LLM_STEM_SHARE_UP, c->hidden_size, 0, "hidden_size", LLM_INIT_RWKV7);
    if (gated) share(d, &m->p[LLM_MLP_GATE].share, LLM_STEM_SHARE_GATE);
    llm_declare_linear(d, &m->p[LLM_MLP_UP], LLM_STEM_UP, c->intermediate_size, c->hidden_size, "intermediate_size, hidden_size", false);
    if (gated) llm_declare_linear(d, &m->p[LLM_MLP_GATE], LLM_STEM_GATE, c->hidden_size, c->hidden_size, "hidden_size, hidden_size", false);
    llm_declare_linear(d, &m->p[LLM_MLP_DOWN], LLM_STEM_DOWN, c->hidden_size, c->intermediate_size, "hidden_size, intermediate_size", false);
}

static uint64_t places_channels(const struct llm_config *c, int64_t layer)
{
    (void)layer;
    return (llm_rwkv_gates_channels(c) ? LLM_PLACE_BIT(MLP_GATE) : 0) | LLM_PLACE_BIT(MLP_UP) | LLM_PLACE_BIT(MLP_HIDDEN);
}

const struct llm_module_kind llm_module_rwkv_channels = {
    .number = LLM_MODULE_rwkv_channels, .input = LLM_PLACE_MLP_INPUT, .output = LLM_PLACE_MLP_OUTPUT, .places = places_channels,
    .unit = LLM_UNIT_MLP, .declare = declare_channels};
