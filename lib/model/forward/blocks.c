/* The forward functions of modules, by their number. */
#include "model/forward/block.h"

#define ROW(name) [LLM_MODULE_##name] = llm_forward_##name,
static llm_module_forward *const forwards[LLM_N_MODULES] = {LLM_MODULES(ROW)};

struct llm_tensor *llm_module_run(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    return forwards[m->kind->number](c, m, p, x);
}
