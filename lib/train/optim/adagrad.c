/* AdaGrad (Duchi, Hazan, Singer 2011). */
#include "train/optim.h"

static void update(const struct llm_optim_span *s, const struct llm_optim_step *o)
{
    llm_k.optim.adagrad(s, o);
}

extern const struct llm_optim llm_optim_adagrad;
const struct llm_optim llm_optim_adagrad = {.name = "adagrad", .v = "v", .update = update, .beta2 = .95, .eps = 1e-10, .momentum = .9};
