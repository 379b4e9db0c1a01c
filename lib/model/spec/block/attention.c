/* The attention block's parameters, with separate or fused projections. The number of key/value heads makes it multi-head, grouped-query or
 * multi-query attention. */
#include "model/spec/block.h"

static void declare_norm(struct llm_declare *d, struct llm_linear_params *p, enum llm_stem stem, int64_t n_heads)
{
    const struct llm_config *c = d->config;
    if (c->qk_norm == LLM_QK_NORM_NONE) return;
    if (c->qk_norm == LLM_QK_NORM_HEAD) llm_declare_norm(d, p, stem, c->head_dim, "head_dim");
    else llm_declare_norm(d, p, stem, n_heads * c->head_dim, "heads * head_dim");
}

/* LLM_QK_NORM_EACH: declares one gain per head, for all heads of queries, then of keys. */
static void declare_head_gains(struct llm_declare *d, struct llm_module *m)
{
    const struct llm_config *c = d->config;
    int64_t q = c->num_attention_heads, n = q + c->num_key_value_heads;
    m->head_gains = llm_calloc((size_t)n, sizeof *m->head_gains, "norms of heads", d->err);
    d->failed |= !m->head_gains;
    for (int64_t i = 0; i < n && !d->failed; i++) {
        if (i < q) llm_declare_head_gain(d, &m->head_gains[i], LLM_STEM_Q_NORM, i, q);
        else llm_declare_head_gain(d, &m->head_gains[i], LLM_STEM_K_NORM, i - q, n - q);
    }
}

static void declare(struct llm_declare *d, struct llm_module *m)
{
    const struct llm_config *c = d->config;
    int64_t q = c->num_attention_heads * c->head_dim, kv = c->num_key_value_heads * c->head_dim;
    if (d->arch->names.stem[LLM_STEM_QKV]) {
        llm_declare_linear(d, &m->p[LLM_ATTENTION_QKV], LLM_STEM_QKV, q + 2 * kv, c->hidden_size,
                           "(num_attention_heads + 2 num_key_value_heads) * head_dim, hidden_size", c->attention_bias);
        llm_declare_parts(d, q, kv, kv);
    } else {
        llm_declare_linear(d, &m->p[LLM_ATTENTION_Q], LLM_STEM_Q, q, c->hidden_size, "num_attention_heads * head_dim, hidden_size",
                           c->attention_bias);
        if (llm_attention_makes_keys(c, d->layer)) {
            llm_declare_linear(d, &m->p[LLM_ATTENTION_K], LLM_STEM_K, kv, c->hidden_size, "num_key_value_heads * head_dim, hidden_size",
                               c->attention_bias && !c->no_key_bias);
            llm_declare_linear(d, &m->p[LLM_ATTENTION_V], LLM_STEM_V, kv, c->hidden_size, "num_key_value_heads * head_dim, hidden_size",
                               c->attention_bias);
        }
    }
    llm_declare_linear(d, &m->p[LLM_ATTENTION_OUT], LLM_STEM_OUT, c->hidden_size, q, "hidden_size, num_attention_heads * head_dim",
                       c->attention_out_bias);
    if (c->qk_norm == LLM_QK_NORM_EACH) declare_head_gains(d, m);
    else declare_norm(d, &m->p[LLM_ATTENTION_Q_NORM], LLM_STEM_Q_NORM, c->num_attention_heads);
    if (c->qk_norm != LLM_QK_NORM_EACH && llm_attention_makes_keys(c, d->layer)) {
        declare_norm(d, &m->p[LLM_ATTENTION_K_NORM], LLM_STEM_K_NORM, c->num_key_value_heads);
    }
    if (c->attention_sinks) llm_declare_vector(d, &m->p[LLM_ATTENTION_SINKS].w, LLM_STEM_SINKS, c->num_attention_heads, "num_attention_heads", false);
}

/* FLOPs per token of the scores and of the weighted sum of values: 2 for each channel of d_k and d_v, each head, and each token that is seen. */
static double extra_flops(const struct llm_config *c, int64_t layer, int64_t context)
{
    int64_t window = llm_config_window(c, layer), block = llm_config_block(c, layer);
    if (window > 0 && c->bidirectional) window = 2 * window - 1; /* the window extends to both sides */
    double seen = window > 0 && window < context ? (double)window : (double)context, in_block = (double)(block + 1) / 2; /* the mean over the tokens
                                                                                                                          * of a block */
    if (llm_config_learns_latents(c) && context > 0) { /* the cost of all latents, divided by the tokens of the text */
        return 4.0 * (double)(c->num_attention_heads * c->head_dim) * (double)c->num_latents * (double)c->num_latents / (double)context;
    }
    if (block > 0 && in_block < seen) seen = in_block;
    return 4.0 * (double)(c->num_attention_heads * c->head_dim) * seen;
}

/* Perceivers: the keys and values of the current block of tokens (forward/block/latents.c). */
static void latents_state(const struct llm_config *c, int64_t layer, struct llm_state_shape *s)
{
    int64_t rows = llm_latents_tiles(llm_config_block(c, layer)) * c->num_key_value_heads * LLM_KV_TILE;
    s->parts[0] = (struct llm_state_part){"block_k", rows, c->head_dim};
    s->parts[1] = (struct llm_state_part){"block_v", rows, c->head_dim};
}

static void state(const struct llm_config *c, int64_t layer, struct llm_state_shape *s)
{
    if (c->bidirectional) return; /* encoders keep no cache */
    if (llm_config_block(c, layer) > 0) {
        latents_state(c, layer, s);
        return;
    }
    s->source = layer - layer % c->kv_sharing;
    s->n_kv_heads = c->num_key_value_heads;
    s->d_k = s->d_v = c->head_dim;
}

static uint64_t places(const struct llm_config *c, int64_t layer)
{
    bool rotates = c->position == LLM_POSITION_ROPE && !llm_layer_in(c->no_rope_layers, layer);
    uint64_t own = LLM_PLACE_BIT(ATTENTION_Q) | LLM_PLACE_BIT(ATTENTION_HEADS);
    if (rotates) own |= LLM_PLACE_BIT(ATTENTION_Q_ROTATED);
    if (rotates && c->dual_chunk_size > 0) own |= LLM_PLACE_BIT(ATTENTION_Q_PREVIOUS) | LLM_PLACE_BIT(ATTENTION_Q_EARLIER);
    if (!llm_attention_makes_keys(c, layer)) return own;
    return own | LLM_PLACE_BIT(ATTENTION_K) | LLM_PLACE_BIT(ATTENTION_V) | (rotates ? LLM_PLACE_BIT(ATTENTION_K_ROTATED) : 0);
}

const struct llm_module_kind llm_module_attention = {
    .number = LLM_MODULE_attention, .input = LLM_PLACE_ATTENTION_INPUT, .output = LLM_PLACE_ATTENTION_OUTPUT, .places = places,
    .unit = LLM_UNIT_ATTENTION, .declare = declare, .extra_flops = extra_flops, .state = state};
