/* The parameters of recurrent layers, under the names of torch.nn.RNN and torch.nn.LSTM. */
#include "model/spec/block.h"

static void declare(struct llm_declare *d, struct llm_module *m, int64_t gates)
{
    const struct llm_config *c = d->config;
    int64_t rows = gates * c->hidden_size;
    llm_declare_plain(d, &m->p[LLM_RECURRENT_INPUT].w, LLM_STEM_INPUTS, rows, d->layer == 0 ? llm_config_embedding(c) : c->hidden_size,
                      "gates * hidden_size, inputs", LLM_INIT_NORMAL);
    llm_declare_plain(d, &m->p[LLM_RECURRENT_STATE].w, LLM_STEM_STATE, rows, c->hidden_size, "gates * hidden_size, hidden_size", LLM_INIT_NORMAL);
    if (!c->recurrent_bias) return;
    llm_declare_plain(d, &m->p[LLM_RECURRENT_INPUT].b, LLM_STEM_INPUTS_BIAS, rows, 0, "gates * hidden_size", LLM_INIT_ZERO);
    llm_declare_plain(d, &m->p[LLM_RECURRENT_STATE].b, LLM_STEM_STATE_BIAS, rows, 0, "gates * hidden_size", LLM_INIT_ZERO);
}

static void declare_rnn(struct llm_declare *d, struct llm_module *m) { declare(d, m, 1); }
static void declare_lstm(struct llm_declare *d, struct llm_module *m) { declare(d, m, 4); }

static void state_rnn(const struct llm_config *c, int64_t layer, struct llm_state_shape *s)
{
    (void)layer;
    s->parts[0] = (struct llm_state_part){"h", 1, c->hidden_size};
}

static void state_lstm(const struct llm_config *c, int64_t layer, struct llm_state_shape *s)
{
    state_rnn(c, layer, s);
    s->parts[1] = (struct llm_state_part){"c", 1, c->hidden_size};
}

static uint64_t places(const struct llm_config *c, int64_t layer)
{
    (void)c, (void)layer;
    return 0;
}

#define PLACES .input = LLM_PLACE_MIXER_INPUT, .output = LLM_PLACE_MIXER_OUTPUT, .places = places
const struct llm_module_kind llm_module_rnn = {.number = LLM_MODULE_rnn, PLACES, .unit = LLM_UNIT_RNN, .declare = declare_rnn, .state = state_rnn};
const struct llm_module_kind llm_module_lstm = {.number = LLM_MODULE_lstm, PLACES, .unit = LLM_UNIT_LSTM, .declare = declare_lstm,
                                                .state = state_lstm};
