/* Recurrent layers: tanh (Elman 1990) and LSTM (Hochreiter & Schmidhuber 1997, with forget gates), as torch.nn.RNN and torch.nn.LSTM have them. */
#include "model/forward/block.h"

static struct llm_tensor *forward(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x, bool lstm)
{
    struct llm_recurrent o = {.lstm = lstm};
    o.segments = llm_pass_segments(c, p, 0, &o.n_segments);
    return llm_recurrent(c, llm_linear(c, x, m->p[LLM_RECURRENT_INPUT].w, m->p[LLM_RECURRENT_INPUT].b), m->p[LLM_RECURRENT_STATE].w,
                         m->p[LLM_RECURRENT_STATE].b, &o);
}

struct llm_tensor *llm_forward_rnn(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    return forward(c, m, p, x, false);
}

struct llm_tensor *llm_forward_lstm(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    return forward(c, m, p, x, true);
}
