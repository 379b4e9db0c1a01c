/* The parameters of Hyena (Poli et al. 2023). Names and sizes are those of HyenaDNA's HyenaDNAForCausalLM. */
#include <math.h>
#include <stdlib.h>
#include "model/spec/block.h"

void llm_hyena_filter_destroy(struct llm_hyena_filter *f)
{
    if (f) free(f->values);
    free(f);
}

static void constant(struct llm_declare *d, struct llm_param **slot, enum llm_stem stem, int64_t rows, int64_t cols, const char *dims)
{
    llm_declare_plain(d, slot, stem, rows, cols, dims, LLM_INIT_HYENA);
    llm_declare_exact(d, false);
    llm_declare_constant(d);
}

static void declare(struct llm_declare *d, struct llm_module *m)
{
    const struct llm_config *c = d->config;
    const int64_t width = c->hidden_size, wide = (c->hyena_order + 1) * width, filters = llm_hyena_filters(c);
    static const char inner[] = "filter_order, filter_order", all[] = "(hyena_order - 1) * d_model";
    struct llm_linear_params *filter = &m->p[LLM_HYENA_FILTER];
    llm_declare_linear(d, &m->p[LLM_HYENA_IN], LLM_STEM_QKV, wide, width, "(hyena_order + 1) * d_model, d_model", true);
    llm_declare_plain(d, &m->p[LLM_HYENA_CONV].w, LLM_STEM_CONV, wide, c->conv_kernel, "channels, short_filter_order", LLM_INIT_CONV);
    llm_declare_exact(d, true);
    llm_declare_plain(d, &m->p[LLM_HYENA_CONV].b, LLM_STEM_CONV_BIAS, wide, 0, "channels", LLM_INIT_ZERO);
    llm_declare_plain(d, &m->p[LLM_HYENA_SKIP].w, LLM_STEM_SKIP, filters, 0, all, LLM_INIT_UNIT);
    constant(d, &m->p[LLM_HYENA_POSITIONS].w, LLM_STEM_FILTER_POSITIONS, c->max_position_embeddings, c->filter_features, "max_seq_len, emb_dim");
    constant(d, &m->p[LLM_HYENA_TIME].w, LLM_STEM_FILTER_TIME, c->max_position_embeddings, 0, "max_seq_len");
    constant(d, &m->p[LLM_HYENA_DECAY].w, LLM_STEM_FILTER_DECAY, filters, 0, all);
    llm_declare_filter(d, filter, 0, c->filter_width, c->filter_features, "filter_order, emb_dim", true);
    llm_declare_freq(d, &m->p[LLM_HYENA_FREQ].w, c->filter_width, (int)c->filter_inner + 1);
    for (int64_t i = 1; i <= c->filter_inner; i++) llm_declare_filter(d, &filter[i], 2 * i, c->filter_width, c->filter_width, inner, true);
    llm_declare_filter(d, &filter[c->filter_inner + 1], 2 * (c->filter_inner + 1), filters, c->filter_width,
                       "(hyena_order - 1) * d_model, filter_order", false);
    llm_declare_linear(d, &m->p[LLM_HYENA_OUT], LLM_STEM_OUT, width, width, "d_model, d_model", true);
    m->filter = llm_calloc(1, sizeof *m->filter, "model", d->err);
    if (!m->filter) d->failed = true;
}

/* A convolution by FFT, forward and inverse over twice the text's length, and the gates; per token. */
static double extra_flops(const struct llm_config *c, int64_t layer, int64_t context)
{
    (void)layer;
    return (10 * log2(2 * (double)context) + 8) * (double)llm_hyena_filters(c);
}

/* As keys of one head for each convolution: the gated values of all tokens, which it sums up. */
static void state(const struct llm_config *c, int64_t layer, struct llm_state_shape *s)
{
    (void)layer;
    s->n_kv_heads = c->hyena_order - 1;
    s->d_k = c->hidden_size;
    s->parts[0] = (struct llm_state_part){"conv", c->conv_kernel - 1, (c->hyena_order + 1) * c->hidden_size};
}

static uint64_t places(const struct llm_config *c, int64_t layer)
{
    (void)c, (void)layer;
    return LLM_PLACE_BIT(MIXER_CONV) | LLM_PLACE_BIT(MIXER_HIDDEN);
}

const struct llm_module_kind llm_module_hyena = {
    .number = LLM_MODULE_hyena, .input = LLM_PLACE_MIXER_INPUT, .output = LLM_PLACE_MIXER_OUTPUT, .places = places, .unit = LLM_UNIT_HYENA,
    .declare = declare, .extra_flops = extra_flops, .state = state};
