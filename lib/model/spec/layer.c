/* The declaration of a layer: its mixer, cross-attention and feed-forward, each with its norms. */
#include "model/spec/block.h"

/* The mixer of a layer. */
const struct llm_module_kind *llm_decoder_mixer(const struct llm_config *c, int64_t layer)
{
    static const struct llm_module_kind *const others[] = {[LLM_MIXER_RNN] = &llm_module_rnn, [LLM_MIXER_LSTM] = &llm_module_lstm,
                                                         [LLM_MIXER_MAMBA] = &llm_module_mamba, [LLM_MIXER_MAMBA2] = &llm_module_mamba2,
                                                         [LLM_MIXER_WINDOW] = &llm_module_window, [LLM_MIXER_RWKV4] = &llm_module_rwkv4,
                                                         [LLM_MIXER_RWKV5] = &llm_module_rwkv5, [LLM_MIXER_RWKV6] = &llm_module_rwkv6,
                                                         [LLM_MIXER_RWKV7] = &llm_module_rwkv7, [LLM_MIXER_HYENA] = &llm_module_hyena};
    if (layer == 0 && llm_config_learns_latents(c)) return &llm_module_cross; /* the first layer's latents attend to the text */
    if (c->mixer != LLM_MIXER_ATTENTION) return others[c->mixer];
    return c->kv_lora_rank > 0 ? &llm_module_mla : &llm_module_attention;
}

const struct llm_module_kind *llm_decoder_ffn(const struct llm_config *c, int64_t layer)
{
    if (c->mixer == LLM_MIXER_HYENA) return &llm_module_mlp;
    if (c->mixer >= LLM_MIXER_RWKV4) return &llm_module_rwkv_channels;
    if (c->mixer != LLM_MIXER_ATTENTION) return NULL;
    return llm_config_is_mixture(c, layer) ? &llm_module_moe : &llm_module_mlp;
}

static void declare_module(struct llm_declare *d, struct llm_module *m, const struct llm_module_kind *kind, enum llm_stem stem)
{
    m->kind = kind;
    m->stem = stem;
    d->unit = kind->unit;
    kind->declare(d, m);
}

/* Declares sub-layer i of a layer with the norms before and after it. */
static void declare_sub_layer(struct llm_declare *d, struct llm_layer *layer, int i, const struct llm_module_kind *kind)
{
    static const enum llm_stem befores[] = {LLM_STEM_NORM_1, LLM_STEM_NORM_2, LLM_STEM_CROSS_NORM};
    enum llm_norm_place place = d->config->norm_place;
    if (!kind) return;
    enum llm_stem before = befores[i], after = i == LLM_SUB_FFN ? LLM_STEM_POST_2 : LLM_STEM_POST_1;
    if (place == LLM_NORM_POST) declare_module(d, &layer->after[i], &llm_module_norm, before);
    bool shares = d->config->shared_norm && i == LLM_SUB_FFN; /* it reads the mixer's norm */
    if (!shares && (place == LLM_NORM_PRE || place == LLM_NORM_SANDWICH)) declare_module(d, &layer->before[i], &llm_module_norm, before);
    declare_module(d, llm_layer_part(layer, i), kind, 0);
    if (place == LLM_NORM_SANDWICH || place == LLM_NORM_OUTPUT) declare_module(d, &layer->after[i], &llm_module_norm, after);
    if (d->config->layer_scale) declare_module(d, &layer->after[i], &llm_module_gain, after);
}

void llm_decoder_declare_layer(struct llm_declare *d, struct llm_layer *layer, int64_t number)
{
    d->layer = (int)number;
    declare_sub_layer(d, layer, LLM_SUB_MIXER, llm_decoder_mixer(d->config, number));
    if (d->config->num_encoder_layers > 0) declare_sub_layer(d, layer, LLM_SUB_CROSS, &llm_module_cross);
    declare_sub_layer(d, layer, LLM_SUB_FFN, llm_decoder_ffn(d->config, number));
}
