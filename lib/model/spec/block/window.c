/* The parameters of feed-forward language models: the first layer sees the embeddings of the last few tokens. */
#include "model/spec/block.h"

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
const struct llm_module_kind llm_module_window = {.number = LLM_MODULE_window, .unit = LLM_UNIT_MLP, .declare = declare, .state = state,
    .input = LLM_PLACE_NONE, .output = LLM_PLACE_MIXER_OUTPUT, .places = places};
