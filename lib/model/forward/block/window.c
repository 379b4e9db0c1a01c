/* Feed-forward language models: the concatenated embeddings of the last few tokens pass through hidden layers. With direct connections (Bengio et al.
 * 2003) the head sees these embeddings in addition to the last hidden layer. */
#include "model/config/arch.h"

/* Width of the concatenated embeddings. */
static int64_t seen(const struct llm_config *c)
{
    return c->context_window * llm_config_embedding(c);
}

static void declare(struct llm_declare *d, struct llm_module *m)
{
    const struct llm_config *c = d->config;
    llm_declare_linear(d, &m->p[0], LLM_STEM_UP, c->intermediate_size, d->layer == 0 ? seen(c) : c->intermediate_size,
                       "intermediate_size, inputs", true);
}

static struct llm_tensor *forward(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    const struct llm_config *f = p->config;
    bool direct = f->direct_connections && p->layer == f->num_hidden_layers - 1;
    if (p->layer == 0) {
        int64_t n;
        const struct llm_segment *segments = llm_pass_segments(c, p, 0, &n);
        x = llm_window(c, x, f->context_window, segments, n);
    }
    x = llm_visit(c, &p->site, LLM_PLACE_MIXER_INPUT, x);
    struct llm_tensor *y = llm_activation(c, llm_linear(c, x, m->p[0].w, m->p[0].b), f->act);
    return direct ? llm_heads_join(c, y, x, 1, false) : y;
}

static void state(const struct llm_config *c, int64_t layer, struct llm_state_shape *s)
{
    if (layer == 0 && c->context_window > 1) s->parts[0] = (struct llm_state_part){"window", c->context_window - 1, llm_config_embedding(c)};
}

static uint64_t places(const struct llm_config *c, int64_t layer)
{
    (void)c, (void)layer;
    return LLM_PLACE_BIT(MIXER_INPUT);
}

/* The input of the projection is made within: the embeddings in sight. */
const struct llm_module_kind llm_module_window = {.unit = LLM_UNIT_MLP, .declare = declare, .forward = forward, .state = state,
    .input = LLM_PLACE_NONE, .output = LLM_PLACE_MIXER_OUTPUT, .places = places};
