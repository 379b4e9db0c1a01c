/* The norm before or after a sub-layer. */
#include "model/spec/block.h"

static void declare(struct llm_declare *d, struct llm_module *m)
{
    llm_declare_norm(d, &m->p[0], m->stem, d->config->hidden_size, "hidden_size");
}

const struct llm_module_kind llm_module_norm = {.number = LLM_MODULE_norm, .unit = LLM_UNIT_NORMS, .declare = declare};
