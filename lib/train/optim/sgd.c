/* Stochastic gradient descent with momentum, Nesterov's by choice. */
#include "train/optim.h"

static void update(const struct llm_optim_span *s, const struct llm_optim_step *o)
{
    llm_k.optim.sgd(s, o);
}

extern const struct llm_optim llm_optim_sgd;
const struct llm_optim llm_optim_sgd = {.name = "sgd", .kind = LLM_OPTIM_GRADIENT, .m = "m", .update = update, .beta2 = .95, .eps = 1e-8,
                                         .momentum = .9};
