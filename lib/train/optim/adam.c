/* Adam (Kingma and Ba 2015); weight decay, if any, is part of the gradient. */
#include "train/optim.h"

static void update(const struct llm_optim_span *s, const struct llm_optim_step *o)
{
    llm_k.optim.adam(s, o);
}

extern const struct llm_optim llm_optim_adam;
const struct llm_optim llm_optim_adam = {.name = "adam", .m = "m", .v = "v", .update = update, .beta2 = .95, .eps = 1e-8, .momentum = .9};
