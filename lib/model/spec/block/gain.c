/* The factors of channels after a sub-layer (LayerScale, Touvron et al. 2021). */
#include "model/spec/block.h"

static void declare(struct llm_declare *d, struct llm_module *m)
{
    llm_declare_plain(d, &m->p[0].w, m->stem, d->config->hidden_size, 0, "hidden_size", LLM_INIT_LAYER_SCALE);
}

const struct llm_module_kind llm_module_gain = {.number = LLM_MODULE_gain, .unit = LLM_UNIT_NORMS, .declare = declare};
