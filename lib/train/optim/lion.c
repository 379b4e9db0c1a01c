/* Lion (Chen et al. 2023): the sign of an interpolation between momentum and gradient. */
#include "train/optim.h"

static void update(const struct llm_optim_span *s, const struct llm_optim_step *o)
{
    llm_k.optim.lion(s, o);
}

extern const struct llm_optim llm_optim_lion;
const struct llm_optim llm_optim_lion = {.name = "lion", .m = "m", .update = update, .beta2 = .99, .eps = 1e-8, .momentum = .9};
