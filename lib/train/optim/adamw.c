/* AdamW (Loshchilov and Hutter 2019). */
#include "train/optim.h"

static void update(const struct llm_optim_span *s, const struct llm_optim_step *o)
{
    llm_k.optim.adamw(s, o);
}

extern const struct llm_optim llm_optim_adamw;
const struct llm_optim llm_optim_adamw = {.name = "adamw", .m = "m", .v = "v", .update = update, .beta2 = .95, .eps = 1e-8, .momentum = .9};
